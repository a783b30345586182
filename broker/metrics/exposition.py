"""Writes metrics in the text format 0.0.4 of Prometheus."""

from __future__ import annotations

import operator
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from moldau.broker.metrics.catalogue import metrics
from moldau.protocol.late_tuple import NamedTuple

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Labels = tuple[tuple[str, str], ...]
LABEL_LENGTH_MAX: Final = 249
"""The maximum length (characters) of a label value that clients choose, such as the name of a topic. Series with a
longer value are folded into one (`OTHER`).
"""
OTHER: Final = "other"
"""The label value of the series into which other series are folded. A client whose name is this word is counted in that
series.
"""


INFINITE: Final = float("inf")


class Observations(Protocol):
    """The sum and the number of observations."""

    count: int

    @property
    def sum(self) -> float: ...


class BucketedObservations(Observations, Protocol):
    """A histogram. `counts` has for each upper bound the number of observations up to it and above the bound before."""

    counts: list[int]

    @property
    def bounds(self) -> Sequence[float]: ...


class Histogram:
    """A histogram: observations counted by upper bounds. Those above the last bound are counted under infinity."""

    __slots__ = ("bounds", "count", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.count = 0
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.count += 1
        self.sum += value


class Summary:
    """The sum and the number of observations."""

    __slots__ = ("count", "sum")

    def __init__(self) -> None:
        self.count = 0
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.count += 1
        self.sum += value


class KeptLabels(NamedTuple):
    """Labels with the text that `labels_text` makes of them."""

    labels: Labels
    text: str


class Page:
    """The page of metrics that answers one scrape. A metric's name must be in the catalogue."""

    def __init__(self) -> None:
        self._lines: dict[str, list[str]] = {name: [] for name in metrics()}

    def add(self, name: str, value: float, labels: Labels = ()) -> None:
        """Add one sample of a counter or a gauge."""
        self._lines[name].append(f"{name}{labels_text(labels)} {number(value)}")

    def add_labelled(self, name: str, value: float, labels: KeptLabels) -> None:
        """Add one sample of a counter or a gauge, whose labels the caller keeps for the next scrape."""
        self._lines[name].append(f"{name}{labels.text} {number(value)}")

    def add_chosen(
        self,
        name: str,
        samples: Iterable[tuple[Labels, float]],
        series_max: int,
        fold: Callable[[float, float], float] = operator.add,
    ) -> int:
        """Add samples of one metric whose label values clients choose. The first `series_max` samples have a series
        each. All others, and those with a label value that is too long, are folded into one series, whose label
        values are `OTHER`.

        Returns the number of samples that were folded.
        """
        series: dict[Labels, float] = {}
        others: dict[Labels, float] = {}
        folded = 0
        for labels, value in samples:
            if len(series) < series_max and all(len(text) <= LABEL_LENGTH_MAX for _, text in labels):
                series[labels] = value
                continue
            folded += 1
            other = tuple((label, OTHER) for label, _ in labels)
            others[other] = fold(others[other], value) if other in others else value
        for other in others.keys() & series.keys():
            others[other] = fold(others[other], series.pop(other))
        for labels, value in (series | others).items():
            self.add(name, value, labels)
        return folded

    def add_summary(self, name: str, summary: Observations, labels: Labels = ()) -> None:
        shown = labels_text(labels)
        self._lines[name].append(f"{name}_sum{shown} {number(summary.sum)}")
        self._lines[name].append(f"{name}_count{shown} {summary.count}")

    def add_histogram(self, name: str, histogram: BucketedObservations, labels: Labels = ()) -> None:
        below = 0
        for bound, count in zip((*histogram.bounds, float("inf")), histogram.counts, strict=True):
            below += count
            shown = labels_text((*labels, ("le", number(bound))))
            self._lines[name].append(f"{name}_bucket{shown} {below}")
        self.add_summary(name, histogram, labels)

    def text(self) -> str:
        """The text of the page. Every metric of the catalogue is declared, even without a sample."""
        out = []
        for name, metric in metrics().items():
            out.append(f"# HELP {name} {metric.meaning}\n# TYPE {name} {metric.kind}")
            out += self._lines[name]
        return "\n".join(out) + "\n"


def number(value: float) -> str:
    """A number as text in the format of Prometheus, in which whole numbers have no decimal point."""
    if value.__class__ is int:
        return str(value)
    if value == INFINITE:
        return "+Inf"
    return str(int(value)) if value == int(value) else repr(value)


def labels_text(labels: Labels) -> str:
    """Labels in the format of Prometheus, with their braces; empty if there are none."""
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
