"""Figures: what was measured of each broker, their ratio, and the bar that ours is held against."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

OURS = "moldau"
PEER = "apache"


class Figure(NamedTuple):
    """One row. `values` holds a list for each broker, in the order of the rounds; they are neighbours in time."""

    name: str
    unit: str
    values: dict[str, list[float]]
    bar: float | None = None
    """In the unit of the figure; with `bar_is_ratio` in times Apache Kafka's."""
    target: float | None = None
    bar_is_ratio: bool = False
    less_is_better: bool = True
    note: str = ""

    @property
    def ours(self) -> float:
        return median(self.values[OURS])

    @property
    def peer(self) -> float | None:
        values = self.values.get(PEER)
        return median(values) if values else None

    @property
    def ratios(self) -> list[float]:
        """Ours to Apache Kafka's, round by round."""
        return [ours / peer for ours, peer in zip(self.values[OURS], self.values.get(PEER, ()), strict=False) if peer]

    @property
    def ratio(self) -> float | None:
        return median(self.ratios) if self.ratios else None

    @property
    def holds(self) -> bool | None:
        """Whether the bar is reached; None where there is none, or nothing to compare with."""
        figure = self.ratio if self.bar_is_ratio else self.ours
        if self.bar is None or figure is None:
            return None
        return figure <= self.bar if self.less_is_better else figure >= self.bar

    def as_json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "unit": self.unit,
            "values": {name: [round(value, 4) for value in values] for name, values in self.values.items()},
            "median": {name: round(median(values), 4) for name, values in self.values.items()},
            "ratio": None if self.ratio is None else round(self.ratio, 3),
            "bar": self.bar,
            "target": self.target,
            "bar_is_ratio": self.bar_is_ratio,
            "holds": self.holds,
            "note": self.note,
        }


def table(figures: Sequence[Figure]) -> list[str]:
    """The rows as a Markdown table: medians, the median of neighbouring ratios with its spread, bar and verdict."""
    lines = [
        "| what | unit | Moldau | Apache Kafka | ratio (spread) | bar | target | |",
        "|---|---|---|---|---|---|---|---|",
    ]
    return lines + [_row(figure) for figure in figures]


def _row(figure: Figure) -> str:
    ratio = "–"
    if figure.ratio is not None:
        ratio = f"{figure.ratio:.2f} ({min(figure.ratios):.2f}–{max(figure.ratios):.2f})"
    verdict = {True: "holds", False: "**missed**", None: ""}[figure.holds]
    peer = "–" if figure.peer is None else shown(figure.peer)
    bar, target = (_limit(figure, limit) for limit in (figure.bar, figure.target))
    return f"| {figure.name} | {figure.unit} | {shown(figure.ours)} | {peer} | {ratio} | {bar} | {target} | {verdict} |"


def _limit(figure: Figure, limit: float | None) -> str:
    if limit is None:
        return ""
    sign = "≤" if figure.less_is_better else "≥"
    return f"{sign} {limit:g}{'×' if figure.bar_is_ratio else ''}"


def shown(value: float) -> str:
    """Three significant digits, thousands grouped."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
