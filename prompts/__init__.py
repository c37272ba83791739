"""Messages to language models: one Markdown file each, rendered strictly (a name without a value is an error).

Text that comes from users' files goes through the ``fenced`` or ``inline`` filter, from which it cannot break out.
"""

from __future__ import annotations

import re
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment

INLINE_LIMIT = 300


def render(name: str, **values: object) -> str:
    """The message in ``prompts/<name>.md`` with its names filled in.

    Raises:
        jinja2.UndefinedError: if the file uses a name that is not given.
        FileNotFoundError: if there is no such file.
    """
    import jinja2
    from jinja2 import meta

    text = read(name)
    # Also the names in branches that this rendering does not take.
    missing = meta.find_undeclared_variables(_environment().parse(text)) - values.keys()
    if missing:
        raise jinja2.UndefinedError(f"prompts/{name}.md needs {', '.join(sorted(missing))}")
    return _environment().from_string(text).render(**values).strip() + "\n"


def read(name: str) -> str:
    """The text of ``prompts/<name>.md`` as it stands.

    Raises:
        FileNotFoundError: if there is no such file.
    """
    return files("tilecast.prompts").joinpath(f"{name}.md").read_text(encoding="utf-8")


@lru_cache(maxsize=1)
def languages() -> list[str]:
    """Languages that have a guide."""
    guides = files("tilecast.prompts").joinpath("guides")
    return sorted(item.name.removesuffix(".md") for item in guides.iterdir() if item.name.endswith(".md"))


def guide(language: str) -> str:
    """The expert's guide to a language.

    Raises:
        KeyError: if there is none, naming those there are.
    """
    if language not in languages():
        raise KeyError(f"no guide for language {language!r}: there are {', '.join(languages())}")
    return read(f"guides/{language}").strip()


@lru_cache(maxsize=16)
def items(name: str) -> tuple[str, ...]:
    """The entries of a list file, one ``- …`` a line."""
    return tuple(line[2:].strip() for line in read(name).splitlines() if line.startswith("- "))


def fenced(text: object, language: str = "") -> str:
    """Text in a code fence longer than any run of backticks in it, so that nothing in it can close the fence."""
    text = str(text)
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def inline(text: object, limit: int = INLINE_LIMIT) -> str:
    """Text on one line, without backticks, cut to ``limit`` characters: for names, reasons and compilers' messages."""
    line = " ".join(str(text).replace("`", "'").split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


@lru_cache(maxsize=1)
def _environment() -> Environment:
    import jinja2

    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
        keep_trailing_newline=True,
    )
    environment.filters.update(fenced=fenced, inline=inline)
    return environment
