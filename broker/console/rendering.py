"""Makes the text of a page: a description becomes HTML by a template of Jinja2, or JSON, in slices.

Jinja2 is imported, and a template compiled, at the first page that needs it, in an executor thread. Of Jinja2 only
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

from moldau.broker.console.decoding.texts import printable
from moldau.broker.console.page import Refusal, as_json, path_to
from moldau.broker.reasons.words import duration_text, plural
from moldau.broker.runtime.environment import Environment
from moldau.broker.runtime.progress import size
from moldau.broker.runtime.worker import Offload

if TYPE_CHECKING:
    from jinja2.environment import Environment as JinjaEnvironment
    from jinja2.environment import Template

SLICE_NS: Final = 1_000_000
"""The time (ns) for which a page is made before other work of the event loop has its turn."""
LOOKS: Final = 16
"""The pieces of a page that are made between two readings of the clock."""
LOOK_SIZE: Final = 1 << 14
"""The characters of a page after which the clock is read, even after fewer than `LOOKS` pieces."""
PAGE_SIZE_MAX: Final = 1 << 23
"""The most characters of a page, as HTML or as JSON."""
TIME_MS_MAX: Final = 253_402_300_799_999
"""The end of the year 9999."""


class Renderer:
    """Makes pages by the templates of the console. It makes one page at a time, so that the pieces of no more than one
    are held.
    """

    def __init__(self, environment: Environment, offload: Offload) -> None:
        self._environment = environment
        self._offload = offload
        self._turn = asyncio.Lock()
        self._templates: dict[str, Template] = {}
        self._jinja: JinjaEnvironment | None = None

    async def html(self, template: str, values: Mapping[str, object]) -> str:
        """A page as HTML. All texts in it are escaped. Raises `Refusal` if it is larger than a page may be."""
        found = self._templates.get(template)
        if found is None:
            found = await self._offload(partial(self._load, template))
            self._templates[template] = found
        return await self._joined(found.generate(values))

    async def json(self, value: object) -> str:
        """A page as JSON. Raises `Refusal` if it is larger than a page may be."""
        return await self._joined(json.JSONEncoder(default=as_json).iterencode(value)) + "\n"

    async def _joined(self, made: Iterable[str]) -> str:
        """Join the pieces of a page. They are made in slices of the event loop. Raises `Refusal` if the page is too
        large.
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
    """The content of a file of this package, as it is installed."""
    found = pkgutil.get_data(__package__, name)
    assert found is not None, f"the console has no file {name}"
    return found


class PackageTemplates:
    """Loads the templates of this package, as a loader of Jinja2 does."""

    def load(
        self, environment: JinjaEnvironment, name: str, given: MutableMapping[str, object] | None = None
    ) -> Template:
        """Load a template. It may use the globals of the environment besides its own."""
        code = environment.compile(file_of(f"templates/{name}").decode(), name, name)
        return environment.template_class.from_code(environment, code, given if given is not None else {})


def import_parts_of_jinja() -> None:
    """Import `jinja2.environment` without running `jinja2/__init__.py`, which imports loaders and caches for bytecode,
    and with them OpenSSL, pickle and the compressors. Nothing is done if the process has imported Jinja2 already.
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
        "plural": plural,
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
    """A value as a template shows it: a text without characters that a browser acts on. Anything else is returned as it
    is, such as HTML that a macro has made of such texts.
    """
    return printable(value) if type(value) is str else value


def count_text(value: int | None) -> str:
    """A number with separators of thousands; a dash for an unknown one."""
    return "–" if value is None else f"{value:,}"


def rate_text(value: float | None) -> str:
    """A number of records a second with its unit; a dash for an unknown one."""
    if value is None:
        return "–"
    return f"{value:,.0f} records/s" if value >= 10 or not value else f"{value:.2g} records/s"


def byte_rate_text(value: float | None) -> str:
    """A number of bytes a second with its unit; a dash for an unknown one."""
    return "–" if value is None else f"{size(round(value))}/s"


def size_text(value: int | None) -> str:
    """A number of bytes with its unit; a dash for an unknown one."""
    return "–" if value is None or value < 0 else size(value)


def time_text(ms: int) -> str:
    """A timestamp (ms) as date and time in UTC; a dash if there is none."""
    if ms > TIME_MS_MAX:
        return f"{ms} ms"
    return f"{strftime('%Y-%m-%d %H:%M:%S', gmtime(ms // 1000))}.{ms % 1000:03}" if ms >= 0 else "–"


def known_duration(ms: int | None) -> str:
    """A time (ms) in its two largest units; a dash for an unknown one."""
    return "–" if ms is None else duration_text(ms)
