"""Figures: the measured values of each broker, and the ratios of neighbouring rounds."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import NamedTuple

OURS = "moldau"
PEER = "apache"


class Figure(NamedTuple):
    """The values that a run measured under one name. The bar and the target of a name are in `bench.rows`. `values` has
    a list for each broker, in the order of the rounds; values at the same index are of neighbouring times.
    """

    name: str
    unit: str
    values: dict[str, list[float]]
    less_is_better: bool = True
    note: str = ""
    generator: float | None = None
    """The most that the load generator or client itself used, as a share of one core."""

    @property
    def ours(self) -> float:
        return median(self.values[OURS])

    @property
    def peer(self) -> float | None:
        values = self.values.get(PEER)
        return median(values) if values else None

    @property
    def ratios(self) -> list[float]:
        """The ratios of our values to Apache Kafka's, round by round."""
        return [ours / peer for ours, peer in zip(self.values[OURS], self.values.get(PEER, ()), strict=False) if peer]

    @property
    def ratio(self) -> float | None:
        return median(self.ratios) if self.ratios else None

    def as_json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "unit": self.unit,
            "values": {name: [round(value, 4) for value in values] for name, values in self.values.items()},
            "median": {name: round(median(values), 4) for name, values in self.values.items()},
            "ratio": None if self.ratio is None else round(self.ratio, 3),
            "less_is_better": self.less_is_better,
            "note": self.note,
            "generator": None if self.generator is None else round(self.generator, 3),
        }

    @classmethod
    def of_json(cls, value: Mapping[str, object]) -> Figure:
        return cls(**{name: value[name] for name in cls._fields if name in value})  # type: ignore[arg-type]


def number_text(value: float) -> str:
    """Format a number with three significant digits and with separators of thousands."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def ratio_spread_text(figure: Figure) -> str:
    """Format the median of the neighbouring ratios with the smallest and the largest."""
    if figure.ratio is None:
        return "–"
    return f"{figure.ratio:.2f} ({min(figure.ratios):.2f}–{max(figure.ratios):.2f})"
