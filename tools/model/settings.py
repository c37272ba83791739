"""What a user may configure about a model, and what its tokens cost."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Any
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field, ValidationError, field_validator

from tilecast.sandbox.errors import UsageError
from tilecast.sandbox.schema import Document
from tilecast.tools.model.faults import ROOM

OPENAI_HOST = "api.openai.com"
LOCAL_KEY = "local"
"""Sent to a server of the user's own when no key is set: the client insists on one."""
CHARACTERS_PER_TOKEN = 4
"""For reservations only; what is settled is what the provider reports."""
MESSAGE_TOKENS = 8
"""Allowance for a message's frame in an estimate."""
DEFAULT_OUTPUT_TOKENS = 16_384
"""Reserved for an answer when no limit is configured; nothing is sent for it."""


class Price(Document):
    """US dollars per million tokens. Cached input costs as much as other input unless given."""

    input: float = Field(ge=0)
    output: float = Field(ge=0)
    cached_input: float | None = Field(default=None, ge=0)

    def usd(self, input_tokens: int, output_tokens: int, cached_tokens: int = 0) -> float:
        """Cost of one request; ``cached_tokens`` are part of ``input_tokens``."""
        cached_price = self.input if self.cached_input is None else self.cached_input
        fresh = input_tokens - cached_tokens
        return (fresh * self.input + cached_tokens * cached_price + output_tokens * self.output) / 1e6


class ModelSettings(Document):
    """One model: where it is, how it is asked, what it costs. Nothing optional is sent unless it is set here."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str
    base_url: str | None = None
    key_env: str = "OPENAI_API_KEY"
    """Name of the environment variable that holds the key; the key itself is never configured or stored."""
    temperature: float | None = Field(default=None, ge=0)
    top_p: float | None = Field(default=None, gt=0, le=1)
    max_tokens: int | None = Field(default=None, gt=0)
    extra: dict[str, Any] = {}
    """Further request parameters, sent as they are (``reasoning_effort``, a server's own)."""
    price: Price | None = None
    timeout_s: float = Field(default=600.0, gt=0)
    """Longest silence while waiting for an answer."""
    retries: int = Field(default=6, ge=0, le=50)
    """Repetitions after rate limits, server errors and lost connections."""
    patience_s: float = Field(default=300.0, gt=0)
    """Longest total wait between repetitions."""
    in_flight: int | None = Field(default=None, ge=1, le=64)

    @field_validator("base_url")
    @classmethod
    def _is_url(cls, value: str | None) -> str | None:
        return None if value is None else checked_url(value)

    @property
    def host(self) -> str:
        """Host name of the server."""
        return OPENAI_HOST if self.base_url is None else (urlsplit(self.base_url).hostname or "")

    def key(self, environ: Mapping[str, str] = os.environ) -> str:
        """The key to send.

        Raises:
            UsageError: if the provider needs one and the variable is not set, naming it.
        """
        found = environ.get(self.key_env, "").strip()
        if found and not (found.isascii() and found.isprintable() and " " not in found):
            raise UsageError(
                f"the value of {self.key_env} is no key: it holds blanks or characters that no header can carry"
            )
        if found:
            return found
        if self.base_url is not None:
            return LOCAL_KEY
        raise UsageError(
            f"model {self.name!r} needs a key and {self.key_env} is not set: export {self.key_env}=..., "
            "or set OPENAI_BASE_URL to a server of your own, or use --model builtin, which needs neither"
        )

    @property
    def room(self) -> int | None:
        """The configured limit of an answer in tokens, under whichever name it is sent."""
        given = [self.max_tokens, *(self.extra.get(name) for name in ROOM)]
        return next((value for value in given if isinstance(value, int)), None)

    def price_known(self) -> Price | None:
        """The configured price, else the list price of this provider's model, else None."""
        return self.price or list_price(self.host, self.name)

    def parameters(self) -> dict[str, Any]:
        """The optional request parameters that are configured, by their API names."""
        named = {"temperature": self.temperature, "top_p": self.top_p, "max_tokens": self.max_tokens}
        return {**{key: value for key, value in named.items() if value is not None}, **self.extra}


def model_settings(name: str, table: Mapping[str, Mapping[str, Any]], base_url: str | None) -> ModelSettings:
    """Settings of a model from the configuration's ``models`` table; its own ``base_url`` wins over the general one.

    Raises:
        UsageError: for an unknown key or a bad value, naming them.
    """
    values = {"base_url": base_url, **table.get(name, {})}
    try:
        return ModelSettings.model_validate({**values, "name": name})
    except ValidationError as error:
        first = error.errors()[0]
        key = f'models."{name}".' + ".".join(map(str, first["loc"]))
        if first["type"] == "extra_forbidden":
            known = ", ".join(field for field in ModelSettings.model_fields if field != "name")
            raise UsageError(f"unknown key {key}: known are {known}; request parameters belong into `extra`") from None
        raise UsageError(f"{key} = {first['input']!r}: {first['msg']}") from None


def checked_url(value: str) -> str:
    """The same, if it can be a server's address.

    Raises:
        ValueError: saying how one looks.
    """
    if urlsplit(value).scheme not in ("http", "https") or not urlsplit(value).hostname:
        raise ValueError("must be a URL such as http://127.0.0.1:8000/v1")
    return value


@lru_cache(maxsize=1)
def price_table() -> dict[str, dict[str, Price]]:
    """List prices by host and model."""
    text = files("tilecast.tools.model").joinpath("prices.toml").read_text(encoding="utf-8")
    hosts = {host: models for host, models in tomllib.loads(text).items() if isinstance(models, dict)}
    return {host: {name: Price(**price) for name, price in models.items()} for host, models in hosts.items()}


def list_price(host: str, model: str) -> Price | None:
    """The list price of a provider's model, a dated snapshot counting as its model; None where it is not known."""
    prices = price_table().get(host, {})
    return prices.get(model) or prices.get(re.sub(r"-(\d{4}-\d{2}-\d{2}|\d{8})$", "", model))


def estimate_tokens(messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> int:
    """Input tokens of a request before it is sent, at four characters a token."""
    characters = sum(
        len(str(message.get("content") or "")) + len(str(message.get("tool_calls") or "")) for message in messages
    )
    return (characters + len(str(tools or ""))) // CHARACTERS_PER_TOKEN + MESSAGE_TOKENS * len(messages)
