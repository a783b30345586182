"""What docs/performance.md says of the kept runs: the chart's rows first, then a table for each group."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from bench.figures import Figure, shown, spread
from bench.front import CHART, FRONT, chart
from bench.groups import GROUPS, Group
from bench.rows import ROWS, Row, Verdict
from bench.runs import KEPT, KEPT_LONG, ROOT, Measured, Run

DOCUMENT: Final = ROOT / "docs" / "performance.md"


def write_page() -> None:
    """Compute the page, and the chart that the README shows too, from the kept runs."""
    DOCUMENT.write_text(kept_page())
    CHART.write_text(chart(Run.read(KEPT)))


def kept_page() -> str:
    long_run = Run.read(KEPT_LONG) if KEPT_LONG.exists() else None
    return page(DOCUMENT.read_text(), Run.read(KEPT), long_run)


def page(text: str, run: Run, long_run: Run | None) -> str:
    """`text` with what follows from the runs in its three places; the rest of the page is written by hand."""
    text = _placed(
        text, "front", [told(run), "", f"![Moldau beside Apache Kafka]({CHART.name})", "", *front_table(run)]
    )
    text = _placed(text, "groups", [*left_out(run), *tables(run)])
    return _placed(text, "long", ["Not run yet."] if long_run is None else [told(long_run), "", *tables(long_run)])


def _placed(text: str, place: str, lines: Sequence[str]) -> str:
    begin, end = (f"<!-- {place}, from the kept run: {edge} -->" for edge in ("begin", "end"))
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    return pattern.sub(lambda _: "\n".join([begin, "", *lines, "", end]), text, count=1)


def told(run: Run) -> str:
    """One commit, one machine, and how its rows stand."""
    facts = run.facts
    return (
        f"Commit {facts['commit']}, measured on {facts['date']} ({facts['form']} form):"
        f" {facts['cpu']}, {facts['memory']}, {facts['system']}, CPython {facts['python']}, hot path"
        f" {facts['hot path']}, load generator in {facts['load generator']}. Of the rows with a bar or a target:"
        f" {standing(run)}."
    )


def standing(run: Run) -> str:
    """How many rows of the groups of this run stand how."""
    figures = run.figures
    verdicts = [row.verdict(figures[row.name]) for row in ROWS if row.name in figures]
    counts = {verdict.value.strip("*"): verdicts.count(verdict) for verdict in Verdict}
    counts["without a figure"] = len(rows_without_figure(run))
    return ", ".join(f"{count} {what}" for what, count in counts.items() if count) or "none"


def rows_without_figure(run: Run) -> dict[str, str]:
    """Why, by the name of the row: its group failed, or gave no figure of this name."""
    figures = run.figures
    return {
        row.name: _missing(run.groups[row.group]) for row in ROWS if row.group in run.groups if row.name not in figures
    }


def _missing(measured: Measured) -> str:
    return f"failed: {measured.failure}" if measured.failure else "no figure"


def front_table(run: Run) -> list[str]:
    """The rows for readers who decide, the lost ones among them."""
    figures = run.figures
    return [
        "| what | Moldau | Apache Kafka | ratio (spread) |",
        "|---|---|---|---|",
        *(
            f"| {label} | {_amount(figure.ours, figure)} | {_amount(figure.peer, figure)} | {spread(figure)} |"
            for name, label in FRONT.items()
            if (figure := figures.get(name)) is not None
        ),
    ]


def left_out(run: Run) -> list[str]:
    """The groups that this run did not measure, in one sentence; nothing for a whole run."""
    missing = [group.name for group in GROUPS if not group.is_long and group.name not in run.groups]
    return [f"This run left out the groups {', '.join(missing)}.", ""] if missing else []


def tables(run: Run) -> Iterator[str]:
    """A table for each group that has rows with a bar or a target, in the order of `bench.groups`."""
    for group in GROUPS:
        measured = run.groups.get(group.name)
        rows = [row for row in ROWS if row.group == group.name]
        if measured is not None and rows:
            yield from _table(group, rows, measured)


def _table(group: Group, rows: Sequence[Row], measured: Measured) -> Iterator[str]:
    figures = {figure.name: figure for figure in measured.figures}
    yield from (f"### `{group.name}`: {group.about}", "")
    yield "| what | unit | Moldau | Apache Kafka | ratio (spread) | bar | target | |"
    yield "|---|---|---|---|---|---|---|---|"
    for row in rows:
        limits = f"{row.limit(row.bar)} | {row.limit(row.target)}"
        figure = figures.get(row.name)
        if figure is None:
            yield f"| {row.name} |  | – | – | – | {limits} | {_missing(measured)} |"
            continue
        peer = "–" if figure.peer is None else shown(figure.peer)
        values = f"{figure.unit} | {shown(figure.ours)} | {peer} | {spread(figure)}"
        yield f"| {figure.name} | {values} | {limits} | {row.verdict(figure).value} |"
    shown_figures = [figures[row.name] for row in rows if row.name in figures]
    notes = dict.fromkeys(f"- {figure.name}: {figure.note}." for figure in shown_figures if figure.note)
    yield from ("", *notes, "") if notes else ("",)


def _amount(value: float | None, figure: Figure) -> str:
    return "–" if value is None else f"{shown(value)} {figure.unit}"
