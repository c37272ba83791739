"""Arguments of every tool; the docstrings and descriptions are what a model reads."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

CandidatePath = Annotated[str, Field(description="Path of a candidate file, relative to the working folder.")]
Config = Annotated[
    dict[str, int | float | str | bool],
    Field(description="Values of the candidate's CONFIG to use instead of those in the file."),
]


class Arguments(BaseModel):
    """Strict: names that are not known are refused, so that a misspelt one is noticed."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class LoadProblem(Arguments):
    """Load a problem: everything else is about the loaded one."""

    path: str = Field(description="A problem file, or a folder with reference.py.")


class ListFiles(Arguments):
    """List the files of the working folder."""

    folder: str = Field(default=".", description="A folder, relative to the working folder.")


class ReadFile(Arguments):
    """Read a text file of the working folder or of the problem."""

    path: str
    first_line: int = Field(default=1, ge=1)
    lines: int = Field(default=400, ge=1, le=2000)


class WriteFile(Arguments):
    """Write a whole candidate file (a Python file with `class ModelNew`). The reference cannot be written."""

    path: CandidatePath
    text: str


class EditFile(Arguments):
    """Replace one passage of a candidate file. `old` must occur exactly once."""

    path: CandidatePath
    old: str = Field(min_length=1)
    new: str


class Forecast(Arguments):
    """Predict time and speedup of a candidate without running it. A forecast is never a measurement."""

    path: CandidatePath
    config: Config = {}


class Verify(Arguments):
    """Check a candidate for correctness and integrity in the sandbox, without timing it."""

    path: CandidatePath
    config: Config = {}


class Bench(Arguments):
    """Verify a candidate and measure it against the baseline, with an interval."""

    path: CandidatePath
    config: Config = {}
    workload: str = Field(default="full", description="The workload to time.")


class Profile(Arguments):
    """Measure a candidate and say what limits it."""

    path: CandidatePath
    config: Config = {}


class Tune(Arguments):
    """Find the best CONFIG of one candidate: the forecaster ranks its SPACE, the budget measures the promising part."""

    path: CandidatePath
    max_evals: int = Field(default=10, ge=1, le=200, description="Configurations that may be measured.")
    save_to: str | None = Field(default=None, description="Write the tuned candidate to this file.")


class Optimize(Arguments):
    """Run the whole search loop on the loaded problem within a budget, and return its best candidate."""

    max_evals: int = Field(default=10, ge=1, le=1000, description="Candidates that may be measured.")
    kernel: str | None = Field(default=None, description="Kernel to start from; default: the problem's kernel.py.")
    proposals: Literal["model", "builtin"] | None = Field(
        default=None, description="Who proposes: the language model, or a program that rewrites CONFIG."
    )
    save_to: str | None = Field(default=None, description="Write the best candidate to this file.")


class Show(Arguments):
    """Show a run of the record, or one candidate of it: why it was kept or dropped."""

    run: str = Field(default="last", description="A run's id, the start of it, or `last`.")
    candidate: str | None = Field(default=None, description="A candidate's number, `best`, or the start of its hash.")


class Why(Arguments):
    """Everything that this session found out about a candidate: results, reasons, intervals."""

    path: str | None = Field(default=None, description="A candidate; all of them without it.")


class Device(Arguments):
    """Facts of the device that candidates are judged on, and of the problem's workloads."""
