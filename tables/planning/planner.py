"""Planning a read: ranges of offsets become slices of segments, and the slices are packed into tasks by their size.

A plan is made from names, sizes, checkpoints and indexes; a batch is read only if a range ends inside a segment. If a
segment was replaced or deleted while its index was read, all sources of segments are listed and planned again.

Spark plans each query in a process that has imported nothing of this package, so the clients of brokers and of object
stores are imported only if the options name a broker or a store.
"""

from __future__ import annotations

import gc
import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate, groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Final, TypeVar

from moldau.storage.checkpoints.text_checkpoint import TopicPartition
from moldau.storage.files.port import FileSystem
from moldau.storage.segment.transaction_index import AbortedTransaction
from moldau.tables.options.option_values import StoreAddress
from moldau.tables.options.read_options import ReadOptions, TopicSelection
from moldau.tables.origins.cluster_metadata import ClusterMetadata
from moldau.tables.origins.local_segments import damage_at_end
from moldau.tables.origins.log_directories import LogDirectories, is_tiered_storage
from moldau.tables.origins.port import Origin, PartitionOrigin, SegmentPart, Slice, Task
from moldau.tables.planning.bounds import OffsetRange, ranges_of, report_data_loss
from moldau.tables.planning.partition_view import OriginRange, PartitionView
from moldau.tables.planning.pushed_filters import PushedFilters
from moldau.tables.planning.snapshot import Snapshot, read_snapshot, take_snapshot
from moldau.tables.refusals import ClusterMismatch, DataLost, PlaceUnavailable, Refused, did_you_mean, warn

if TYPE_CHECKING:
    from moldau.tables.client.cluster import Cluster

T = TypeVar("T")

TASK_SIZE: Final = 64 << 20
"""The bytes of segments for one task of a large read. Starting a task takes Spark about 40 ms; decoding these bytes
takes several times as long."""
TASK_SIZE_MIN: Final = 4 << 20
"""The least bytes of segments for one task of a small read."""
SMALL_READ_TASKS: Final = 2 * max(2, os.cpu_count() or 1)
"""The number of tasks of a small read: two for each core of the driver's machine, at least four.

Spark does not tell how many cores its executors have. More tasks cost more: one without records takes some 17 ms of
CPU.
"""
SLICE_SIZE_MIN: Final = 1 << 20
"""The least bytes of a slice if a task has several slices. The tasks of a small read are packed from such slices, so
that they become equally large. A slice of a large read is as large as a task, because each slice takes a read of an
index."""
TASKS_MAX: Final = 20_000
"""The most tasks of a read. A larger read gets larger tasks instead."""
PIECES_AHEAD: Final = 16
"""The pieces whose indexes are requested from remote storage before they are needed."""
PLANS_MAX: Final = 10
"""The most times that a plan is made. A plan is made again if files changed meanwhile."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a query: the ranges of offsets that it reads, and the tasks that read them."""

    cluster_id: str | None
    ranges: tuple[OffsetRange, ...]
    tasks: tuple[Task, ...]

    @property
    def size(self) -> int:
        """The bytes of segments that the tasks read."""
        return sum(each.size for task in self.tasks for each in task)


