"""The picture of docs/performance.md: how much better than Apache Kafka, or than its bar, row by row."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, log2
from typing import Final, NamedTuple
from xml.sax.saxutils import escape

from bench.figures import OURS, Figure
from bench.rows import ROWS, Row, Verdict, by_name

WIDTH: Final = 1000
LABEL_WIDTH: Final = 480
VALUE_WIDTH: Final = 60
ROW_HEIGHT: Final = 22
LEGEND_HEIGHT: Final = 34
HEAD_HEIGHT: Final = 44
FACTORS: Final = (0.5, 1.0, 2.0, 4.0)
"""Where the scale has lines; it is logarithmic, so that half and twice lie equally far from one."""
LEAST: Final = 0.4
MOST: Final = 6.0

STYLE: Final = """\
text { font: 12px system-ui, sans-serif; fill: #1f2328 } .faint { fill: #656d76 }
.head { font-weight: 600; font-size: 14px } .line { stroke: #d0d7de } .one { stroke: #656d76 }
.holds { fill: #2f81d0 } .reached { fill: #1a7f4b } .missed { fill: #c4432b } .barless { fill: #8d96a0 }
.bar { stroke: #1f2328; stroke-width: 2 } .target { fill: none; stroke: #1f2328; stroke-width: 1.5 }
.spread { stroke: #1f2328; stroke-opacity: 0.55 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .faint { fill: #8d96a0 } .line { stroke: #30363d } .one { stroke: #8d96a0 }
.holds { fill: #4493f8 } .reached { fill: #3fb950 } .missed { fill: #f0714f } .barless { fill: #6e7681 }
.bar, .target, .spread { stroke: #e6edf3 }
}
"""
CLASSES: Final = {
    Verdict.MISSED: "missed",
    Verdict.TARGET_MISSED: "barless",
    Verdict.HOLDS: "holds",
    Verdict.TARGET_REACHED: "reached",
}
LEGEND: Final = (
    ("missed", "bar missed", 92),
    ("holds", "bar holds", 84),
    ("reached", "target reached", 116),
    ("barless", "no bar", 66),
)


class Line(NamedTuple):
    """A row as drawn: all factors so that more is better, and one is where both are even."""

    name: str
    verdict: Verdict
    factor: float
    least: float
    most: float
    bar: float | None
    target: float | None


def drawn(figures: Sequence[Figure]) -> str:
    """An SVG of every row that was measured: first those held against Apache Kafka, then those held against a bar."""
    found = by_name(figures)
    measured = [(row, found[row.name]) for row in ROWS if row.name in found]
    beside_peer = [_beside_peer(row, figure) for row, figure in measured if row.is_ratio and figure.ratios]
    by_itself = [_by_itself(row, figure) for row, figure in measured if not row.is_ratio and figure.ours]
    parts: list[str] = []
    y = LEGEND_HEIGHT
    for title, lines in (
        ("Times better than Apache Kafka in the same run", beside_peer),
        ("Times better than the bar", by_itself),
    ):
        if lines:
            parts += _section(title, lines, y)
            y += HEAD_HEIGHT + ROW_HEIGHT * len(lines)
    height = y + 10
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
            "<title>Moldau beside Apache Kafka: how many times better, row by row</title>",
            f"<style>{STYLE}</style>",
            *_legend(),
            *parts,
            "</svg>",
            "",
        ]
    )


def _beside_peer(row: Row, figure: Figure) -> Line:
    assert figure.ratio is not None
    factors = [_better(row, ratio) for ratio in figure.ratios]
    bar, target = (None if limit is None else _better(row, limit) for limit in (row.bar, row.target))
    return Line(row.name, row.verdict(figure), _better(row, figure.ratio), min(factors), max(factors), bar, target)


def _by_itself(row: Row, figure: Figure) -> Line:
    assert row.bar is not None
    factors = [_beside_bar(row, value) for value in figure.values[OURS] if value]
    target = None if row.target is None else _beside_bar(row, row.target)
    typical = _beside_bar(row, figure.ours)
    return Line(row.name, row.verdict(figure), typical, min(factors), max(factors), 1.0, target)


def _beside_bar(row: Row, value: float) -> float:
    assert row.bar is not None
    return row.bar / value if row.less_is_better else value / row.bar


def _better(row: Row, ratio: float) -> float:
    """Half of Apache Kafka's latency is twice as good."""
    if not row.less_is_better:
        return ratio
    return 1 / ratio if ratio else inf


def _legend() -> list[str]:
    parts = []
    x = 8
    for name, words, width in LEGEND:
        parts.append(f'<rect class="{name}" x="{x}" y="9" width="10" height="10" rx="2"/>')
        parts.append(f'<text x="{x + 15}" y="18">{words}</text>')
        x += width
    parts.append(f'<path class="bar" d="M{x + 4} 7v14"/><text x="{x + 12}" y="18">bar</text>')
    parts.append(f'<path class="target" d="{_diamond(x + 50, 14)}"/><text x="{x + 60}" y="18">target</text>')
    parts.append(f'<path class="spread" d="M{x + 108} 14h18"/><text x="{x + 132}" y="18">spread of the rounds</text>')
    return parts


def _section(title: str, lines: Sequence[Line], y: int) -> list[str]:
    bottom = y + HEAD_HEIGHT + ROW_HEIGHT * len(lines)
    parts = [f'<text class="head" x="8" y="{y + 22}">{title}</text>']
    for factor in FACTORS:
        x = _x(factor)
        name = "one" if factor == 1 else "line"
        parts.append(f'<path class="{name}" d="M{x:.1f} {y + HEAD_HEIGHT - 14}V{bottom}"/>')
        parts.append(f'<text class="faint" x="{x:.1f}" y="{y + 24}" text-anchor="middle">{factor:g}×</text>')
    for index, line in enumerate(lines):
        parts += _line(line, y + HEAD_HEIGHT + ROW_HEIGHT * index)
    return parts


def _line(line: Line, y: int) -> list[str]:
    middle = y + ROW_HEIGHT // 2
    one, at = _x(1.0), _x(line.factor)
    left, width = min(one, at), max(abs(at - one), 1.0)
    parts = [
        f'<text x="8" y="{middle + 4}">{escape(line.name)}</text>',
        f'<rect class="{CLASSES[line.verdict]}" x="{left:.1f}" y="{y + 4}" width="{width:.1f}" height="14" rx="2"/>',
        f'<path class="spread" d="M{_x(line.least):.1f} {middle}H{_x(line.most):.1f}"/>',
        f'<text x="{WIDTH - 8}" y="{middle + 4}" text-anchor="end">{line.factor:.2f}×</text>',
    ]
    if line.bar is not None:
        parts.append(f'<path class="bar" d="M{_x(line.bar):.1f} {y + 2}v18"/>')
    if line.target is not None:
        parts.append(f'<path class="target" d="{_diamond(_x(line.target), middle)}"/>')
    return parts


def _x(factor: float) -> float:
    share = (log2(min(max(factor, LEAST), MOST)) - log2(LEAST)) / (log2(MOST) - log2(LEAST))
    return LABEL_WIDTH + share * (WIDTH - LABEL_WIDTH - VALUE_WIDTH)


def _diamond(x: float, y: float) -> str:
    return f"M{x:.1f} {y - 5:.1f}l5 5l-5 5l-5 -5z"
