"""The lag exporter of a broker. It takes a sample of all lags each minute, for the lag history of the last hour, and at
each scrape of `/metrics`.

    timer ──┐                      ┌──▶ LagHistory: a point of each group
            ├──▶ sample (sample.py)┤
    scrape ─┘                      └──▶ GroupRows ──▶ the page

Each broker exports the groups that it coordinates, so that a sum over all brokers counts each group once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter as Counts
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final, NamedTuple

from moldau.broker.console.kafka_client import ConsolePorts, KafkaClient
from moldau.broker.coordinators.lag_history import PERIOD_MS
from moldau.broker.coordinators.node_status import POINT_MS, TrafficPoint, WorstLag
from moldau.broker.exporter.bounds import Partition
from moldau.broker.exporter.sample import GroupLag, LagSampler
from moldau.broker.metrics.exposition import KeptLabels, Page, labels_text
from moldau.broker.replicas.replicas import TrafficTotals
from moldau.security.access import Unrestricted

log = logging.getLogger("moldau.broker")
SAMPLE_AGE_MS_MIN: Final = 5_000
"""The age (ms) that the last sample must have before another one is taken."""
FIRST_SAMPLE_S: Final = 1.0
"""The time (s) from the start of the node to the first sample."""
PIECE: Final = 200
"""The number of partitions whose metrics are written in one iteration of the event loop."""
GROUPS: Final = 20
"""The number of groups whose metrics, without those of partitions, are written in one iteration of the event loop."""
GROUPS_SUMMED: Final = 200
"""The number of groups whose sums are computed in one iteration of the event loop."""
PARTITIONS: Final = 2_000
"""The number of partitions whose traffic is summed in one iteration of the event loop."""
NAME: Final = "kafka_consumergroup_group_"


class PartitionRow(NamedTuple):
    key: Partition
    offset: int
    records: int
    first_ms: int | None


class GroupRow(NamedTuple):
    """The metrics of one group."""

    id: str
    kind: str
    records: int | None
    most: int
    """The lag in records of the partition that is furthest behind."""
    first_ms: int | None
    uncounted: int
    partitions: Sequence[PartitionRow]
    """The partitions with metrics of their own: all of the group, or none."""


class LagExporter:
    """The lag exporter of one broker."""

    def __init__(self, ports: ConsolePorts) -> None:
        self._ports = ports
        self._client = KafkaClient(ports, Unrestricted(), "")
        self._sampler = LagSampler(self._client)
        self._patterns = ports.config.entries("moldau.metrics.lag.groups")
        self._partitions_max = ports.config.integer("moldau.metrics.lag.partitions.max")
        self._series_max = ports.config.integer("moldau.metrics.series.max")
        self._sampled_ms: int | None = None
        self._took_ms = 0
        self._rows: list[GroupRow] = []
        self._left_out = 0
        rows_max = self._partitions_max + self._series_max
        self._labels = lru_cache(maxsize=2 * rows_max)(_labels)
        """`_labels`, with the labels of the last scrape kept: their texts are a half of the page, and seldom change."""
        self._sampling = asyncio.Lock()

    def start(self) -> None:
        self._ports.services.node_status.started_ms = self._ports.environment.wall_ms()
        self._ports.services.spawn(self._keep_last_hour(), "lags of groups")
        self._ports.services.spawn(self._keep_traffic(), "traffic of the node")

    async def _keep_traffic(self) -> None:
        while True:
            self._ports.services.node_status.add_point(await total_traffic(self._ports))
            await asyncio.sleep(POINT_MS / 1000)

    async def _keep_last_hour(self) -> None:
        await asyncio.sleep(FIRST_SAMPLE_S)
        while True:
            if self._age_ms() >= PERIOD_MS:
                await self._sample()
            await asyncio.sleep((PERIOD_MS - self._age_ms()) / 1000)

    def _age_ms(self) -> int:
        """The age (ms) of the last sample; `PERIOD_MS` if none was taken yet."""
        if self._sampled_ms is None:
            return PERIOD_MS
        return self._ports.environment.monotonic_ms() - self._sampled_ms

    async def _sample(self) -> None:
        """Take a sample of the lags of all groups, unless the last one is younger than `SAMPLE_AGE_MS_MIN`. If that
        fails, the metrics of the last sample stay.
        """
        clock = self._ports.environment.monotonic_ms
        async with self._sampling:
            began_ms = clock()
            if self._age_ms() < SAMPLE_AGE_MS_MIN:
                return
            try:
                groups = await self._sampler.take_sample()
                records: dict[str, int | None] = {}
                worst: list[WorstLag] = []
                for number, group in enumerate(groups, 1):
                    records[group.id] = group.summed_lag().records
                    worst.append(worst_lag(group))
                    if number % GROUPS_SUMMED == 0:
                        await asyncio.sleep(0)
                self._ports.services.lag_history.add(began_ms, records)
                self._ports.services.node_status.set_lags(worst)
                await self._make_rows(groups)
            except Exception:  # A sample that is missing must not stop the broker, as the failure of a task does.
                log.exception("the lags of groups cannot be found")
            self._sampled_ms = began_ms
            self._took_ms = clock() - began_ms

    async def _make_rows(self, groups: Sequence[GroupLag]) -> None:
        chosen = []
        for number, group in enumerate(groups, 1):
            if any(fnmatchcase(group.id, each) for each in self._patterns):
                chosen.append(group)
            if number % GROUPS_SUMMED == 0:
                await asyncio.sleep(0)
        self._left_out = max(len(chosen) - self._series_max, 0)
        self._rows = []
        left = self._partitions_max
        for number, group in enumerate(chosen[: self._series_max], 1):
            count, summary = len(group.bounds.keys), group.summed_lag()
            is_whole = count <= left
            left -= count if is_whole else 0
            self._left_out += 0 if is_whole else count
            self._rows.append(
                GroupRow(
                    group.id,
                    group.kind,
                    summary.records,
                    summary.most,
                    group.first_ms,
                    summary.uncounted,
                    partition_rows(group) if is_whole else (),
                )
            )
            if is_whole or number % GROUPS == 0:
                await asyncio.sleep(0)

    async def collect(self, page: Page) -> int:
        """Add the metrics of all groups to a page. Returns the number of groups and partitions that are left out
        because of the limit.
        """
        await self._sample()
        now_ms = self._ports.environment.wall_ms()
        page.add("moldau_group_lag_sample_seconds", self._took_ms / 1000)
        for number, row in enumerate(self._rows, 1):
            labels = self._labels("group", row.id, "kind", row.kind)
            if row.records is not None:
                page.add_labelled(f"{NAME}sum_lag", row.records, labels)
                page.add_labelled(f"{NAME}max_lag", row.most, labels)
                add_age(page, f"{NAME}max_lag_seconds", row.records, row.first_ms, now_ms, labels)
            if row.uncounted:
                page.add("moldau_group_lag_uncounted_partitions", row.uncounted, (("group", row.id),))
            if row.partitions:
                await self._add_partitions(page, row, now_ms)
            elif number % GROUPS == 0:
                await asyncio.sleep(0)
        return self._left_out

    async def _add_partitions(self, page: Page, row: GroupRow, now_ms: int) -> None:
        """Add the metrics of a group's partitions, and their sums by topic, to a page."""
        topics: Counts[str] = Counts()
        for count, each in enumerate(row.partitions, 1):
            topic, partition = each.key
            topics[topic] += each.records
            labels = self._labels("group", row.id, "topic", topic, "partition", str(partition))
            page.add_labelled(f"{NAME}offset", each.offset, labels)
            page.add_labelled(f"{NAME}lag", each.records, labels)
            add_age(page, f"{NAME}lag_seconds", each.records, each.first_ms, now_ms, labels)
            if count % PIECE == 0:
                await asyncio.sleep(0)
        for topic, records in topics.items():
            page.add_labelled(f"{NAME}topic_sum_lag", records, self._labels("group", row.id, "topic", topic))
        await asyncio.sleep(0)


