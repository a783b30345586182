"""Logs in memory as the source of a backup, and backups of them in a simulated store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from moldau.backup.manifest import BackupManifest, PartitionBackup, PartitionKey
from moldau.backup.reading import read_batches
from moldau.backup.sources.port import LogEnds, LogStartMoved, MetadataSnapshot
from moldau.backup.store import BackupStore
from moldau.backup.taking import BackupProgress, BackupResult, BackupShell, take_backup
from moldau.backup.throttle import CopyThrottle
from moldau.kraft.image.metadata_image import Provenance
from moldau.kraft.image.replay import Replay
from moldau.kraft.quorum.control_records import QuorumDescription
from moldau.kraft.quorum.voter_set import VoterNode, VoterSet
from moldau.kraft.snapshot.batches import snapshot_batches
from moldau.protocol.record_batch import parse_header
from moldau.protocol.record_builder import Record, build_batch
from moldau.protocol.records.metadata import (
    FeatureLevelRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from moldau.testing.simulation.storage import SimulatedBucket, StorageFaults
from tests.unit.storage.tiered.storages import simulated

T = TypeVar("T")
CLUSTER = "GxYvZLWkQkO8LtvI8XHoYQ"
NODES = (1, 2)
PIECE_SIZE = 400
NOW_MS = 1_795_990_000_000


def batch(offset: int, count: int = 2, *, epoch: int = 0, value: bytes = b"v") -> bytes:
    records = [Record(None, value + b"%d" % number, 1_000 + offset) for number in range(count)]
    return build_batch(records, base_offset=offset, partition_leader_epoch=epoch)


def batches(start: int, end: int, *, epoch: int = 0, value: bytes = b"v") -> list[bytes]:
    """Batches of two records with all offsets from start to end."""
    return [batch(offset, epoch=epoch, value=value) for offset in range(start, end, 2)]


@dataclass
class MemoryLog:
    """A `SourceLog`, and its own `LogReader`: as if it were read while it changes."""

    topic: str
    log: list[bytes]
    partition: int = 0
    start_offset: int = 0
    read_size: int = 150
    """A read ends after so many bytes, in the middle of a batch."""
    before_read: Callable[[int], None] = lambda offset: None
    """Called with the offset of each read."""
    reads: list[int] = field(default_factory=list)
    end: int | None = None

    @property
    def key(self) -> PartitionKey:
        return PartitionKey(self.topic, self.topic.encode().ljust(16, b"\0"), self.partition)

    @property
    def place(self) -> str:
        return f"memory/{self.topic}"

    @property
    def end_offset(self) -> int:
        if self.end is not None:
            return self.end
        return parse_header(self.log[-1], 0).next_offset if self.log else self.start_offset

    def has_epoch_up_to(self, epoch: int, end_offset: int) -> bool:
        ends = [header.next_offset for header in map(parse_header, self.log) if header.partition_leader_epoch == epoch]
        return bool(ends) and max(ends) >= end_offset

    def open_reader(self) -> MemoryLog:
        return self

    def read(self, offset: int, taken: int) -> bytes:
        self.reads.append(offset)
        self.before_read(offset)
        if offset < self.start_offset:
            raise LogStartMoved(self.start_offset)
        found = [each for each in self.log if parse_header(each, 0).next_offset > offset]
        return b"".join(found)[: max(self.read_size, len(found[0]))] if found else b""

    def close(self) -> None:
        pass


@dataclass
class MemorySource:
    """A `BackupSource`."""

    logs: Sequence[MemoryLog]
    cluster_id: str = CLUSTER
    readers_max: int = 1

    def list_log_ends(self) -> LogEnds:
        return LogEnds(NOW_MS, NOW_MS + 5, MetadataSnapshot(7, 1, b"metadata"), self.logs)


def metadata_of(keys: Collection[tuple[str, int]], ids: Mapping[str, bytes]) -> bytes:
    """The metadata of topics by name and partition: two brokers, of which 1 is the controller, and a user; every
    partition is on both.
    """
    names = sorted({name for name, _ in keys})
    replay = Replay()
    records: list[object] = [
        FeatureLevelRecord(name="metadata.version", feature_level=25),
        FeatureLevelRecord(name="transaction.version", feature_level=2),
        *(RegisterBrokerRecord(broker_id=node, incarnation_id=bytes(16), broker_epoch=node) for node in NODES),
        *(TopicRecord(name=name, topic_id=ids[name]) for name in names),
        *(
            PartitionRecord(
                partition_id=index,
                topic_id=ids[name],
                replicas=[*NODES],
                isr=[*NODES],
                leader=1,
                leader_epoch=1,
                directories=[bytes([9]) * 16] * 2,
            )
            for name, index in sorted(keys)
        ),
        UserScramCredentialRecord(
            name="ada", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
        ),
    ]
    replay.replay(records, Provenance(50, 3))
    voters = VoterSet.from_voters([VoterNode(1, b"v" * 16, (("CONTROLLER", ("localhost", 9093)),))])
    return b"".join(
        snapshot_batches(
            replay.image.snapshot_records(),
            QuorumDescription(1, voters),
            metadata_version=25,
            epoch=3,
            last_contained_ms=0,
            now_ms=0,
        )
    )


async def inline(function: Callable[[], T], /) -> T:
    return function()


def offloaded(function: Callable[[], T], /) -> Awaitable[T]:
    return inline(function)


def shell_of(reports: list[BackupProgress] | None = None, *, now_ms: int = NOW_MS) -> BackupShell:
    async def no_sleep(seconds: float) -> None:
        raise AssertionError("there is no bound")

    return BackupShell(
        lambda: now_ms,
        offloaded,
        CopyThrottle(None, lambda: 0.0, no_sleep),
        ([] if reports is None else reports).append,
    )


def store_of(bucket: SimulatedBucket, faults: StorageFaults | None = None) -> BackupStore:
    storage, _ = simulated(faults, bucket)
    return BackupStore(storage)


def backed_up(bucket: SimulatedBucket, *logs: MemoryLog, now_ms: int = NOW_MS) -> BackupResult:
    """Take a backup of some logs."""

    async def take() -> BackupResult:
        shell = shell_of(now_ms=now_ms)
        return await take_backup(store_of(bucket), MemorySource(logs), shell, piece_size=PIECE_SIZE)

    return asyncio.run(take())


def restored(bucket: SimulatedBucket, manifest: BackupManifest) -> dict[str, list[bytes]]:
    """The batches of each partition of a backup."""

    async def read() -> dict[str, list[bytes]]:
        storage = store_of(bucket).storage
        return {
            str(key): [bytes(data) async for _, data in read_batches(storage, key, part)]
            for key, part in manifest.partitions()
        }

    return asyncio.run(read())


def part_of(taken: BackupResult) -> PartitionBackup:
    """The one partition of a backup."""
    ((_, part),) = taken.manifest.partitions()
    return part
