"""What a user may say of a Ray cluster: the table ``[ray]`` of the configuration."""

from __future__ import annotations

from pydantic import ConfigDict, Field, field_validator

from tilecast.sandbox.schema import Document

GPU, CPU, REPLAY = "gpu", "cpu", "replay:"


class ClusterOptions(Document):
    """How evaluators of a cluster are placed and watched."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    evaluators: str = GPU
    """``gpu``: one on each GPU. ``cpu``: on CPUs. ``replay:DIR``: recorded measurements, in a folder that every node sees."""
    workers: int | None = Field(default=None, ge=1, le=4096)
    """Most evaluators at once; a cluster that scales itself is asked for so many. None takes what the nodes have."""
    per_node: int = Field(default=1, ge=1, le=256)
    """Evaluators on each node where they need no GPU."""
    lost_after_s: float = Field(default=30.0, ge=1)
    """An evaluator that gives no sign of life for so long is taken for lost."""
    item_limit_s: float = Field(default=1800.0, gt=0)
    """Longest time of one step of an evaluation, far beyond the limits that the candidate itself has."""
    join_s: float = Field(default=600.0, gt=0)
    """How long the run waits for the first evaluator, or for another one when all are lost."""
    dashboard: bool = False
    """Start Ray's dashboard with a cluster that is started for the run; a cluster that was there shows its own."""
    replay_pace: float = Field(default=0.0, ge=0)
    """Recorded evaluations take this share of the time that they took when they were recorded."""
    target: str | None = None
    """GPU model that times are taken on, where the cluster has several."""

    @field_validator("evaluators")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in (GPU, CPU) and not value.startswith(REPLAY):
            raise ValueError("must be gpu, cpu or replay:DIR")
        return value

    @property
    def resource(self) -> str:
        """Ray's name of what an evaluator takes."""
        return "GPU" if self.evaluators == GPU else "CPU"

    @property
    def replay_folder(self) -> str | None:
        """The folder of recorded measurements, where evaluators replay."""
        return self.evaluators.removeprefix(REPLAY) if self.evaluators.startswith(REPLAY) else None
