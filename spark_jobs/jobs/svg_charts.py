"""Charts as SVG for an HTML page: columns over time, and bars with a label and a number each.

Colours are classes of the page's style sheet, so that a chart follows the page into dark mode. A title element in each
column and bar shows its numbers if the pointer rests on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Final, NamedTuple

WIDTH: Final = 720
COLUMNS_HEIGHT: Final = 170
LEFT: Final = 76
RIGHT: Final = 8
TOP: Final = 10
BOTTOM: Final = 24
BAR_STEP: Final = 26
BAR_THICKNESS: Final = 16
LABEL_WIDTH: Final = 190
NUMBER_WIDTH_MIN: Final = 150
NUMBER_GAP: Final = 8
CHARACTER_WIDTH: Final = 6.6
"""The width (pixels) that no digit of the page's fonts exceeds at 11 pixels."""
LABEL_LENGTH_MAX: Final = 24
STEPS: Final = (1.0, 2.0, 2.5, 5.0, 10.0)
TICKS: Final = 4


class Column(NamedTuple):
    """A column of a chart over time."""

    value: float
    title: str


class Bar(NamedTuple):
    """A bar with its label on the left and its number on the right."""

    label: str
    value: float
    number: str
    title: str = ""
    whisker: float | None = None
    """The end of a line that shows the largest value that the bar may have."""


def nice_step(largest: float) -> float:
    """The distance between the lines of a scale: 1, 2, 2.5 or 5 times a power of ten, for about `TICKS` lines."""
    rough = largest / TICKS
    power = 1.0
    while power > rough:
        power /= 10
    while power * 10 <= rough:
        power *= 10
    return next(power * step for step in STEPS if power * step >= rough)


def column_chart(
    name: str, columns: Sequence[Column], shown: Callable[[float], str], labels: Sequence[tuple[float, str]]
) -> str:
    """A chart of columns from left to right. `shown` formats a value of the scale; `labels` are (position from 0 to 1,
    text) below the columns."""
    largest = max((each.value for each in columns), default=0) or 1
    step = nice_step(largest)
    top_value = step * -(-largest // step)
    inner_width, inner_height = WIDTH - LEFT - RIGHT, COLUMNS_HEIGHT - TOP - BOTTOM
    base = TOP + inner_height
    parts = [_opening(name, COLUMNS_HEIGHT)]
    for number in range(round(top_value / step) + 1):
        y = base - number * step / top_value * inner_height
        parts.append(f'<line class="{"axis" if not number else "grid"}" x1="{LEFT}" x2="{WIDTH - RIGHT}" '
                     f'y1="{y:.1f}" y2="{y:.1f}"/>')  # fmt: skip
        parts.append(f'<text class="scale" x="{LEFT - 8}" y="{y + 4:.1f}">{escape(shown(number * step))}</text>')
    slot = inner_width / max(len(columns), 1)
    gap = min(2.0, slot / 5)
    for index, column in enumerate(columns):
        if column.value <= 0:
            continue
        height = max(1.0, column.value / top_value * inner_height)
        parts.append(
            f'<rect class="mark" x="{LEFT + index * slot + gap / 2:.1f}" y="{base - height:.1f}" '
            f'width="{slot - gap:.1f}" height="{height:.1f}"><title>{escape(column.title)}</title></rect>'
        )
    for place, text in labels:
        anchor = "start" if place < 0.1 else "end" if place > 0.9 else "middle"
        x = LEFT + place * inner_width
        parts.append(f'<text x="{x:.1f}" y="{COLUMNS_HEIGHT - 6}" text-anchor="{anchor}">{escape(text)}</text>')
    return "".join((*parts, "</svg>"))


def bar_chart(name: str, bars: Sequence[Bar], mean: float | None = None) -> str:
    """A chart of bars below each other. If `mean` is given, it has a dashed line there."""
    height = BAR_STEP * len(bars) + 6
    largest = max((max(each.value, each.whisker or 0) for each in bars), default=0) or 1
    number_width = max(
        NUMBER_WIDTH_MIN, NUMBER_GAP + max((len(each.number) for each in bars), default=0) * CHARACTER_WIDTH
    )
    inner_width = WIDTH - LABEL_WIDTH - number_width
    parts = [_opening(name, height)]
    for index, bar in enumerate(bars):
        y = index * BAR_STEP + (BAR_STEP - BAR_THICKNESS) / 2
        middle = y + BAR_THICKNESS / 2
        length = bar.value / largest * inner_width
        parts.append(f"<g><title>{escape(bar.title or f'{bar.label}: {bar.number}')}</title>")
        label, label_x, anchor = _placed(bar.label)
        parts.append(f'<text x="{label_x}" y="{middle + 4:.1f}" text-anchor="{anchor}">{escape(label)}</text>')
        parts.append(
            f'<rect class="track" x="{LABEL_WIDTH}" y="{y:.1f}" width="{inner_width:g}" height="{BAR_THICKNESS}"/>'
        )
        if bar.value > 0:
            parts.append(
                f'<rect class="mark" x="{LABEL_WIDTH}" y="{y:.1f}" width="{max(length, 1):.1f}" '
                f'height="{BAR_THICKNESS}"/>'
            )
        if bar.whisker is not None and bar.whisker > bar.value:
            end = LABEL_WIDTH + bar.whisker / largest * inner_width
            parts.append(f'<line class="whisker" x1="{LABEL_WIDTH + length:.1f}" x2="{end:.1f}" '
                         f'y1="{middle:.1f}" y2="{middle:.1f}"/>')  # fmt: skip
        parts.append(
            f'<text x="{WIDTH - number_width + NUMBER_GAP:g}" y="{middle + 4:.1f}">{escape(bar.number)}</text></g>'
        )
    if mean is not None and bars:
        x = LABEL_WIDTH + mean / largest * inner_width
        parts.append(
            f'<line class="mean" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{height - 6}"><title>mean</title></line>'
        )
    return "".join((*parts, "</svg>"))


def _opening(name: str, height: float) -> str:
    text = escape(name, quote=True)
    return f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{text}" xmlns="http://www.w3.org/2000/svg">'


def _placed(label: str) -> tuple[str, int, str]:
    """A label with its x and its anchor. A long label is cut, and begins at the left edge; the bar is drawn over its
    end."""
    if len(label) <= LABEL_LENGTH_MAX:
        return label, LABEL_WIDTH - 8, "end"
    return label[: LABEL_LENGTH_MAX - 1] + "…", 0, "start"
