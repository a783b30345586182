"""Figures: what was measured of each broker, and the ratio of neighbouring rounds."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import NamedTuple

OURS = "moldau"
PEER = "apache"


class Figure(NamedTuple):
    """What a run says under one name. Bars and targets of names that have them stand in `bench.rows`.

    `values` holds a list for each broker, in the order of the rounds; they are neighbours in time.
    """

    name: str
    unit: str
    values: dict[str, list[float]]
    less_is_better: bool = True
    note: str = ""
    generator: float | None = None
    """Of one core, what the load generator or client itself used at most."""

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


def shown(value: float) -> str:
    """Three significant digits, thousands grouped."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def spread(figure: Figure) -> str:
    """The median of neighbouring ratios with the smallest and the largest."""
    if figure.ratio is None:
        return "–"
    return f"{figure.ratio:.2f} ({min(figure.ratios):.2f}–{max(figure.ratios):.2f})"
