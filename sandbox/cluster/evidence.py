"""Compile-time evidence on the CPU slots of a cluster, beside the evaluators: jobs run in a confined worker on some node."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from tilecast.sandbox.cluster.connection import Connection
from tilecast.sandbox.errors import EnvironmentFailure, TilecastError
from tilecast.sandbox.evidence_runner import EvidenceRunner, ServerRunner

PLACE_S = 30.0
"""How long a CPU slot is waited for; after that the job runs on this machine."""
GRACE_S = 150.0


class EvidenceServer:
    """An actor on one CPU: a warm fork server for evidence jobs."""

    def __init__(self, require_sandbox: bool) -> None:
        self._runner = ServerRunner(require_sandbox=require_sandbox)

    def ready(self) -> bool:
        """Answers once it has its place."""
        return True

    def run(self, args: str) -> str:
        """One job, JSON in and out; ``{"environment": why}`` where jobs cannot be run there."""
        try:
            return json.dumps(self._runner.run(json.loads(args)))
        except TilecastError as error:
            return json.dumps({"environment": str(error)})


class ClusterRunner:
    """Runs evidence jobs, one at a time, on a CPU slot of the cluster; on this machine where the cluster has none free."""

    def __init__(self, connection: Connection, require_sandbox: bool) -> None:
        self._connection, self._require_sandbox = connection, require_sandbox
        self._actor: Any = None
        self._local: EvidenceRunner | None = None

    def run(self, args: dict[str, Any]) -> dict[str, Any]:
        """See :class:`EvidenceRunner`; a server that is lost is started again, once.

        Raises:
            EnvironmentFailure: if jobs cannot be run.
        """
        for _ in range(2):
            place = self._placed()
            if place is None:
                assert self._local is not None
                return self._local.run(args)
            limit_s = float(args.get("timeout_s") or 60.0) + GRACE_S
            try:
                answer: dict[str, Any] = json.loads(
                    self._connection.ray.get(place.run.remote(json.dumps(args)), timeout=limit_s)
                )
            except self._connection.ray.exceptions.RayError:
                self._drop()
                continue
            if "environment" in answer:
                raise EnvironmentFailure(str(answer["environment"]))
            return answer
        raise EnvironmentFailure("no evidence: its servers on the cluster were lost twice")

    def _placed(self) -> Any:
        """The actor; None if no slot was free and jobs run here."""
        if self._actor is None and self._local is None:
            actor = self._connection.ray.remote(EvidenceServer).options(num_cpus=1, max_restarts=0)
            self._actor = actor.remote(self._require_sandbox)
            if not self._connection.ray.wait([self._actor.ready.remote()], timeout=PLACE_S)[0]:
                self._drop()
                self._local = ServerRunner(require_sandbox=self._require_sandbox)
        return self._actor

    def _drop(self) -> None:
        with suppress(Exception):
            if self._connection.ray.is_initialized():
                self._connection.ray.kill(self._actor, no_restart=True)
        self._actor = None

    def close(self) -> None:
        """Give the slot back."""
        if self._actor is not None:
            self._drop()
        if self._local is not None:
            self._local.close()
