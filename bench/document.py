"""What a run leaves behind: a JSON file of all values, and the table in docs/performance.md."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from bench.figures import Figure, table

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "bench" / "results"
DOCUMENT = ROOT / "docs" / "performance.md"
BEGIN = "<!-- figures of `make bench`: begin -->"
END = "<!-- figures of `make bench`: end -->"


def write_json(name: str, facts: dict[str, str], figures: Sequence[Figure]) -> Path:
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({**facts, "figures": [figure.as_json() for figure in figures]}, indent=1) + "\n")
    return path


def write_document(facts: dict[str, str], figures: Sequence[Figure], result: Path) -> None:
    """Put the table in the place of the one that is there; the rest of the page is written by hand."""
    text = DOCUMENT.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    said = (
        f"{facts['date']}, commit {facts['commit']}: {facts['cpu']}, {facts['memory']}, {facts['system']},"
        f" CPython {facts['python']}; {facts['rounds']} rounds. All values: `{result.relative_to(ROOT)}`."
    )
    notes = dict.fromkeys(f"- {figure.name}: {figure.note}." for figure in figures if figure.note)
    lines = [BEGIN, "", said, "", *table(figures), "", *notes, "", END]
    DOCUMENT.write_text(before + "\n".join(lines) + after)
