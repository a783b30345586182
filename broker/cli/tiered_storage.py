"""The actions of `moldau tier`: status, verify and sweep. They read the metadata of the cluster, and the offset ranges
of the local and the remote log of each partition.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from moldau.broker.cli.client_channels import client_channels
from moldau.broker.cli.invocation import CommandError, Invocation, read_file
from moldau.broker.config.internal_topics import REMOTE_LOG_METADATA_TOPIC
from moldau.broker.tiering.remote_log_metadata import decode_changes, send_and_wait
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from moldau.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from moldau.protocol.messages.metadata import MetadataRequest, MetadataResponse
from moldau.protocol.primitives import MalformedMessage
from moldau.storage.checkpoints.partition_metadata import uuid_text
from moldau.storage.tiered.bucket_reading import read_manifest
from moldau.storage.tiered.layout import CLUSTER_MANIFEST_KEY, ObjectKind, parse_key
from moldau.storage.tiered.manifest import MANIFEST_SIZE_MAX, SegmentManifest, decode_cluster_manifest
from moldau.storage.tiered.metadata.lineage import read_lineage
from moldau.storage.tiered.metadata.remote_log import RemoteLog
from moldau.storage.tiered.metadata.remote_segment import RemotePartition, RemoteSegment
from moldau.storage.tiered.object_options import ObjectStoreOptions
from moldau.storage.tiered.opening import check_cluster, open_storage
from moldau.storage.tiered.port import CorruptObject, ObjectNotFound, RemoteStorage, WrongCluster, get_all
from moldau.storage.tiered.segment_verification import SegmentReport, verify_segment
from moldau.storage.tiered.sweeping import (
    Orphan,
    OrphanSearchResult,
    delete_orphans,
    find_orphans,
    listed_objects,
    stale_probes_and_pins,
)

if TYPE_CHECKING:
    from moldau.storage.tiered.port import ObjectEntry

PURPOSE: Final = "moldau tier"
READ_SIZE: Final = 4 << 20
CONSUMER: Final = -1
LATEST: Final = -1
EARLIEST: Final = -2
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
MS_PER_HOUR: Final = 3_600_000
PROGRESS_EVERY: Final = 100
EXIT_FOUND: Final = 3


class ClusterAddress(NamedTuple):
    """A broker of a cluster, and how the command connects to it."""

    broker: tuple[str, int]
    properties: Mapping[str, str]
    """The properties of a client of Java."""
    source: str
    """The place from which the properties come, for messages."""
    timeout_ms: int


def reached(arguments: argparse.Namespace, invocation: Invocation) -> ClusterAddress:
    """Connect to the cluster that the arguments name, and return the address of one of its brokers. Raises `Failure`,
    with one message for a wrong login, one for an untrusted certificate and one for a broker that does not answer.
    """
    from moldau.broker.cli.daily.client import Client
    from moldau.broker.cli.daily.settings import client_properties

    settings = client_properties(arguments, invocation)
    with Client(settings) as client:
        client.retry("the brokers", lambda: client.topics([]))
        broker = next(iter(client.brokers.values()))
    return ClusterAddress(
        (broker.host, broker.port), settings.java_properties(), settings.source, settings.request_timeout_ms
    )


class TierCommand:
    """The arguments of `moldau tier`, and its output."""

    def __init__(self, arguments: argparse.Namespace, invocation: Invocation) -> None:
        settings = read_file(arguments.config) if arguments.config else {}
        self.cluster_at: ClusterAddress | None = None
        """The cluster that is asked; None if the manifests in the storage are enough."""
        self.storage_url: str | None = arguments.storage or settings.get("moldau.tiered.storage")
        self.options = ObjectStoreOptions(
            endpoint=arguments.endpoint or settings.get("moldau.tiered.storage.endpoint"),
            region=arguments.region or settings.get("moldau.tiered.storage.region"),
        )
        self.topics: Sequence[str] = arguments.topic
        self.is_json: bool = arguments.json
        self.is_dry_run: bool = arguments.dry_run
        self.min_age_ms = round(arguments.min_age_hours * MS_PER_HOUR)
        self._invocation = invocation

    def now_ms(self) -> int:
        """The wall clock, in ms since 1970."""
        return time.time_ns() // 1_000_000

    def is_selected(self, topic: str) -> bool:
        return not self.topics or topic in self.topics

    def say(self, fields: dict[str, object], text: str, *styles: str) -> None:
        """Print one line: `text`, or `fields` as JSON if the output is JSON."""
        if self.is_json:
            self._invocation.out.say(json.dumps(fields))
        else:
            self._invocation.out.say(text, *styles)

    def progress(self, text: str) -> None:
        """Write a line of progress to standard error, if it is a terminal."""
        if self._invocation.errors.is_terminal:
            self._invocation.errors.say(text, "dim")

    @asynccontextmanager
    async def storage(self) -> AsyncIterator[RemoteStorage]:
        assert self.storage_url is not None
        storage = open_storage(self.storage_url, random.Random(), asyncio.sleep, options=self.options)
        try:
            yield storage
        finally:
            await storage.close()

    @asynccontextmanager
    async def cluster(self) -> AsyncIterator[ClusterReader]:
        assert self.cluster_at is not None
        reader = ClusterReader(self.cluster_at)
        try:
            await reader.refresh()
            yield reader
        finally:
            reader.close()


async def show_status(command: TierCommand) -> int:
    """Print one line for each partition with remote segments, and a total."""
    async with command.cluster() as cluster:
        remote_logs = await cluster.remote_logs()
        partitions = [
            each for each in cluster.partitions if each.key in remote_logs and command.is_selected(each.key.topic)
        ]
        led = [each for each in partitions if cluster.has_leader(each)]
        kinds = [await cluster.offsets(led, each) for each in (EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, LATEST)]
    offsets = {each.key: PartitionOffsets(*(kind.get(each.key, -1) for kind in kinds)) for each in partitions}
    found = [
        status_of(key, remote_logs[key], offsets.get(key))
        for key in sorted(remote_logs)
        if command.is_selected(key.topic) and len(remote_logs[key])
    ]
    if not command.is_json:
        command.say({}, "  ".join(f"{name:>12}" for name in PartitionStatus._fields[1:-1]) + "  topic")
    for each in found:
        gone = "" if each.exists else "  (the topic does not exist any more)"
        text = "  ".join(f"{value if value != -1 else '-':>12}" for value in each[1:-1]) + f"  {each.topic}{gone}"
        command.say(each._asdict(), text)
    if not command.is_json:
        segments, size = sum(each.segments for each in found), sum(each.bytes for each in found)
        command.say({}, f"{len(found)} partitions, {segments} segments, {size} bytes")
    return 0


async def verify(command: TierCommand) -> int:
    """Verify every object of every segment that is in use. Returns the exit status: 1 if an object is damaged."""
    async with command.storage() as storage:
        if command.cluster_at is None:
            return await _verify_by_manifests(command, storage)
        async with command.cluster() as cluster:
            await _check_owner(storage, cluster.cluster_id)
            bad, count = 0, 0
            for key, segment in _read_segments(command, await cluster.remote_logs()):
                report = await verify_segment(storage, cluster.cluster_id, key, segment)
                if report.problems and not await _is_still_read(cluster, key, segment):
                    continue  # The segment was replaced or deleted in the meantime.
                count += 1
                bad += _print_problems(command, key, segment.start_offset, segment.segment_id, report)
                if count % PROGRESS_EVERY == 0:
                    command.progress(f"{count} segments verified")
    return _print_summary(command, count, bad)


def _read_segments(
    command: TierCommand, remote_logs: dict[RemotePartition, RemoteLog]
) -> list[tuple[RemotePartition, RemoteSegment]]:
    wanted = [key for key in sorted(remote_logs) if command.is_selected(key.topic)]
    return [(key, segment) for key in wanted for segment in remote_logs[key].read_segments()]


async def _is_still_read(cluster: ClusterReader, key: RemotePartition, segment: RemoteSegment) -> bool:
    remote_log = (await cluster.remote_logs()).get(key)
    return remote_log is not None and segment.segment_id in {each.segment_id for each in remote_log.read_segments()}


async def _check_owner(storage: RemoteStorage, cluster_id: str) -> None:
    """Check that the storage belongs to the cluster.

    Raises CommandError if it belongs to no cluster, and `WrongCluster` if it belongs to another.
    """
    try:
        await check_cluster(storage, cluster_id)
    except ObjectNotFound:
        raise CommandError(f"the storage has no {CLUSTER_MANIFEST_KEY}: it belongs to no cluster") from None


async def _verify_by_manifests(command: TierCommand, storage: RemoteStorage) -> int:
    """Verify without a broker: check every segment that has a manifest in the storage. Returns the exit status."""
    try:
        owner = decode_cluster_manifest(
            CLUSTER_MANIFEST_KEY, await get_all(storage, CLUSTER_MANIFEST_KEY, MANIFEST_SIZE_MAX)
        )
    except ObjectNotFound:
        raise CommandError(f"the storage has no {CLUSTER_MANIFEST_KEY}: it belongs to no cluster") from None
    count = bad = 0
    for entry in await listed_objects(storage):
        named = parse_key(entry.key)
        if named is None or named.kind is not ObjectKind.MANIFEST or not command.is_selected(named.partition.topic):
            continue
        report = SegmentReport()
        try:
            manifest = await read_manifest(storage, owner, entry.key)
        except ObjectNotFound:
            continue  # The manifest was deleted after the listing.
        except (CorruptObject, WrongCluster) as error:
            report.problems.append(str(error))
        else:
            report = await verify_segment(storage, owner, named.partition, _described(manifest))
        count += 1
        bad += _print_problems(command, named.partition, named.start_offset, named.segment_id, report)
        if count % PROGRESS_EVERY == 0:
            command.progress(f"{count} segments verified")
    return _print_summary(command, count, bad)


def _described(manifest: SegmentManifest) -> RemoteSegment:
    """The metadata of a segment that its manifest contains. Fields that the manifest lacks are -1."""
    return RemoteSegment(
        manifest.segment_id,
        manifest.start_offset,
        manifest.last_offset,
        -1,
        manifest.max_timestamp_ms,
        -1,
        manifest.epochs,
        manifest.objects[ObjectKind.LOG].size,
        has_transaction_index=ObjectKind.TRANSACTION_INDEX in manifest.objects,
    )


def _print_problems(
    command: TierCommand, key: RemotePartition, start_offset: int, segment_id: bytes, report: SegmentReport
) -> bool:
    """Print the problems that a verification found. Returns whether there is one."""
    for problem in report.problems:
        fields: dict[str, object] = {
            "topic": key.topic,
            "partition": key.partition,
            "start_offset": start_offset,
            "segment_id": uuid_text(segment_id),
            "problem": problem,
        }
        place = f"{key.topic}-{key.partition}, segment {uuid_text(segment_id)} at offset {start_offset}"
        command.say(fields, f"{place}: {problem}", "red")
    return bool(report.problems)


def _print_summary(command: TierCommand, count: int, bad: int) -> int:
    fields: dict[str, object] = {"segments": count, "damaged_segments": bad}
    command.say(fields, f"{count} segments verified, {bad} of them damaged", "red" if bad else "green")
    return 1 if bad else 0


async def sweep(command: TierCommand) -> int:
    """Delete the objects that belong to no segment, or with `--dry-run` only print them. Returns the exit status."""
    async with command.storage() as storage, command.cluster() as cluster:
        await _check_owner(storage, cluster.cluster_id)
        listing = await listed_objects(storage)
        command.progress(f"{len(listing)} objects listed")
        await cluster.refresh()
        remote_logs = await cluster.remote_logs()
        if listing and not remote_logs:
            raise CommandError("the metadata topic has no record, and the storage has objects: nothing is deleted")
        now_ms = command.now_ms()
        found = _orphans(command, cluster, listing, remote_logs, now_ms)
        doomed = [each for each in found.orphans if command.is_selected(_topic_of(each))]
        if not command.topics:
            doomed += [each async for each in stale_probes_and_pins(storage, now_ms - command.min_age_ms, now_ms)]
        for each in doomed:
            said = "would delete" if command.is_dry_run else "deleting"
            fields: dict[str, object] = {"key": each.entry.key, "size": each.entry.size, "reason": each.reason}
            command.say(fields, f"{said} {each.entry.key} ({each.entry.size} bytes): {each.reason}")
        if not command.is_dry_run:
            await delete_orphans(storage, doomed)
    for entry in found.unknown:
        command.say({"key": entry.key, "unknown": True}, f"left alone, its name says nothing: {entry.key}", "yellow")
    size = sum(each.entry.size for each in doomed)
    what = "orphans found" if command.is_dry_run else "orphans deleted"
    command.say(
        {"orphans": len(doomed), "bytes": size, "young": len(found.young), "is_dry_run": command.is_dry_run},
        f"{len(doomed)} {what}, {size} bytes; {len(found.young)} more are too young to tell",
    )
    return EXIT_FOUND if command.is_dry_run and doomed else 0


def _orphans(
    command: TierCommand,
    cluster: ClusterReader,
    listing: Sequence[ObjectEntry],
    remote_logs: dict[RemotePartition, RemoteLog],
    now_ms: int,
) -> OrphanSearchResult:
    existing = {(each.key.topic, each.key.topic_id) for each in cluster.partitions}
    return find_orphans(
        listing, remote_logs, lambda each: (each.topic, each.topic_id) in existing, now_ms - command.min_age_ms
    )


def _topic_of(orphan: Orphan) -> str:
    named = parse_key(orphan.entry.key)
    return named.partition.topic if named is not None else ""


# The metadata of a cluster


class LedPartition(NamedTuple):
    """A partition and the node id of its leader."""

    key: RemotePartition
    leader_id: int


class ClusterReader:
    """Reads metadata, offsets and the records of the remote log metadata topic from the brokers of one cluster. Raises
    CommandError if a broker does not respond, or refuses.
    """

    def __init__(self, at: ClusterAddress) -> None:
        self._bootstrap = at.broker
        self._timeout_ms = at.timeout_ms
        self._channels = client_channels(PURPOSE, at.properties, at.source)
        self._addresses: dict[int, tuple[str, int]] = {}
        self.cluster_id = ""
        self.partitions: list[LedPartition] = []
        """All partitions, by topic and number."""

    def close(self) -> None:
        self._channels.close()

    async def refresh(self) -> None:
        """Request the metadata of the cluster and of all topics again."""
        response = await self._ask(self._bootstrap, MetadataRequest(topics=None, allow_auto_topic_creation=False))
        assert isinstance(response, MetadataResponse)
        self.cluster_id = response.cluster_id or ""
        self._addresses = {each.node_id: (each.host, each.port) for each in response.brokers}
        self.partitions = [
            LedPartition(RemotePartition(topic.name or "", bytes(topic.topic_id), each.partition_index), each.leader_id)
            for topic in sorted(response.topics, key=lambda each: each.name or "")
            for each in sorted(topic.partitions, key=lambda each: each.partition_index)
        ]

    async def remote_logs(self) -> dict[RemotePartition, RemoteLog]:
        """The remote log of each partition, computed from all committed records of the remote log metadata topic."""
        partitions = [each for each in self.partitions if each.key.topic == REMOTE_LOG_METADATA_TOPIC]
        if not partitions:
            topic = REMOTE_LOG_METADATA_TOPIC
            raise CommandError(f"nothing was ever tiered: there is no topic {topic}, or the user may not describe it")
        found: dict[RemotePartition, RemoteLog] = {}
        for partition in partitions:
            await self._replay(partition, found)
        return found

    async def _replay(self, partition: LedPartition, found: dict[RemotePartition, RemoteLog]) -> None:
        name = f"{partition.key.topic}-{partition.key.partition}"
        start_offset = (await self.offsets([partition], EARLIEST))[partition.key]
        if start_offset != 0:
            raise CommandError(f"{name} begins at offset {start_offset}: what was before it is not known any more")
        end_offset = (await self.offsets([partition], LATEST))[partition.key]
        position = 0
        while position < end_offset:
            wanted = FetchPartition(
                partition=partition.key.partition, fetch_offset=position, partition_max_bytes=READ_SIZE
            )
            request = FetchRequest(
                replica_id=CONSUMER,
                max_wait_ms=1000,
                min_bytes=1,
                max_bytes=READ_SIZE,
                topics=[FetchTopic(topic=partition.key.topic, topic_id=partition.key.topic_id, partitions=[wanted])],
            )
            response = await self._ask(self._leader(partition), request)
            assert isinstance(response, FetchResponse)
            if not response.responses and response.throttle_time_ms:
                await asyncio.sleep(response.throttle_time_ms / 1000)
                continue
            data = response.responses[0].partitions[0]
            self._refuse(data.error_code, f"{name} cannot be read at offset {position}")
            records = data.records
            assert records is None or isinstance(records, bytes | memoryview)
            if not records:
                raise CommandError(f"{name} gave nothing at offset {position}, before its end at {end_offset}")
            try:
                changes, position, unreadable = decode_changes(records, position)
            except MalformedMessage as malformed:
                raise CommandError(f"{name} is damaged at offset {position}: {malformed}") from None
            for offset, reason in unreadable:
                raise CommandError(f"{name}: the record at offset {offset} cannot be read: {reason}")
            for change in changes:
                if change.partition is not None:
                    found.setdefault(change.partition, RemoteLog()).replay(change.change)

    async def offsets(self, partitions: Iterable[LedPartition], timestamp: int) -> dict[RemotePartition, int]:
        """The offset of each partition for a timestamp (ms), or for a special timestamp such as `EARLIEST`; -1 if there
        is none.
        """
        by_leader: dict[int, dict[str, list[LedPartition]]] = {}
        for partition in partitions:
            by_leader.setdefault(partition.leader_id, {}).setdefault(partition.key.topic, []).append(partition)
        found: dict[RemotePartition, int] = {}
        for topics in by_leader.values():
            request = ListOffsetsRequest(
                replica_id=CONSUMER,
                topics=[
                    ListOffsetsTopic(
                        name=name,
                        partitions=[
                            ListOffsetsPartition(partition_index=each.key.partition, timestamp=timestamp)
                            for each in members
                        ],
                    )
                    for name, members in topics.items()
                ],
                timeout_ms=self._timeout_ms,
            )
            some = next(iter(topics.values()))[0]
            response = await self._ask(self._leader(some), request)
            assert isinstance(response, ListOffsetsResponse)
            keys = {(each.key.topic, each.key.partition): each.key for members in topics.values() for each in members}
            for topic in response.topics:
                for data in topic.partitions:
                    self._refuse(data.error_code, f"{topic.name}-{data.partition_index}")
                    found[keys[topic.name, data.partition_index]] = data.offset
        return found

    def has_leader(self, partition: LedPartition) -> bool:
        """Whether a partition had a leader when the metadata were requested."""
        return partition.leader_id in self._addresses

    def _leader(self, partition: LedPartition) -> tuple[str, int]:
        address = self._addresses.get(partition.leader_id)
        if address is None:
            raise CommandError(f"{partition.key.topic}-{partition.key.partition} has no leader now")
        return address

    def _refuse(self, error_code: int, what: str) -> None:
        if error_code != ErrorCode.NONE:
            raise CommandError(f"{what}: {ErrorCode(error_code).name}")

    async def _ask(self, address: tuple[str, int], request: object) -> object:
        response = await send_and_wait(self._channels.to(PURPOSE, *address), request, self._timeout_ms)
        if response is None:
            raise CommandError(f"{address[0]}:{address[1]} does not answer")
        return response


# The ranges of a partition's tiers


class PartitionOffsets(NamedTuple):
    """The offset ranges of a partition's local and remote log. An offset that is not known is -1."""

    log_start_offset: int
    local_start_offset: int
    tiered_offset: int
    """The last offset (inclusive) that is copied to remote storage."""
    end_offset: int