class Planner:
    """Plans one query over the sources of segments that its options name."""

    def __init__(
        self,
        fs: FileSystem,
        options: ReadOptions,
        *,
        filters: PushedFilters | None = None,
        task_size: int | None = None,
        origins: Sequence[Origin] = (),
    ) -> None:
        """`task_size`: the bytes of segments for one task; None chooses them by the size of the read. `origins`:
        sources of segments that are used besides those that the options name. Raises `Refused`."""
        self._options = options
        self._filters = filters or PushedFilters()
        self._task_size = task_size
        self._fs = fs
        self._further = tuple(origins)
        names = topics_of(options.subscription)
        self._metadata = ClusterMetadata(fs, () if options.subscription.is_everything else names)
        self._cluster: Cluster | None = None
        if options.brokers:
            from moldau.tables.client.cluster import Cluster
            from moldau.tables.client.settings import client_settings_of

            self._cluster = Cluster(client_settings_of(options.brokers, dict(options.client)))
        self.origins = self._make_origins()
        self.cluster_id = cluster_of(self.origins)
        self._selected: list[TopicPartition] = []
        """The partitions that the options select, according to the last listing."""
        self._snapshot: Snapshot | None = None
        if options.snapshot is not None:
            self._snapshot = read_snapshot(fs, options.snapshot)
            if None not in (self.cluster_id, self._snapshot.cluster_id) and (
                self.cluster_id != self._snapshot.cluster_id
            ):
                raise ClusterMismatch(
                    f"snapshot: it is of cluster {self._snapshot.cluster_id}, the files are of {self.cluster_id}"
                )

    def plan(self) -> Plan:
        """List the segments and make the tasks. Raises `Refused`, and `CorruptCheckpoint` and OSError of the files."""
        return self._settled(self._plan)

    def plan_of(self, choose: Callable[[list[PartitionView]], list[OffsetRange]]) -> Plan:
        """Make a plan for the ranges that `choose` returns for the listed partitions, instead of the ranges of the
        options. Raises what `plan` and `choose` raise."""

        def made(views: list[PartitionView]) -> Plan:
            ranges = choose(views)
            return Plan(self.cluster_id, tuple(ranges), tuple(tasks_of(ranges, self._options, self._task_size)))

        return self._settled(made)

    def refresh(self) -> None:
        """Search again for topics and partitions. Raises what `__init__` raises."""
        self.origins = self._make_origins()
        self.cluster_id = cluster_of(self.origins)

    def _make_origins(self) -> list[Origin]:
        origins = [*open_origins(self._fs, self._options, self._metadata), *self._further]
        if self._cluster is not None:
            from moldau.tables.origins.broker_origin import BrokerOrigin

            origins.append(
                BrokerOrigin(
                    self._cluster,
                    topics_of(self._options.subscription),
                    is_committed=self._options.is_committed,
                    spans_min=self._options.tasks_min,
                )
            )
        return sorted(origins, key=lambda each: each.cost)

    def snapshot(self) -> Snapshot:
        """Make a snapshot of the selected partitions as they are now. Raises what `plan` raises."""
        return self._settled(lambda views: take_snapshot(self.cluster_id, views))

    def views(self) -> list[PartitionView]:
        """List the selected partitions that the pushed filters accept."""
        found: dict[TopicPartition, None] = {}
        for origin in self.origins:
            found |= dict.fromkeys(origin.partitions())
        self._selected = selected_partitions(found, self._options.subscription)
        keys = [key for key in self._selected if self._filters.accepts_partition(key[1])]
        offers: dict[TopicPartition, list[PartitionOrigin]] = {key: [] for key in keys}
        for origin in self.origins:
            for offer in origin.open(keys):
                offers[offer.key].append(offer)
        return [PartitionView(each, is_committed=self._options.is_committed) for each in offers.values() if each]

    def _settled(self, make: Callable[[list[PartitionView]], T]) -> T:
        """Compute a result from the listed partitions. If they changed meanwhile, list them and compute it again."""
        gone: FileNotFoundError | None = None
        for _ in range(PLANS_MAX):
            with collector_paused():
                views = self.views()
                try:
                    made = make(views)
                except FileNotFoundError as missing:
                    gone = missing
                    continue
                gone = None
            if not any(offer.has_changed() for view in views for offer in view.offers):
                return made
        if gone is not None:
            raise DataLost(f"a segment is listed, and a file or object of it is missing: {gone}")
        raise PlaceUnavailable(f"the segments changed {PLANS_MAX} times while the read was planned")

    def report_missing_partitions(self) -> None:
        """Raise `DataLost`, or warn if failOnDataLoss=false, if selected partitions should exist but no origin that is
        read has them. Also raises what `plan` raises."""
        missing: dict[TopicPartition, str] = {}
        for origin in self.origins:
            missing |= origin.missing()
        found = {key for origin in self.origins for key in origin.partitions()}
        wanted = set(matching_partitions(missing, self._options.subscription)) - found
        for topic, keys in groupby(sorted(wanted), itemgetter(0)):
            numbers = [number for _, number in keys if self._filters.accepts_partition(number)]
            if numbers:
                named = ", ".join(map(str, numbers))
                why = missing[topic, numbers[0]]
                report_data_loss(
                    self._options, f"{topic}: partitions {named} are in none of the places that are read ({why})"
                )

    def _plan(self, views: list[PartitionView]) -> Plan:
        self.report_missing_partitions()
        for view in views:
            warn_of_bucket(view)
        ranges = ranges_of(views, self._options, self._snapshot, self._selected)
        tasks = tasks_of(ranges, self._options, self._task_size, self._filters)
        return Plan(self.cluster_id, tuple(ranges), tuple(tasks))


