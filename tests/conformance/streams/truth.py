"""What the shop's topics must hold, computed from the events that were written, and whether they do.

In order means: as the events were written.

| topic | holds | its records for a key |
|---|---|---|
| the inputs | each event once: a producer that doubles one must not pass for an application that does | in order |
| `clicks-of-user` | the number of a user's clicks, and the sum of their values | one for each click, in order |
| `clicks-of-window` | the number of a user's clicks in a window of time | the same |
| `regions-of-user` | the table of users | one for each move, in order |
| `sales` | each purchase with its user's region | one for each purchase, in order |
| `sales-of-region` | number and sum of a region's purchases, repartitioned | one for each, in any order |
| `pairs` | clicks and purchases of a user that are near in time | one for each pair, in any order |
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from tests.conformance.committed import Stored, first_difference
from tests.conformance.streams.inputs import CLICKS, INPUTS, PURCHASES, USERS, Event

WINDOW_MS = 10_000
DISTANCE_MS = 3_000
CLICKS_OF_USER, CLICKS_OF_WINDOW, REGIONS_OF_USER = "clicks-of-user", "clicks-of-window", "regions-of-user"
SALES, SALES_OF_REGION, PAIRS = "sales", "sales-of-region", "pairs"
OUTPUTS = (CLICKS_OF_USER, CLICKS_OF_WINDOW, REGIONS_OF_USER, SALES, SALES_OF_REGION, PAIRS)
TOPICS = (*INPUTS, *OUTPUTS)
ANY_ORDER = (SALES_OF_REGION, PAIRS)

Values = dict[str, dict[str, list[str]]]
"""By topic and key."""


class Truth:
    """Takes the events in the order in which they were written."""

    def __init__(self) -> None:
        self.values: Values = {topic: defaultdict(list) for topic in TOPICS}
        self._regions: dict[str, str] = {}
        self._totals: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
        self._windows: dict[str, int] = defaultdict(int)
        self._earlier: dict[tuple[str, str], list[Event]] = defaultdict(list)

    def add(self, events: Iterable[Event]) -> None:
        for event in events:
            self.values[event.topic][event.key].append(event.value)
            if event.topic == USERS:
                self._moved(event)
            elif event.topic == CLICKS:
                self._clicked(event)
            else:
                self._bought(event)

    def counts(self) -> dict[str, int]:
        """The number of records of each topic."""
        return {topic: sum(map(len, keys.values())) for topic, keys in self.values.items()}

    def _moved(self, event: Event) -> None:
        self._regions[event.key] = event.value
        self.values[REGIONS_OF_USER][event.key].append(event.value)

    def _clicked(self, event: Event) -> None:
        count, total = self._totals[event.key]
        self._totals[event.key] = count + 1, total + int(event.value)
        self.values[CLICKS_OF_USER][event.key].append(f"{count + 1}:{total + int(event.value)}")
        window = f"{event.key}@{event.timestamp_ms // WINDOW_MS * WINDOW_MS}"
        self._windows[window] += 1
        self.values[CLICKS_OF_WINDOW][window].append(str(self._windows[window]))
        self._pair(event, PURCHASES)

    def _bought(self, event: Event) -> None:
        region = self._regions[event.key]
        self.values[SALES][event.key].append(f"{region}:{event.value}")
        self.values[SALES_OF_REGION][region].append(event.value)
        self._pair(event, CLICKS)

    def _pair(self, event: Event, other: str) -> None:
        for near in self._earlier[other, event.key]:
            if abs(near.timestamp_ms - event.timestamp_ms) <= DISTANCE_MS:
                click, purchase = (near, event) if other == CLICKS else (event, near)
                self.values[PAIRS][event.key].append(f"{click.value}&{purchase.value}")
        self._earlier[event.topic, event.key].append(event)


def additions(totals: Sequence[str]) -> list[str]:
    """What was added from each of "count:sum" to the next; the counts are kept if they are not 1, 2, 3."""
    added, before = [], 0
    for number, each in enumerate(totals, 1):
        count, total = map(int, each.split(":"))
        added.append(str(total - before) if count == number else each)
        before = total
    return added


def by_key(records: Iterable[Stored]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for record in records:
        found[record.key].append(record.value)
    return found


def problems(wanted: Values, found: Mapping[str, Sequence[Stored]]) -> list[str]:
    """Every key of every topic, the inputs first, whose records are not those that the events ask for."""
    said = []
    for topic in TOPICS:
        values = by_key(found[topic])
        for key in sorted(wanted[topic].keys() | values.keys()):
            want, came = wanted[topic].get(key, []), values.get(key, [])
            if topic == SALES_OF_REGION:
                came = additions(came)
            if topic in ANY_ORDER:
                want, came = sorted(want), sorted(came)
            difference = first_difference(came, want)
            said += [f"{topic}, {key}: {difference}"] if difference else []
    return said
