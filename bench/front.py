"""The chart of the README and of docs/performance.md: twelve rows of the kept run, including those that Apache Kafka
wins. `python -m bench --front` measures only the groups of these rows."""

from __future__ import annotations

from math import log2
from typing import Final
from xml.sax.saxutils import escape

from bench.figures import Figure, number_text
from bench.rows import BULK_FETCH, ROWS
from bench.runs import ROOT, BenchRun

CHART: Final = ROOT / "docs" / "beside-kafka.svg"
FRONT_ROWS: Final = {
    "start: exec to first acknowledged produce, one topic": "start to the first acknowledged record",
    "memory: resident, idle, one topic": "memory of an idle broker",
    "produce 200 B, 4 connections x 5 in flight: rate": "small produces, 4 connections",
    "produce 200 B, 4 connections x 5 in flight: p99": "small produces, 99th percentile",
    "produce 16 KiB, acks=all, 4 x 5: rate": "produces of 16 KiB",
    "produce 256 KiB, 4 x 5: rate": "produces of 256 KiB",
    f"{BULK_FETCH}: rate": "bulk reads of 1 MiB, 4 connections",
    "librdkafka consume 1 KiB: rate": "librdkafka reads records of 1 KiB",
    "three nodes, produce 200 B, 6 partitions x 5 in flight: rate": "three nodes, small produces",
    "transactions of 100 records, 3 partitions, ten producers: p99 of a commit": "ten transactional producers, "
    "99th percentile of a commit",
    "heartbeats of 10,000 members of 1,000 consumer groups: CPU": "CPU of 10,000 members' heartbeats",
    "spark: 1 KiB values, lz4: full scan, against the JVM connector": "Spark reads a topic, beside the JVM connector",
}
"""The label of each row of the chart, by the name of its figure in `bench.rows`."""
GROUPS_MEASURED: Final = tuple(dict.fromkeys(row.group for row in ROWS if row.name in FRONT_ROWS))

WIDTH: Final = 560
MARGIN: Final = 10
HEAD_HEIGHT: Final = 58
ROW_HEIGHT: Final = 46
FOOT_HEIGHT: Final = 26
FACTOR_MAX: Final = 16.0
"""The upper end of the logarithmic scale. The lower end is a quarter."""
STYLE: Final = """\
text { font: 14px system-ui, sans-serif; fill: #1f2328 } .faint { fill: #59636e; font-size: 12px }
.head { font-weight: 600; font-size: 15px } .even { stroke: #59636e }
.ahead { fill: #1a7f4b } .behind { fill: #c4432b }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .faint { fill: #9198a1 } .even { stroke: #9198a1 }
.ahead { fill: #3fb950 } .behind { fill: #f0714f }
}
"""


def chart_svg(run: BenchRun) -> str:
    """Return the chart as SVG, with the rows that the run measured beside Apache Kafka."""
    figures = run.figures
    rows = [(figures[name], label) for name, label in FRONT_ROWS.items() if name in figures and figures[name].ratio]
    made = f"{run.facts['date']}, commit {run.facts['commit']}, {run.facts['cpu']}"
    height = HEAD_HEIGHT + ROW_HEIGHT * len(rows) + FOOT_HEIGHT
    even = _x(1.0)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        "<title>Moldau beside Apache Kafka 4.3.1 in one run</title>",
        f"<style>{STYLE}</style>",
        f'<text class="head" x="{MARGIN}" y="22">Moldau beside Apache Kafka 4.3.1, both in one run</text>',
        f'<text class="faint" x="{even + 6:.1f}" y="44">Moldau is ahead →</text>',
        f'<text class="faint" x="{even - 6:.1f}" y="44" text-anchor="end">← behind</text>',
        f'<text class="faint" x="{WIDTH - MARGIN}" y="44" text-anchor="end">Moldau and Apache Kafka</text>',
    ]
    for index, (figure, label) in enumerate(rows):
        lines += _row(figure, label, HEAD_HEIGHT + ROW_HEIGHT * index)
    lines += [f'<text class="faint" x="{MARGIN}" y="{height - 8}">{escape(made)}</text>', "</svg>", ""]
    return "\n".join(lines)


def _row(figure: Figure, label: str, y: int) -> list[str]:
    assert figure.ratio and figure.peer is not None, "a row of the chart was measured beside Apache Kafka"
    factor = 1 / figure.ratio if figure.less_is_better else figure.ratio
    left, right = sorted((_x(1.0), _x(factor)))
    name = "ahead" if factor >= 1 else "behind"
    both = f"{number_text(figure.ours)} and {number_text(figure.peer)} {figure.unit}"
    return [
        f'<text x="{MARGIN}" y="{y + 14}">{escape(label)}</text>',
        f'<text class="faint" x="{WIDTH - MARGIN}" y="{y + 14}" text-anchor="end">{escape(both)}</text>',
        f'<path class="even" d="M{_x(1.0):.1f} {y + 17}v20"/>',
        f'<rect class="{name}" x="{left:.1f}" y="{y + 20}" width="{right - left:.1f}" height="14" rx="2"/>',
        f'<text class="faint" x="{right + 6:.1f}" y="{y + 32}">{factor:.2g}×</text>',
    ]


def _x(factor: float) -> float:
    """Return the x coordinate (pixels) of a factor on the scale."""
    least = 1 / 4
    share = log2(min(max(factor, least), FACTOR_MAX) / least) / log2(FACTOR_MAX / least)
    return MARGIN + share * (WIDTH - 2 * MARGIN - 40)