def warn_of_bucket(view: PartitionView) -> None:
    """Warn about a tiered storage: about segments without a manifest whose offsets no origin has, and about partitions
    that no other origin has."""
    for offer in view.offers:
        for each in offer.incomplete:
            if not view.has_offset(each.start_offset):
                warn(
                    f"{view}: {offer.place} has objects of a segment at offset {each.start_offset} without a manifest: "
                    "it is being copied or deleted, or its manifest is lost, and it is not read"
                )
    if all(each.tier == "remote" for each in view.offers):
        warn(
            f"{view}: {view.newest.place} alone does not tell where DeleteRecords moved the start of the log, nor its "
            "end: deleted records are read, and those that are not copied yet are not"
        )


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause Python's cyclic garbage collector inside the `with`. A plan makes millions of objects, none of them in a
    cycle. Examining them again and again takes a quarter of the CPU of a large plan."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def topics_of(selection: TopicSelection) -> list[str] | None:
    """The topics that a selection names; None if it has a pattern or selects everything, so that all topics have to be
    examined."""
    if selection.is_everything or selection.pattern is not None:
        return None
    return sorted({*selection.topics, *(topic for topic, _ in selection.partitions)})


def open_origins(fs: FileSystem, options: ReadOptions, metadata: ClusterMetadata | None) -> list[Origin]:
    """Open the log directories and tiered storages that the options name, as sources of segments. A directory that has
    the manifest of a cluster is a tiered storage. `metadata`: the metadata of the cluster if the caller keeps them;
    None reads them anew. Raises `Refused`, `RemoteStorageError` and OSError."""
    directories = [each for each in options.directories if not is_tiered_storage(fs, each)]
    tiered = [StoreAddress(each) for each in options.directories if each not in directories]
    found: list[Origin] = []
    if directories:
        found.append(LogDirectories(fs, directories, metadata, topics_of(options.subscription) or ()))
    if tiered or options.stores:
        from moldau.tables.origins.tiered_store import TieredStore

        topics = topics_of(options.subscription)
        found += [TieredStore(each, topics=topics) for each in (*tiered, *options.stores)]
    return found


def cluster_of(origins: Sequence[Origin]) -> str | None:
    """The cluster id that all these origins share; None if none of them has one. Raises `ClusterMismatch` if they
    differ."""
    known = {each.cluster_id for each in origins if each.cluster_id is not None}
    if len(known) > 1:
        raise ClusterMismatch(f"the places to read are of different clusters: {', '.join(sorted(known))}")
    return next(iter(known), None)


def plan(fs: FileSystem, options: ReadOptions) -> list[Task]:
    """Plan a read, and return its tasks. Raises what `Planner.plan` raises."""
    return list(Planner(fs, options).plan().tasks)


