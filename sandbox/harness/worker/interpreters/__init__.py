"""Runs Triton and cuTile kernels on CPU tensors, right where the stock interpreter is wrong, with no GPU.

``install`` is called in a fresh worker, forked from a process that imported triton with TRITON_INTERPRET=1, before the
candidate is imported. What the interpreter lacks raises :class:`Unsupported` with the feature's name; a candidate that
swallows it is found out by :func:`unsupported_features`.
"""

from __future__ import annotations

from .errors import LaunchError, OutOfBounds, Unsupported, out_of_bounds_accesses, unsupported_features

__all__ = [
    "LaunchError",
    "OutOfBounds",
    "Unsupported",
    "autotune_configs",
    "config_count",
    "force_config",
    "install",
    "out_of_bounds_accesses",
    "prepare",
    "unsupported_features",
]


def prepare() -> None:
    """Do the work that is the same for every candidate; for the process that workers are forked from.

    Starts no thread, allocates no tensor and leaves ``torch.cuda`` alone.

    Raises:
        RuntimeError: if triton was imported without TRITON_INTERPRET=1.
    """
    from . import triton_install

    triton_install.prepare()
    triton_install.warm()


def install(source: str) -> None:
    """Make this process fit to run one candidate, whose text is ``source``.

    Raises:
        RuntimeError: if triton was imported without TRITON_INTERPRET=1.
        Unsupported: for a language feature that is known from the text to be out of reach.
    """
    from . import torch_cuda, triton_install

    triton_install.prepare()
    torch_cuda.install()
    if "triton.experimental" in source:
        raise Unsupported("triton.experimental (Gluon)")
    if "cuda.tile" in source or "cuda-tile" in source:
        from .cutile import install as install_cutile

        install_cutile()


def force_config(index: int) -> None:
    """Let every autotuned kernel take its ``index``-th configuration (modulo how many it has); 0 is the default."""
    from . import triton_host

    triton_host.force_config(index)


def autotune_configs() -> dict[str, list[str]]:
    """Configurations, as text, of each autotuned kernel launched so far, after pruning."""
    from . import triton_host

    return triton_host.autotune_configs()


def config_count() -> int:
    """How many runs see every configuration: forcing 0 … n-1 covers all. 1 where nothing is autotuned."""
    from . import triton_host

    return triton_host.config_count()
