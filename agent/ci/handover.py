"""The document handed from a run without rights to one that may comment: a file, read back as data and nothing else."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from pydantic import ValidationError

from tilecast.agent.ci.schema import CiReport
from tilecast.sandbox.errors import UsageError

FILE = "tilecast-ci.json"
MOST_BYTES = 1_000_000


def hand_over(report: CiReport, folder: Path) -> Path:
    """Write the document into a folder that a workflow uploads."""
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f".{FILE}.{os.getpid()}"
    partial.write_text(report.model_dump_json(indent=1), encoding="utf-8")
    return partial.replace(folder / FILE)


def taken_over(path: Path) -> CiReport:
    """Read a document that a stranger may have written: a regular file of bounded size with exactly the known fields.

    Raises:
        UsageError: naming what is wrong with it, without quoting it.
    """
    file = path / FILE if path.is_dir() else path
    try:
        about = file.lstat()
        if not stat.S_ISREG(about.st_mode):
            raise UsageError(f"{file}: not a regular file")
        if about.st_size > MOST_BYTES:
            raise UsageError(f"{file}: {about.st_size} bytes, more than {MOST_BYTES}")
        return CiReport.model_validate_json(file.read_bytes())
    except OSError as error:
        raise UsageError(f"{file}: cannot be read: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])[:80]
        raise UsageError(f"{file}: not a report of this version: {place!a}: {first['type']}") from None