def tasks_of(
    ranges: Sequence[OffsetRange],
    options: ReadOptions,
    task_size: int | None = None,
    filters: PushedFilters | None = None,
) -> list[Task]:
    """Cut ranges of offsets into slices, and pack these into tasks, in order."""
    size = sum(each.size for each in ranges)
    if task_size is None:
        task_size = min(TASK_SIZE, max(TASK_SIZE_MIN, -(-size // SMALL_READ_TASKS)))
    task_size = max(task_size, -(-size // TASKS_MAX))
    if options.tasks_min is not None:
        task_size = max(1, min(task_size, -(-size // options.tasks_min)))
    slice_size = task_size if task_size >= TASK_SIZE else min(task_size, max(SLICE_SIZE_MIN, task_size // 4))
    pushed = filters or PushedFilters()
    narrowed = [pushed.clip_offset_range(each) for each in ranges]
    tasks: list[Task] = []
    for group in groups_of(narrowed, options.records_per_task_max):
        slices = list(slices_of(group, options, slice_size, pushed))
        tasks += packed_tasks(slices, task_size)
    return tasks


def groups_of(ranges: Sequence[OffsetRange], records_max: int | None) -> Iterator[list[OffsetRange]]:
    """Split the ranges into groups. A task gets slices of one group only. With maxRecordsPerPartition (`records_max`)
    each group is one range of at most that many offsets; without it all ranges are one group."""
    if records_max is None:
        yield list(ranges)
        return
    for view, start, end in ranges:
        for group_start in range(start, end, records_max):
            yield [OffsetRange(view, group_start, min(end, group_start + records_max))]


def slices_of(
    group: Sequence[OffsetRange], options: ReadOptions, slice_size: int, filters: PushedFilters
) -> Iterator[Slice]:
    """Yield the slices with the records of some ranges. Offsets that no origin has are reported as data loss."""
    for wanted in group:
        report_lost_segments(wanted, options)
    aborted: AbortedInRange | None = None
    for wanted, piece in pieces_of(group, slice_size, filters):
        view, _, _ = wanted
        if options.is_committed or options.table == "batches":
            aborted = aborted if aborted is not None and aborted.wanted is wanted else AbortedInRange(wanted)
        offer, segment, piece_start, piece_end = piece
        if offer is None or segment is None:
            report_data_loss(options, f"{view}: offsets {piece_start} to {piece_end} are in no place")
            continue
        if filters.is_too_old(offer, segment):
            continue
        cuts = offer.cuts(segment, piece_start, piece_end, slice_size)
        is_dense = segment.is_dense and not view.may_have_gaps
        check_end(view, piece, cuts, options, is_dense=is_dense)
        left_out = aborted.between(piece_start, piece_end) if aborted else ()
        for index, cut in enumerate(cuts, 1):
            yield Slice(
                *view.key,
                offer.source,
                segment,
                cut.start_position,
                cut.end_position,
                cut.last_offset,
                piece_start,
                piece_end,
                left_out,
                is_dense,
                has_start=index == 1,
                has_end=index == len(cuts) and cut.last_offset is None,
                finds_markers=options.is_committed and offer.tier == "local",
            )


def pieces_of(
    group: Sequence[OffsetRange], slice_size: int, filters: PushedFilters
) -> Iterator[tuple[OffsetRange, OriginRange]]:
    """Yield the pieces of some ranges, each with its range. For the next `PIECES_AHEAD` pieces the reads of remote
    indexes are already started."""
    pieces = ((wanted, piece) for wanted in group for piece in wanted.view.pieces(*wanted[1:]))
    ahead: deque[tuple[OffsetRange, OriginRange]] = deque()
    for each in pieces:
        offer, segment, start, end = each[1]
        if offer is None or segment is None or offer.tier != "remote":
            pass
        elif not filters.is_too_old(offer, segment):
            offer.start_cuts(segment, start, end, slice_size)
        ahead.append(each)
        if len(ahead) > PIECES_AHEAD:
            yield ahead.popleft()
    yield from ahead


def report_lost_segments(wanted: OffsetRange, options: ReadOptions) -> None:
    """Report data loss for each segment of a range whose index exists while its records do not."""
    view, start_offset, end_offset = wanted
    for place in view.offers if view.may_have_gaps else ():
        for base in place.lost_segments:
            if start_offset <= base < end_offset:
                report_data_loss(
                    options, f"{view}: the segment at offset {base} is missing in {place.place}, its index is there"
                )


def check_end(
    view: PartitionView, piece: OriginRange, cuts: Sequence[SegmentPart], options: ReadOptions, *, is_dense: bool
) -> None:
    """Report data loss if a segment ends before the last offset that is to be read from it. If the last offset of the
    last cut is not known, the task checks it (decoding/coverage.py)."""
    offer, segment, start_offset, end_offset = piece
    assert offer is not None and segment is not None
    if not cuts:
        reached = max(segment.start_offset, start_offset)
    elif cuts[-1].last_offset is None:
        return
    else:
        reached = cuts[-1].last_offset + 1
    is_end = segment.is_growing and end_offset == offer.high_watermark
    if is_end and reached < end_offset:
        report_data_loss(
            options, f"{view}: the files in {offer.place} end at {reached}, and the high watermark is {end_offset}"
        )
    elif is_dense and reached < end_offset:
        report_data_loss(options, f"{view}: offsets {reached} to {end_offset} are missing in {segment.name}")
    elif not segment.size and (damage := damage_at_end(segment, -1)) is not None:
        report_data_loss(options, f"{view}: {damage}")


class AbortedInRange:
    """The aborted transactions with records in a range of offsets, from all origins. The marker may be in a later
    segment than the records, and that segment may be in another origin."""

    def __init__(self, wanted: OffsetRange) -> None:
        self.wanted = wanted
        self._known: list[AbortedTransaction] | None = None

    def between(self, start_offset: int, end_offset: int) -> tuple[AbortedTransaction, ...]:
        """The aborted transactions with records in [start_offset, end_offset)."""
        if self._known is None:
            view, start, end = self.wanted
            self._known = sorted({each for offer in view.offers for each in offer.aborted(start, end)})
        return tuple(
            each for each in self._known if each.first_offset < end_offset and each.last_offset >= start_offset
        )


def packed_tasks(slices: Sequence[Slice], task_size: int) -> Iterator[Task]:
    """Yield tasks of neighbouring slices. All tasks have about equal sizes, near `task_size` bytes."""
    total = sum(each.size for each in slices) or 1
    count = max(1, round(total / task_size))
    middles = (end - each.size / 2 for each, end in zip(slices, accumulate(each.size for each in slices), strict=True))
    numbered = zip((int(middle * count / total) for middle in middles), slices, strict=True)
    for _, task in groupby(numbered, key=itemgetter(0)):
        yield tuple(each for _, each in task)


INTERNAL_TOPICS: Final = frozenset(
    {
        "__consumer_offsets",
        "__transaction_state",
        "__share_group_state",
        "__cluster_metadata",
        "__remote_log_metadata",
    }
)
"""Internal topics. They are read if they are named, and are never matched by a pattern."""
TOPICS_NAMED_MAX: Final = 10
"""The most topic names in the message of a refusal."""
INTERNAL_TOPIC_CREATION_TEXTS: Final = {
    "__consumer_offsets": "group, so that there is none yet, or its partitions are in other places",
    "__transaction_state": "transactional id, so that there is none yet, or its partitions are in other places",
}
"""For an internal topic that is missing, the end of the error message: it says for what a cluster creates the topic."""


def selected_partitions(found: Iterable[TopicPartition], selection: TopicSelection) -> list[TopicPartition]:
    """The selected partitions, in order. Raises `Refused` if a named partition or topic does not exist."""
    keys = sorted(set(found))
    if selection.is_everything:
        return keys
    if selection.partitions:
        there = set(keys)
        for topic, partition in selection.partitions:
            if (topic, partition) not in there:
                raise Refused(f"assign: {topic}-{partition} is not in the places that are read")
        return sorted(selection.partitions)
    topics = {topic for topic, _ in keys}
    if selection.pattern is not None:
        pattern = re.compile(selection.pattern)
        wanted = {topic for topic in topics - INTERNAL_TOPICS if pattern.fullmatch(topic)}
    else:
        wanted = set(selection.topics)
        for topic in selection.topics:
            if topic in topics:
                continue
            text = f"no partition of {topic} is in the places that are read{_missing_text(topic, topics)}"
            if not selection.is_optional:
                raise Refused(text)
            if topic in INTERNAL_TOPIC_CREATION_TEXTS:
                warn(text)
    chosen = [key for key in keys if key[0] in wanted]
    warn_of_missing_numbers(chosen)
    return chosen


def _missing_text(topic: str, topics: set[str]) -> str:
    """The end of the message about a missing topic: the topics that exist, at most `TOPICS_NAMED_MAX` of them."""
    if topic in INTERNAL_TOPIC_CREATION_TEXTS:
        return f": a cluster makes this topic for its first {INTERNAL_TOPIC_CREATION_TEXTS[topic]}"
    names = sorted(topics - INTERNAL_TOPICS)
    more = f" and {len(names) - TOPICS_NAMED_MAX} more" if len(names) > TOPICS_NAMED_MAX else ""
    return f", only of {', '.join(names[:TOPICS_NAMED_MAX])}{more}{did_you_mean(topic, names)}" if names else ""


def matching_partitions(keys: Iterable[TopicPartition], selection: TopicSelection) -> list[TopicPartition]:
    """Return the partitions in `keys` whose topic is selected by name or by pattern. A pattern selects no internal
    topics.

    Returns an empty list if the selection is of everything, or of single partitions (`assign`), because these must
    exist already.
    """
    if selection.is_everything or selection.partitions:
        return []
    if selection.pattern is None:
        return [key for key in keys if key[0] in selection.topics]
    pattern = re.compile(selection.pattern)
    return [key for key in keys if key[0] not in INTERNAL_TOPICS and pattern.fullmatch(key[0])]


def warn_of_missing_numbers(chosen: Iterable[TopicPartition]) -> None:
    """Warn if the partition numbers of a topic have a gap: the missing partitions may be in another directory."""
    there: dict[str, set[int]] = {}
    for topic, partition in chosen:
        there.setdefault(topic, set()).add(partition)
    for topic, numbers in there.items():
        missing = [str(number) for number in range(max(numbers)) if number not in numbers]
        if missing:
            warn(f"{topic}: partitions {', '.join(missing)} are not in the places that are read")