class PartitionStatus(NamedTuple):
    """The status of one partition: a line of `tier status`. The names of the fields are those of its JSON."""

    topic: str
    partition: int
    segments: int
    """The number of segments in remote storage that are in use."""
    bytes: int
    remote_start: int
    """The first offset in remote storage; -1 if there is none."""
    remote_end: int
    """The end (exclusive) of the offsets in remote storage."""
    local_start: int
    log_end: int
    copy_lag: int
    """The number of offsets that are not copied yet, including those of the active segment."""
    cleaned_end: int
    """For a compacted topic: the offset (exclusive) up to which every remote segment is cleaned; -1 otherwise."""
    copying: int
    """The number of copies that have begun and are not finished."""
    superseded: int
    """The number of segments that another segment has replaced; they are deleted after a grace time."""
    deleting: int
    """The number of segments whose deletion has begun and is not finished."""
    exists: bool
    """Whether the topic still exists."""


def status_of(key: RemotePartition, remote_log: RemoteLog, offsets: PartitionOffsets | None) -> PartitionStatus:
    """The status of a partition's remote log. `offsets` is None if the topic does not exist any more."""
    read = remote_log.read_segments()
    known = offsets or PartitionOffsets(-1, -1, -1, -1)
    lineages = [read_lineage(each.custom_metadata) for each in read]
    is_compacted = any(each is not None and each.cleaned_end_offset for each in lineages)
    return PartitionStatus(
        topic=key.topic,
        partition=key.partition,
        segments=len(read),
        bytes=sum(each.size for each in read),
        remote_start=min((each.start_offset for each in read), default=-1),
        remote_end=max((each.last_offset + 1 for each in read), default=-1),
        local_start=known.local_start_offset,
        log_end=known.end_offset,
        copy_lag=-1 if known.end_offset < 0 else max(0, known.end_offset - max(known.tiered_offset + 1, 0)),
        cleaned_end=remote_log.cleaned_end_offset() if is_compacted else -1,
        copying=len(remote_log.unfinished_copies()),
        superseded=len(remote_log.superseded_copies()),
        deleting=len(remote_log.segments_in_deletion()),
        exists=offsets is not None,
    )
