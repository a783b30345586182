"""The table of clients and tools in `docs/conformance.md`: rows out, rows in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "conformance.md"
HEADING = "| client or tool | version | from | what was done | here | on Apache Kafka 4.3.1 |"
WORKS = "works"


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    version: str
    registry: str
    done: str
    here: str
    there: str
    """`works`, or the client's own words."""

    @property
    def is_equal(self) -> bool:
        return (self.here == WORKS) == (self.there == WORKS)

    def cells(self) -> str:
        shown = (self.name, self.version, self.registry, self.done, self.here, self.there)
        return "| " + " | ".join(" ".join(cell.replace("|", "/").split()) for cell in shown) + " |"


def rows_in(text: str) -> list[Row]:
    lines = text.splitlines()
    start = lines.index(HEADING) + 2
    rows = []
    for line in lines[start:]:
        if not line.startswith("| "):
            break
        rows.append(Row(*line.strip("| ").split(" | ")))
    return rows


def with_rows(text: str, rows: Iterable[Row]) -> str:
    """The page with these rows in the place of its own."""
    lines = text.splitlines()
    start = lines.index(HEADING) + 2
    end = start + len(rows_in(text))
    return "\n".join([*lines[:start], *(row.cells() for row in rows), *lines[end:], ""])