def _labels(*names_and_values: str) -> KeptLabels:
    """Labels, from the name and the value of each."""
    labels = tuple(zip(names_and_values[::2], names_and_values[1::2], strict=True))
    return KeptLabels(labels, labels_text(labels))


def partition_rows(group: GroupLag) -> list[PartitionRow]:
    """The metrics of each partition of a group."""
    bounds = group.bounds
    offsets = dict(zip(group.offsets.keys, group.offsets.committed, strict=True))
    rows = []
    for place, key in enumerate(bounds.keys):
        behind = group.behind.get(place)
        rows.append(PartitionRow(key, offsets[key], bounds.lags[place], None if behind is None else behind.first_ms))
    return rows


def add_age(page: Page, name: str, records: int, first_ms: int | None, now_ms: int, labels: KeptLabels) -> None:
    """Add the age of the first unread record to a page: 0 if there is none. Nothing is added if its timestamp is not
    known.
    """
    if records == 0:
        page.add_labelled(name, 0, labels)
    elif first_ms is not None:
        page.add_labelled(name, max(now_ms - first_ms, 0) / 1000, labels)


def worst_lag(group: GroupLag) -> WorstLag:
    """The partition of a group that is furthest behind. If none is behind, its number of records is 0."""
    summary = group.summed_lag()
    return WorstLag(group.id, *(summary.worst or ("", -1)), summary.most)


async def total_traffic(ports: ConsolePorts) -> TrafficPoint:
    """Sum up the records and bytes in and out of this broker since its start. Replicas that the broker does not have
    any more are included.
    """
    replicas = ports.services.replicas
    sums = TrafficTotals()
    for number, partition in enumerate(tuple(replicas)):
        sums.add(partition)
        if number % PARTITIONS == PARTITIONS - 1:
            await asyncio.sleep(0)
    gone = replicas.gone
    return TrafficPoint(
        ports.environment.monotonic_ms(),
        sums.messages_in + gone.messages_in,
        sums.bytes_in + gone.bytes_in,
        sums.bytes_out + gone.bytes_out,
    )
