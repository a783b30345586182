"""What runs leave behind: JSON files of all values, and what docs/performance.md says of the newest."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from bench.age import aged, origin
from bench.figures import Figure, shown, spread
from bench.picture import drawn
from bench.rows import ELSEWHERE, LONG_LIST, ROWS, Row, Verdict, by_name

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "bench" / "results"
DOCUMENT = ROOT / "docs" / "performance.md"
PICTURE = ROOT / "docs" / "performance.svg"
BEGIN = "<!-- figures of `make bench`: begin -->"
END = "<!-- figures of `make bench`: end -->"


def write_json(path: Path, facts: dict[str, str], figures: Sequence[Figure]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**facts, "figures": [figure.as_json() for figure in figures]}, indent=1) + "\n")


def read_json(path: Path) -> tuple[dict[str, str], list[Figure]]:
    facts = json.loads(path.read_text())
    figures = [Figure(**{name: each[name] for name in Figure._fields if name in each}) for each in facts.pop("figures")]
    return facts, figures


def kept_results() -> Path | None:
    """The newest results that are kept: the page follows from them."""
    return max(RESULTS.glob("2*.json"), default=None)


def merged(earlier: Sequence[Figure], later: Sequence[Figure]) -> list[Figure]:
    """What was measured again takes the place of what was measured before."""
    new = {figure.name: figure for figure in later}
    return [new.pop(figure.name, figure) for figure in earlier] + list(new.values())


def merge_files(paths: Sequence[Path], name: str) -> Path:
    """Later files win; the result is kept under this name."""
    facts: dict[str, str] = {}
    figures: list[Figure] = []
    for path in paths:
        facts, found = read_json(path)
        figures = merged(figures, found)
    target = RESULTS / f"{name}.json"
    write_json(target, facts, figures)
    return target


def write_page(result: Path) -> None:
    """Mark in the result which figures are old, and write the page from it."""
    facts, figures = read_json(result)
    figures = aged(figures, ROOT)
    write_json(result, facts, figures)
    DOCUMENT.write_text(page(DOCUMENT.read_text(), facts, figures, str(result.relative_to(ROOT))))
    PICTURE.write_text(drawn(figures))


def page(text: str, facts: dict[str, str], figures: Sequence[Figure], result: str) -> str:
    """`text` with the tables in the place of those that are there; the rest of the page is written by hand."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    runs = sorted({figure.made for figure in figures})
    machine = f"{facts['memory']}, {facts['system']}, CPython {facts['python']}"
    machine += "".join(f"; {name}: {facts[name]}" for name in ("hot path", "load generator") if name in facts)
    lines = [
        f"{machine}. Runs (date, commit, form, processor): {'; '.join(runs)}. All values: `{result}`.",
        "",
        f"{sum(each.is_old for each in figures)} of {len(figures)} figures are **old**: the modules that they measure"
        " (`bench/age.py`) have changed since their commit.",
        "",
        f"![Moldau beside Apache Kafka, row by row]({PICTURE.name})",
        "",
        f"### Bars and targets: {standing(figures)}",
        "",
        *held_table(figures),
        "",
        "### Whatever else was measured",
        "",
        *other_table(figures),
        "",
        *dict.fromkeys(f"- {each.name}: {each.note}." for each in figures if each.note and not _is_long_list(each)),
    ]
    return before + "\n".join([BEGIN, "", *lines, "", END]) + after


def standing(figures: Sequence[Figure]) -> str:
    """How many rows stand how."""
    found = by_name(figures)
    counts = dict.fromkeys(Verdict, 0)
    for row in ROWS:
        counts[row.verdict(found.get(row.name))] += 1
    return ", ".join(f"{count} {verdict.value.strip('*')}" for verdict, count in counts.items() if count)


def held_table(figures: Sequence[Figure]) -> list[str]:
    """A line for each row that has a bar or a target, measured or not."""
    found = by_name(figures)
    return [
        "| what | unit | Moldau | Apache Kafka | ratio (spread) | bar | target | client | | of |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *(_held(row, found.get(row.name)) for row in ROWS),
        *(f"| {each.name} | | | | | {each.bar} | | | {each.where} | |" for each in ELSEWHERE),
    ]


def _held(row: Row, figure: Figure | None) -> str:
    limits = f"{row.limit(row.bar)} | {row.limit(row.target)}"
    verdict = row.verdict(figure).value
    if figure is None:
        return f"| {row.name} | | | | | {limits} | | {verdict} | |"
    return f"| {row.name} | {_measured(figure)} | {limits} | {_client(figure)} | {verdict} | {origin(figure)} |"


def other_table(figures: Sequence[Figure]) -> list[str]:
    rows = {row.name for row in ROWS}
    return [
        "| what | unit | Moldau | Apache Kafka | ratio (spread) | client | of |",
        "|---|---|---|---|---|---|---|",
        *(
            f"| {each.name} | {_measured(each)} | {_client(each)} | {origin(each)} |"
            for each in figures
            if each.name not in rows and not _is_long_list(each)
        ),
    ]


def _is_long_list(figure: Figure) -> bool:
    return figure.name.startswith(f"{LONG_LIST} ")


def _measured(figure: Figure) -> str:
    peer = "–" if figure.peer is None else shown(figure.peer)
    return f"{figure.unit} | {shown(figure.ours)} | {peer} | {spread(figure)}"


def _client(figure: Figure) -> str:
    return "" if figure.generator is None else f"{100 * figure.generator:.0f} %"
