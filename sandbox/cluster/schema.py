"""A cluster configuration held against Ray's own schema and loader, before anybody pays for a machine."""

from __future__ import annotations

import copy
from importlib.metadata import version
from typing import Any

from tilecast.sandbox.cluster.connection import import_ray
from tilecast.sandbox.errors import UsageError

KUBERAY = "RayCluster"


def ray_version() -> str:
    """Of the Ray that is installed here: the cluster must run the same.

    Raises:
        UsageError: if there is none.
    """
    import_ray("a cluster configuration")
    return version("ray")


def loaded(config: dict[str, Any]) -> dict[str, Any]:
    """What Ray's autoscaler makes of a configuration: defaults filled in, node types derived, its schema applied.

    Args:
        config: for ``ray up``, or a manifest of kind RayCluster.

    Raises:
        UsageError: if Ray refuses it.
    """
    import_ray("a cluster configuration")
    given = copy.deepcopy(config)
    try:
        if given.get("kind") == KUBERAY:
            from ray.autoscaler._private.kuberay.autoscaling_config import _derive_autoscaling_config_from_ray_cr

            return dict(_derive_autoscaling_config_from_ray_cr(given))
        from ray.autoscaler._private.util import prepare_config, validate_config

        prepared = prepare_config(given)
        validate_config(prepared)
        return dict(prepared)
    except Exception as error:
        message = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UsageError(f"Ray does not accept this cluster configuration: {message}") from error
