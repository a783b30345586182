"""Computes docs/performance.md from the published runs: first the rows of the chart, then a table for each group."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from bench.figures import Figure, number_text, ratio_spread_text
from bench.front import CHART, FRONT_ROWS, chart_svg
from bench.groups import GROUPS, MeasurementGroup
from bench.rows import ROWS, Row, Verdict
from bench.runs import KEPT, KEPT_LONG, ROOT, BenchRun, GroupResult

DOCUMENT: Final = ROOT / "docs" / "performance.md"


def write_page() -> None:
    """Write the page, and the chart that the README shows too, from the published runs."""
    DOCUMENT.write_text(kept_page())
    CHART.write_text(chart_svg(BenchRun.read(KEPT)))


def kept_page() -> str:
    long_run = BenchRun.read(KEPT_LONG) if KEPT_LONG.exists() else None
    return updated_page(DOCUMENT.read_text(), BenchRun.read(KEPT), long_run)


def updated_page(text: str, run: BenchRun, long_run: BenchRun | None) -> str:
    """Replace the three computed parts of the page `text` by those of the runs. The rest of the page is written by
    hand.
    """
    text = _placed(
        text, "front", [run_summary(run), "", f"![Moldau beside Apache Kafka]({CHART.name})", "", *front_table(run)]
    )
    text = _placed(text, "groups", [*unmeasured_groups(run), *group_tables(run)])
    return _placed(
        text, "long", ["Not run yet."] if long_run is None else [run_summary(long_run), "", *group_tables(long_run)]
    )


def _placed(text: str, place: str, lines: Sequence[str]) -> str:
    begin, end = (f"<!-- {place}, from the kept run: {edge} -->" for edge in ("begin", "end"))
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    return pattern.sub(lambda _: "\n".join([begin, "", *lines, "", end]), text, count=1)


def run_summary(run: BenchRun) -> str:
    """Describe a run: its commit, its machine, and how many of its rows hold."""
    facts = run.facts
    return (
        f"Commit {facts['commit']}, measured on {facts['date']} ({facts['form']} form):"
        f" {facts['cpu']}, {facts['memory']}, {facts['system']}, CPython {facts['python']}, hot path"
        f" {facts['hot path']}, load generator in {facts['load generator']}. Of the rows with a bar or a target:"
        f" {verdict_counts(run)}."
    )


def verdict_counts(run: BenchRun) -> str:
    """Count the rows of the measured groups by verdict."""
    figures = run.figures
    verdicts = [row.verdict(figures[row.name]) for row in ROWS if row.name in figures]
    counts = {verdict.value.strip("*"): verdicts.count(verdict) for verdict in Verdict}
    counts["without a figure"] = len(rows_without_figure(run))
    return ", ".join(f"{count} {what}" for what, count in counts.items() if count) or "none"


def rows_without_figure(run: BenchRun) -> dict[str, str]:
    """The reason why each row has no figure, by the name of the row: its group failed, or returned no figure of this
    name.
    """
    figures = run.figures
    return {
        row.name: _missing(run.groups[row.group]) for row in ROWS if row.group in run.groups if row.name not in figures
    }


def _missing(measured: GroupResult) -> str:
    return f"failed: {measured.failure}" if measured.failure else "no figure"


def front_table(run: BenchRun) -> list[str]:
    """The table of the chart's rows, also of those that this broker loses."""
    figures = run.figures
    return [
        "| what | Moldau | Apache Kafka | ratio (spread) |",
        "|---|---|---|---|",
        *(
            f"| {label} | {_amount(figure.ours, figure)} | {_amount(figure.peer, figure)}"
            f" | {ratio_spread_text(figure)} |"
            for name, label in FRONT_ROWS.items()
            if (figure := figures.get(name)) is not None
        ),
    ]


def unmeasured_groups(run: BenchRun) -> list[str]:
    """One sentence on the groups that the run did not measure; empty for a complete run."""
    missing = [group.name for group in GROUPS if not group.is_long and group.name not in run.groups]
    return [f"This run left out the groups {', '.join(missing)}.", ""] if missing else []


def group_tables(run: BenchRun) -> Iterator[str]:
    """A table for each group that has rows with a bar or a target, in the order of `bench.groups`."""
    for group in GROUPS:
        measured = run.groups.get(group.name)
        rows = [row for row in ROWS if row.group == group.name]
        if measured is not None and rows:
            yield from _table(group, rows, measured)


def _table(group: MeasurementGroup, rows: Sequence[Row], measured: GroupResult) -> Iterator[str]:
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
        peer = "–" if figure.peer is None else number_text(figure.peer)
        values = f"{figure.unit} | {number_text(figure.ours)} | {peer} | {ratio_spread_text(figure)}"
        yield f"| {figure.name} | {values} | {limits} | {row.verdict(figure).value} |"
    shown_figures = [figures[row.name] for row in rows if row.name in figures]
    notes = dict.fromkeys(f"- {figure.name}: {figure.note}." for figure in shown_figures if figure.note)
    yield from ("", *notes, "") if notes else ("",)


def _amount(value: float | None, figure: Figure) -> str:
    return "–" if value is None else f"{number_text(value)} {figure.unit}"
