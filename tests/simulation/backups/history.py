"""Logs that grow and lose their ends, and the source of a backup that reads them as files.

Beside the transactional producers of `tests/support/transaction_histories.py` a plain producer writes the topic
`events`, whose log has gaps and an unclean election cuts it now and then, a group commits offsets without a
transaction, and a share group stores what it has delivered of `events`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from moldau.backup.manifest import PartitionKey
from moldau.backup.sources.log_files import LogFiles
from moldau.backup.sources.order import SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC, listing_rounds_of
from moldau.backup.sources.port import LogEnds, MetadataSnapshot
from moldau.coordinator.group.records import CommittedOffset, OffsetChange, offset_record
from moldau.coordinator.share_coordinator.records import ShareStateChange, record_of
from moldau.coordinator.share_coordinator.state import ShareKey, ShareState, StateBatch
from moldau.protocol.record_batch import parse_header
from moldau.protocol.record_builder import Record, build_batch
from moldau.storage.files.log_paths import LOG_SUFFIX, offset_name
from moldau.storage.files.memory_files import MemoryFiles
from tests.support.transaction_histories import DATA, OFFSETS, STATES, STEP_MS, Log, TopicPartition, World
from tests.unit.backup.logs import CLUSTER, metadata_of

EVENTS: Final = ("events", 0)
PLAIN_GROUP: Final = "plain"
SECRET: Final = b"secret"
"""A part of each value and key of `events`."""
LOST_MAX: Final = 3
"""The most batches that an election loses."""
GAPS: Final = 0.2
"""The probability that offsets are missing before a batch of `events`, because its records were compacted away."""
GAP_MAX: Final = 9
ROLLS: Final = 0.1
"""The probability that a batch is the first one of its segment."""
SHARES: Final = (SHARE_STATE_TOPIC, 0)
TOPICS: Final = ("events", "in", "out", OFFSETS[0], SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC)
IDS: Final = {name: name.encode()[:16].ljust(16, b"\0") for name in TOPICS}


@dataclass(frozen=True)
class FileLog:
    """A `SourceLog` whose reader reads files."""

    key: PartitionKey
    end_offset: int
    batches: Sequence[bytes]
    """The batches of the log as it is read, also those behind its end in the backup."""
    fs: MemoryFiles
    on_read: Callable[[PartitionKey, int], None]
    start_offset: int = 0

    @property
    def place(self) -> str:
        return f"/source/{self.key}"

    @property
    def asked(self) -> list[bytes]:
        """The batches that a backup has to have."""
        return [each for each in self.batches if parse_header(each).next_offset <= self.end_offset]

    def has_epoch_up_to(self, epoch: int, end_offset: int) -> bool:
        headers = map(parse_header, self.asked)
        ends = [header.next_offset for header in headers if header.partition_leader_epoch == epoch]
        return bool(ends) and max(ends) >= end_offset

    def open_reader(self) -> WatchedReader:
        return WatchedReader(LogFiles(self.fs, self.place), self)


@dataclass(frozen=True)
class WatchedReader:
    files: LogFiles
    log: FileLog

    def read(self, offset: int, taken: int) -> bytes:
        self.log.on_read(self.log.key, offset)
        return self.files.read(offset, taken)

    def close(self) -> None:
        self.files.close()


@dataclass
class Asked:
    """A `BackupSource` that was asked for the ends of its logs."""

    ends: LogEnds
    logs: Mapping[TopicPartition, FileLog]
    cluster_id: str = CLUSTER
    readers_max: int = 1

    def list_log_ends(self) -> LogEnds:
        return self.ends


class History:
    """The logs of a cluster, and what is true of them."""

    def __init__(self, random: Random, seed: int, *, skew_ms: int, client_skew_ms: int, asks_first: bool) -> None:
        """`asks_first`: whether the source tells the ends of `__transaction_state` before all others."""
        self.random = random
        self.world = World(seed, skew_ms=skew_ms, client_skew_ms=client_skew_ms)
        self.asks_first = asks_first
        self.events = Log()
        self.losses = 0
        """How often `events` has lost its end; also its leader epoch."""
        self._shares = Log(self.random.randint(-skew_ms, skew_ms))
        self._client_skew_ms = client_skew_ms
        self._count = self._share_start = 0

    @property
    def now_ms(self) -> int:
        return self.world.now_ms

    def log_of(self, key: TopicPartition) -> Log:
        if key in (EVENTS, SHARES):
            return self.events if key == EVENTS else self._shares
        return self.world.states[key[1]] if key[0] == TRANSACTIONS_TOPIC else self.world.logs[key]

    def run(self, steps: int, *, loses: bool = True) -> None:
        for _ in range(steps):
            drawn = self.random.random()
            if drawn < 0.7:
                self.world.run(1)
                continue
            self.world.now_ms += STEP_MS
            if drawn < 0.86:
                self._write_event()
            elif drawn < 0.94:
                self._commit()
            elif drawn < 0.98:
                self._share()
            elif loses:
                self._lose_end()

    def _write_event(self) -> None:
        timestamp = self.now_ms + self.random.randint(-self._client_skew_ms, self._client_skew_ms)
        records = []
        for _ in range(self.random.randint(1, 2)):
            self._count += 1
            name = b"%s-%d" % (SECRET, self._count)
            records.append(Record(name, b'{"name": "%s", "n": 1}' % name, timestamp))
        if self.random.random() < GAPS:
            self.events.end_offset += self.random.randint(1, GAP_MAX)
        self.events.append(build_batch(records, partition_leader_epoch=self.losses))

    def _commit(self) -> None:
        """The plain group commits an offset near the end of a log."""
        key = self.random.choice((EVENTS, *DATA))
        end = self.events.end_offset if key == EVENTS else self.world.last_stable_offset(key)
        offset = self.random.randint(max(0, end - 3), end)
        change = OffsetChange(PLAIN_GROUP, *key, CommittedOffset(offset, 0, "", self.now_ms))
        log = self.world.logs[OFFSETS]
        log.append(build_batch([offset_record(change, self.now_ms + log.skew_ms)], partition_leader_epoch=2))

    def _share(self) -> None:
        """The share group has got all records up to an offset, and one behind it."""
        start, end = self._share_start, self.events.end_offset
        self._share_start = start = self.random.randint(min(start, end), end)
        delivered = (StateBatch(end - 1, end - 1, 2, 1),) if start < end - 1 else ()
        state = ShareState(0, 1, 0, start, len(delivered), delivered, self.now_ms, self.now_ms)
        change = ShareStateChange(ShareKey("share", IDS["events"], 0), state)
        record = record_of(change, self.now_ms + self._shares.skew_ms)
        self._shares.append(build_batch([record], partition_leader_epoch=2))

    def _lose_end(self) -> None:
        """Another replica is elected that lacks the last batches."""
        count = self.random.randint(1, LOST_MAX)
        if len(self.events.batches) > count:
            self.losses += 1
            del self.events.batches[-count:]
            self.events.end_offset = parse_header(self.events.batches[-1]).next_offset

    def ask(self, pause: int, on_read: Callable[[PartitionKey, int], None]) -> Asked:
        """Ask for the ends of all logs in the order of a backup, with up to `pause` steps between two questions."""

        def asked(key: TopicPartition) -> int:
            self.run(self.random.randint(0, pause), loses=False)
            return self.log_of(key).end_offset

        began_ms = self.now_ms
        states = [(TRANSACTIONS_TOPIC, index) for index in STATES]
        decided = {index: asked((topic, index)) for topic, index in states} if self.asks_first else {}
        ends: dict[TopicPartition, int] = {}
        for names in listing_rounds_of(TOPICS):
            keys = [key for key in (EVENTS, *DATA, OFFSETS, SHARES, *states) if key[0] in names]
            ends |= {key: asked(key) for key in self.random.sample(keys, len(keys))}
        known_ms = self.now_ms
        self.run(pause, loses=False)
        fs = MemoryFiles(lambda: self.now_ms)
        logs = {key: self._as_files(fs, key, ends[key], on_read) for key in sorted(ends)}
        metadata = MetadataSnapshot(50, 3, metadata_of(logs, IDS))
        return Asked(LogEnds(began_ms, known_ms, metadata, [*logs.values()], decided), logs)

    def _as_files(
        self, fs: MemoryFiles, key: TopicPartition, end: int, on_read: Callable[[PartitionKey, int], None]
    ) -> FileLog:
        log = FileLog(PartitionKey(key[0], IDS[key[0]], key[1]), end, [*self.log_of(key).batches], fs, on_read)
        fs.make_directories(log.place)
        base_offset = 0
        for number, each in enumerate(log.batches):
            if number and self.random.random() < ROLLS:
                base_offset = parse_header(each).base_offset
            file = fs.open(f"{log.place}/{offset_name(base_offset, LOG_SUFFIX)}", create=True)
            file.append([each])
            file.close()
        return log
