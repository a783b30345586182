"""Renders a page: its description becomes HTML by a Jinja2 template, or JSON. The text is produced in slices of the
event loop.

Jinja2 is imported, and a template compiled, for the first page that needs it, in an executor thread. Only
`jinja2.environment` and what it uses is imported: decision 22 says why.
"""

from __future__ import annotations

import asyncio
import json
import pkgutil
import sys
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from time import gmtime, strftime
from types import ModuleType
from typing import TYPE_CHECKING, Final

from moldau.broker.console.decoding.texts import escape_unprintable
from moldau.broker.console.page import Refusal, as_json, path_to
from moldau.broker.reasons.words import count_with_noun, duration_text
from moldau.broker.runtime.environment import Environment
from moldau.broker.runtime.progress import byte_size_text
from moldau.storage.files.port import Offload

if TYPE_CHECKING:
    from jinja2.environment import Environment as JinjaEnvironment
    from jinja2.environment import Template

SLICE_NS: Final = 1_000_000
"""The time (ns) for which a page is rendered before other tasks of the event loop run."""
LOOKS: Final = 16
"""The number of pieces of a page that are rendered between two readings of the clock."""
LOOK_SIZE: Final = 1 << 14
"""The number of rendered characters after which the clock is read, even if there were fewer than `LOOKS` pieces."""
PAGE_SIZE_MAX: Final = 1 << 23
"""The most characters of a page, in HTML or JSON."""
TIME_MS_MAX: Final = 253_402_300_799_999
"""The end of the year 9999, in ms since 1970."""


class Renderer:
    """Renders pages with the templates of the console. It renders one page at a time, so that the text of at most one
    page is in memory.
    """

    def __init__(self, environment: Environment, offload: Offload) -> None:
        self._environment = environment
        self._offload = offload
        self._turn = asyncio.Lock()
        self._templates: dict[str, Template] = {}
        self._jinja: JinjaEnvironment | None = None

    async def html(self, template: str, values: Mapping[str, object]) -> str:
        """Render a page as HTML. All texts in it are escaped. Raises `Refusal` if the page is too large."""
        found = self._templates.get(template)
        if found is None:
            found = await self._offload(partial(self._load, template))
            self._templates[template] = found
        return await self._joined(found.generate(values))

    async def json(self, value: object) -> str:
        """Render a page as JSON. Raises `Refusal` if the page is too large."""
        return await self._joined(json.JSONEncoder(default=as_json).iterencode(value)) + "\n"

    async def _joined(self, made: Iterable[str]) -> str:
        """Join the pieces of a page as they are rendered. Other tasks of the event loop run in between. Raises
        `Refusal` if the page is too large.
        """
        async with self._turn:
            pieces: list[str] = []
            size = unseen = 0
            clock_ns = self._environment.precise_ns
            began_ns = clock_ns()
            for count, piece in enumerate(made, 1):
                pieces.append(piece)
                size += len(piece)
                unseen += len(piece)
                if size > PAGE_SIZE_MAX:
                    raise Refusal(413, f"the page has more than {PAGE_SIZE_MAX:,} characters: ask for a part of it")
                if (count % LOOKS == 0 or unseen > LOOK_SIZE) and clock_ns() - began_ns > SLICE_NS:
                    await asyncio.sleep(0)
                    began_ns, unseen = clock_ns(), 0
            return "".join(pieces)

    def _load(self, template: str) -> Template:
        if self._jinja is None:
            self._jinja = _jinja()
        return self._jinja.get_template(template)


def file_of(name: str) -> bytes:
    """Read a file of this package."""
    found = pkgutil.get_data(__package__, name)
    assert found is not None, f"the console has no file {name}"
    return found


class PackageTemplates:
    """A Jinja2 loader for the templates in this package."""

    def load(
        self, environment: JinjaEnvironment, name: str, given: MutableMapping[str, object] | None = None
    ) -> Template:
        """Load a template. `given` are the globals that it may use."""
        code = environment.compile(file_of(f"templates/{name}").decode(), name, name)
        return environment.template_class.from_code(environment, code, given if given is not None else {})


def import_parts_of_jinja() -> None:
    """Import `jinja2.environment` without running `jinja2/__init__.py`, which would import loaders, bytecode caches,
    OpenSSL, pickle and compressors. Does nothing if the process has imported Jinja2 already.
    """
    if "jinja2" in sys.modules:
        return
    found = find_spec("jinja2")
    assert found is not None, "Jinja2 is a dependency"
    package = ModuleType("jinja2")
    package.__path__ = list(found.submodule_search_locations or ())
    sys.modules["jinja2"] = package
    try:
        import_module("jinja2.environment")
    finally:
        del sys.modules["jinja2"]


def _jinja() -> JinjaEnvironment:
    import_parts_of_jinja()
    environment = sys.modules["jinja2.environment"]
    runtime = sys.modules["jinja2.runtime"]
    made: JinjaEnvironment = environment.Environment(
        loader=PackageTemplates(),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=runtime.StrictUndefined,
        auto_reload=False,
        finalize=shown_text,
    )
    filters: dict[str, Callable[..., str]] = {
        "size": size_text,
        "count": count_text,
        "plural": count_with_noun,
        "duration": known_duration,
        "time": time_text,
        "rate": rate_text,
        "byte_rate": byte_rate_text,
    }
    made.filters.update(filters)
    made.globals.update(path_to=path_to)
    return made


# What templates call


def shown_text(value: object) -> object:
    """Prepare a value for a template: characters of a text that a browser acts on are escaped. Any other value is
    returned unchanged, such as HTML that a macro has made.
    """
    return escape_unprintable(value) if type(value) is str else value


def count_text(value: int | None) -> str:
    """Format a number with separators of thousands; a dash for None."""
    return "–" if value is None else f"{value:,}"


def rate_text(value: float | None) -> str:
    """Format a number of records per second; a dash for None."""
    if value is None:
        return "–"
    return f"{value:,.0f} records/s" if value >= 10 or not value else f"{value:.2g} records/s"


def byte_rate_text(value: float | None) -> str:
    """Format a number of bytes per second; a dash for None."""
    return "–" if value is None else f"{byte_size_text(round(value))}/s"


def size_text(value: int | None) -> str:
    """Format a number of bytes with a unit; a dash for None or a negative number."""
    return "–" if value is None or value < 0 else byte_size_text(value)


def time_text(ms: int) -> str:
    """Format a timestamp (ms) as date and time in UTC; a dash if it is negative."""
    if ms > TIME_MS_MAX:
        return f"{ms} ms"
    return f"{strftime('%Y-%m-%d %H:%M:%S', gmtime(ms // 1000))}.{ms % 1000:03}" if ms >= 0 else "–"


def known_duration(ms: int | None) -> str:
    """Format a duration (ms) in its two largest units; a dash for None."""
    return "–" if ms is None else duration_text(ms)
