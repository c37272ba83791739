"""Which model a user means, and making it: for proposals, forecasts and the chat alike. No request is made here."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilecast.sandbox.errors import UsageError
from tilecast.tools.model.client import OpenAIChatModel
from tilecast.tools.model.settings import model_settings

DEFAULT_MODEL = "gpt-5"
"""Asked when a key is set and no model is named."""


def default_model(base_url: str | None, environ: Mapping[str, str] = os.environ) -> str | None:
    """The model to ask when none is named: one of OpenAI's if its key is set, None if there is no key.

    Raises:
        UsageError: if a server of the user's own is configured, whose models only the user knows.
    """
    if base_url is not None:
        raise UsageError(
            f"OPENAI_BASE_URL is {base_url} but no model is named: "
            "give --model NAME (or TILECAST_MODEL), or --model builtin to work without one"
        )
    return DEFAULT_MODEL if environ.get("OPENAI_API_KEY", "").strip() else None


def open_model(
    name: str,
    table: Mapping[str, Mapping[str, Any]],
    base_url: str | None,
    home: Path | None,
    environ: Mapping[str, str] = os.environ,
) -> OpenAIChatModel:
    """A model by name.

    Args:
        name: as the server knows it.
        table: the configuration's ``models`` table.
        base_url: the configured server, if any.
        home: folder in which refused parameters are remembered.
        environ: where keys are read from.

    Raises:
        UsageError: for a bad setting or a missing key, naming it and the remedy.
    """
    settings = model_settings(name, table, base_url)
    return OpenAIChatModel(settings, settings.key(environ), home)
