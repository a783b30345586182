"""The picture of docs/performance.md: how many times better than Apache Kafka, row by row, with bar and target."""

from __future__ import annotations

from collections.abc import Sequence
from math import log2
from typing import Final
from xml.sax.saxutils import escape

from bench.figures import Figure
from bench.rows import ROWS, Row, Verdict, by_name

WIDTH: Final = 960
LABEL_WIDTH: Final = 430
VALUE_WIDTH: Final = 60
ROW_HEIGHT: Final = 22
HEAD_HEIGHT: Final = 64
FACTORS: Final = (0.5, 1.0, 2.0, 4.0)
"""Where the scale has lines; it is logarithmic, so that half and twice lie equally far from one."""
LEAST: Final = 0.4
MOST: Final = 5.0

STYLE: Final = """\
text { font: 12px system-ui, sans-serif; fill: #1f2328 } .faint { fill: #656d76 }
.head { font-weight: 600; font-size: 14px } .line { stroke: #d0d7de } .one { stroke: #656d76 }
.holds { fill: #2f81d0 } .reached { fill: #1a7f4b } .missed { fill: #c4432b }
.bar { stroke: #1f2328; stroke-width: 2 } .target { fill: none; stroke: #1f2328; stroke-width: 1.5 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .faint { fill: #8d96a0 } .line { stroke: #30363d } .one { stroke: #8d96a0 }
.holds { fill: #4493f8 } .reached { fill: #3fb950 } .missed { fill: #f0714f } .bar, .target { stroke: #e6edf3 }
}
"""
CLASSES: Final = {
    Verdict.MISSED: "missed",
    Verdict.TARGET_MISSED: "holds",
    Verdict.HOLDS: "holds",
    Verdict.TARGET_REACHED: "reached",
}


def drawn(figures: Sequence[Figure]) -> str:
    """An SVG of every row that is held against Apache Kafka and was measured."""
    found = by_name(figures)
    rows = [(row, found[row.name]) for row in ROWS if row.is_ratio and row.name in found and found[row.name].ratios]
    height = HEAD_HEIGHT + ROW_HEIGHT * len(rows) + 12
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        "<title>Moldau beside Apache Kafka: how many times better, row by row</title>",
        f"<style>{STYLE}</style>",
        *_legend(height),
    ]
    for index, (row, figure) in enumerate(rows):
        parts += _row(row, figure, HEAD_HEIGHT + ROW_HEIGHT * index)
    return "\n".join([*parts, "</svg>", ""])


def _legend(height: int) -> list[str]:
    parts = ['<text class="head" x="8" y="20">Times better than Apache Kafka in the same run</text>']
    x = LABEL_WIDTH
    for name, words, width in (
        ("missed", "missed", 75),
        ("holds", "bar holds", 90),
        ("reached", "target reached", 115),
    ):
        parts.append(f'<rect class="{name}" x="{x}" y="11" width="10" height="10" rx="2"/>')
        parts.append(f'<text x="{x + 15}" y="20">{words}</text>')
        x += width
    parts.append(f'<path class="bar" d="M{x} 9v14"/><text x="{x + 8}" y="20">bar</text>')
    parts.append(f'<path class="target" d="{_diamond(x + 52, 16)}"/><text x="{x + 62}" y="20">target</text>')
    for factor in FACTORS:
        at = _x(factor)
        name = "one" if factor == 1 else "line"
        parts.append(f'<path class="{name}" d="M{at:.1f} {HEAD_HEIGHT - 10}V{height - 8}"/>')
        parts.append(f'<text class="faint" x="{at:.1f}" y="{HEAD_HEIGHT - 16}" text-anchor="middle">{factor:g}×</text>')
    return parts


def _row(row: Row, figure: Figure, y: int) -> list[str]:
    assert figure.ratio is not None
    middle = y + ROW_HEIGHT / 2
    better, one = _better(row, figure.ratio), _x(1.0)
    at = _x(better)
    left, width = min(one, at), max(abs(at - one), 1.0)
    verdict = CLASSES[row.verdict(figure)]
    parts = [
        f'<text x="8" y="{middle + 4:.0f}">{escape(row.name)}</text>',
        f'<rect class="{verdict}" x="{left:.1f}" y="{y + 4}" width="{width:.1f}" height="14" rx="2"/>',
        f'<text x="{WIDTH - 8}" y="{middle + 4:.0f}" text-anchor="end">{better:.2f}×</text>',
    ]
    if row.bar is not None:
        parts.append(f'<path class="bar" d="M{_x(_better(row, row.bar)):.1f} {y + 2}v18"/>')
    if row.target is not None:
        parts.append(f'<path class="target" d="{_diamond(_x(_better(row, row.target)), middle)}"/>')
    return parts


def _better(row: Row, ratio: float) -> float:
    """Half of Apache Kafka's latency is twice as good."""
    return 1 / ratio if row.less_is_better and ratio else ratio


def _x(factor: float) -> float:
    share = (log2(min(max(factor, LEAST), MOST)) - log2(LEAST)) / (log2(MOST) - log2(LEAST))
    return LABEL_WIDTH + share * (WIDTH - LABEL_WIDTH - VALUE_WIDTH)


def _diamond(x: float, y: float) -> str:
    return f"M{x:.1f} {y - 5:.1f}l5 5l-5 5l-5 -5z"
