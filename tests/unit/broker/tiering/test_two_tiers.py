"""For any history, consumers of both tiers see the latest committed value of each key, and nothing deleted comes back.

A history appends plain and transactional batches with tombstones, ends transactions, rolls, copies, turns the topic
into a compacted one, cleans the log of either replica, cleans remote segments in passes that may be killed at any
event, deletes what is local and copied, deletes what was superseded, changes the leader, and finishes late what a
former leader began. A follower reads the metadata late. Checked after each step, for both replicas as leaders:

    the table of a read_committed consumer from the beginning
    the table of a consumer that had read up to an offset, and goes on within delete.retention.ms
    no record of an aborted transaction is seen
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from moldau.protocol.compression import Codec
from moldau.protocol.control_records import end_transaction_marker
from moldau.protocol.record_builder import Record, build_batch
from moldau.storage.compaction.request import CleanerLimits
from moldau.storage.log_config import LogConfig
from tests.unit.broker.tiering.two_tiers import TwoTiers
from tests.unit.storage.compaction.histories import NOW_MS, apply

pytestmark = pytest.mark.slow

RETENTION_MS = 1000
KEYS = "abcdef"
PRODUCERS = (10, 11, 12)
STEPS = 120


class Story:
    """The partition under a history, and what its consumers must see."""

    def __init__(self, seed: int) -> None:
        random = self.random = Random(seed)
        self.tiers = TwoTiers(
            random,
            LogConfig(
                segment_bytes=random.choice([400, 800, 2000]),
                index_interval_bytes=100,
                cleanup_policy=("compact",) if random.random() < 0.7 else ("delete",),
                delete_retention_ms=RETENTION_MS,
                min_cleanable_dirty_ratio=random.choice([0.0, 0.01, 0.3]),
                is_tiered=True,
                local_retention_bytes=0,
                retention_ms=-1,
            ),
        )
        self.written: list[tuple[int, int, Record]] = []
        """(producer, offset, record) of all data."""
        self.sequences: dict[int, int] = {}
        self.open: dict[int, int] = {}
        """By producer: the index in `written` where its open transaction begins."""
        self.ended: list[tuple[int, int, int, bool]] = []
        """(producer, first index, end index, commits)."""
        self.count = 0
        self.consumers: list[tuple[int, int, dict[bytes, bytes]]] = []

    def append(self) -> None:
        random = self.random
        producer = random.choice([-1, -1, *PRODUCERS])
        records = []
        for _ in range(random.randint(1, 4)):
            self.count += 1
            value = None if random.random() < 0.3 else f"value {self.count}".encode()
            records.append(Record(random.choice(KEYS).encode(), value, NOW_MS + self.count))
        sequence = self.sequences.get(producer, 0)
        fields = (-1, -1, -1)
        if producer >= 0:
            fields = (producer, 0, sequence)
            self.sequences[producer] = sequence + len(records)
            self.open.setdefault(producer, len(self.written))
        codec = random.choice([Codec.NONE, Codec.NONE, Codec.GZIP])
        data = build_batch(
            records,
            codec=codec,
            producer_id=fields[0],
            producer_epoch=fields[1],
            base_sequence=fields[2],
            is_transactional=producer >= 0,
        )
        base_offset = self.tiers.append(data)
        self.written += [(producer, base_offset + number, each) for number, each in enumerate(records)]

    def end(self) -> None:
        if self.open:
            producer = self.random.choice(sorted(self.open))
            commits = self.random.random() < 0.6
            self.tiers.append(
                end_transaction_marker(
                    commits=commits, producer_id=producer, producer_epoch=0, coordinator_epoch=1, timestamp=NOW_MS
                )
            )
            self.ended.append((producer, self.open.pop(producer), len(self.written), commits))

    def roll(self) -> None:
        self.random.choice(self.tiers.replicas).log.roll(self.tiers.now_ms)

    def compact(self) -> None:
        """From now on the topic is compacted. Until then segments were copied as they are, aborted data included."""
        for replica in self.tiers.replicas:
            replica.log.config = replace(replica.log.config, cleanup_policy=("compact",))

    def clean_local(self) -> None:
        if not self.tiers.leader.log.config.is_compacted:
            return
        self.pass_time()
        self.tiers.clean_local(self.random.choice([self.tiers.leader, *self.tiers.replicas]), self.limits())

    def copy(self) -> None:
        # Before the topic is compacted, a late copy is taken as Apache Kafka takes it, which may leave a hole.
        late = 0.15 if self.tiers.leader.log.config.is_compacted else 0.0
        for _ in range(self.random.randint(1, 3)):
            self.tiers.copy(is_late=self.random.random() < late)

    def clean_remote(self) -> None:
        if not self.tiers.leader.log.config.is_compacted:
            return
        self.pass_time()
        steps_max = self.random.choice([1_000_000, 1_000_000, self.random.randint(1, 30)])
        bytes_max = self.random.choice([1, 500, 1 << 30])
        self.tiers.clean_remote(self.limits(), bytes_max, steps_max, is_late=self.random.random() < 0.15)

    def retain(self) -> None:
        for replica in self.tiers.replicas:
            if self.random.random() < 0.7:
                self.tiers.retain(replica)

    def learn(self) -> None:
        replica = self.random.choice(self.tiers.replicas)
        replica.learn(self.tiers.changes, self.random.randint(0, len(self.tiers.changes)))

    def pass_time(self) -> None:
        self.tiers.now_ms += self.random.choice([0, 300, 999, 1000, 5000])
        self.consumers = [each for each in self.consumers if self.tiers.now_ms - each[0] < RETENTION_MS]

    def limits(self) -> CleanerLimits:
        slots = self.random.choice([3, 5, 100, 100])
        return CleanerLimits(dedupe_buffer_size=24 * slots, io_buffer_size=self.random.choice([10, 300, 1 << 20]))

    def step(self) -> None:
        steps = [
            *[self.append] * 6,
            *[self.end] * 3,
            *[self.roll] * 2,
            *[self.clean_local] * 4,
            *[self.copy] * 3,
            *[self.clean_remote] * 4,
            *[self.retain] * 2,
            self.learn,
            self.compact,
            self.tiers.change_leader,
            self.tiers.finish_late,
            self.tiers.delete_superseded,
        ]
        step = self.random.choice(steps)
        step()
        self.check(step.__name__)

    def expected(self) -> dict[bytes, bytes]:
        log = self.tiers.leader.log
        end_offset = log.last_stable_offset(log.end_offset)
        dropped = {
            index
            for producer, first, end, commits in self.ended
            if not commits
            for index in range(first, end)
            if self.written[index][0] == producer
        }
        kept = [
            each._replace(offset=offset)
            for index, (_, offset, each) in enumerate(self.written)
            if index not in dropped and offset < end_offset
        ]
        self.aborted_values = {self.written[index][2].value for index in dropped} - {None}
        return apply({}, kept)

    def check(self, what: str) -> None:
        expected = self.expected()
        for replica in self.tiers.replicas:
            behind = replica.known_count < len(self.tiers.changes)
            if behind:
                continue  # it reads the metadata to its end before it serves
            seen = self.tiers.committed(replica)
            assert apply({}, seen) == expected, what
            assert not {each.value for each in seen} & self.aborted_values, what
            for _, offset, table in self.consumers:
                assert apply(table, self.tiers.committed(replica, offset)) == expected, f"{what}: a reader at {offset}"
        leader = self.tiers.leader
        offset = self.random.randint(0, leader.log.last_stable_offset(leader.log.end_offset))
        read = [each for each in self.tiers.committed(leader) if each.offset < offset]
        self.consumers.append((self.tiers.now_ms, offset, apply({}, read)))

    def end_all(self) -> None:
        """Afterwards nothing is in the way: each key has one record in both tiers."""
        self.compact()
        for replica in self.tiers.replicas:
            replica.log.config = replace(replica.log.config, min_cleanable_dirty_ratio=0.0)
        while self.open:
            self.end()
        for passed_ms in (0, 1000, 1000, 1000, 5000, 5000):
            self.append()
            while self.open:
                self.end()
            self.tiers.leader.log.roll(self.tiers.now_ms)
            self.tiers.now_ms += passed_ms
            self.consumers.clear()
            limits = CleanerLimits(dedupe_buffer_size=24 * 1000, io_buffer_size=1 << 20)
            self.tiers.clean_local(self.tiers.leader, limits)
            for _ in range(30):
                self.tiers.copy(is_late=False)
            self.tiers.clean_remote(limits, 1 << 30, 1_000_000, is_late=False)
            self.check("the end")
        keys = [each.key for each in self.tiers.committed(self.tiers.leader)]
        assert len(keys) == len(set(keys))


@pytest.mark.parametrize("seed", range(12))
def test_consumers_of_both_tiers_see_the_latest_of_each_key(seed: int) -> None:
    story = Story(seed)
    for _ in range(STEPS):
        story.step()
    story.end_all()


ROOMY = CleanerLimits(dedupe_buffer_size=24 * 1000, io_buffer_size=1 << 20)
LARGE = "x" * 500
TWO_TIERS = LogConfig(
    segment_bytes=600,
    cleanup_policy=("compact",),
    delete_retention_ms=RETENTION_MS,
    min_cleanable_dirty_ratio=0.0,
    is_tiered=True,
    local_retention_bytes=0,
    retention_ms=-1,
)


def put(tiers: TwoTiers, *pairs: tuple[str, str | None]) -> None:
    """A batch in a segment of its own, on both replicas."""
    tiers.append(build_batch([Record(k.encode(), None if v is None else v.encode(), NOW_MS) for k, v in pairs]))
    for replica in tiers.replicas:
        replica.log.roll(tiers.now_ms)


def seen(tiers: TwoTiers) -> set[bytes | None]:
    """The keys that a consumer has at the end."""
    return set(apply({}, tiers.committed(tiers.leader)))


def test_a_follower_that_cleans_ahead_of_the_leader_keeps_its_tombstones() -> None:
    tiers = TwoTiers(Random(1), TWO_TIERS)
    leader, follower = tiers.replicas
    put(tiers, ("gone", "v"), ("large 1", LARGE))
    put(tiers, ("large 2", LARGE))
    tiers.clean_local(leader, ROOMY)
    put(tiers, ("gone", None), ("large 3", LARGE))
    put(tiers, ("large 4", LARGE))
    for number in range(3):
        tiers.clean_local(follower, ROOMY)
        tiers.now_ms += 2 * RETENTION_MS
        put(tiers, (f"more {number}", LARGE))
    tiers.copy(is_late=False)  # of the first segment, which the leader has not cleaned against the tombstone
    tiers.change_leader()
    tiers.retain(follower)
    assert tiers.leader is follower and follower.log.local_start_offset > 0, "the old value is read remotely"
    assert b"gone" not in seen(tiers)


def test_a_cleaning_that_is_finished_late_is_never_read() -> None:
    tiers = TwoTiers(Random(1), TWO_TIERS)
    leader = tiers.leader
    put(tiers, ("gone", "v"), ("old", "v"), ("large 1", LARGE))
    put(tiers, ("large 2", LARGE))

    def clean(*, is_late: bool = False) -> None:
        tiers.now_ms += 2 * RETENTION_MS
        tiers.clean_local(leader, ROOMY)
        for _ in range(9):
            tiers.copy(is_late=False)
        tiers.clean_remote(ROOMY, 1 << 30, 1_000_000, is_late=is_late)

    tiers.clean_local(leader, ROOMY)
    tiers.copy(is_late=False)
    put(tiers, ("old", "w"), ("large 3", LARGE))
    put(tiers, ("filler", LARGE))
    tiers.retain(leader)
    clean(is_late=True)
    assert tiers.late
    put(tiers, ("gone", None), ("large 4", LARGE))
    for number in range(5):
        put(tiers, (f"more {number}", LARGE))
        clean()
    tiers.retain(leader)
    records = tiers.committed(leader)
    assert not [each for each in records if each.key == b"gone"], "value and tombstone are gone"
    while tiers.late:
        tiers.finish_late()
    assert tiers.committed(leader) == records


@pytest.mark.parametrize("slots", [1000, 4])
def test_keys_that_are_only_in_remote_storage_count(slots: int) -> None:
    """Also if the map of the keys gets full: the rest is for the next pass."""
    tiers = TwoTiers(Random(1), TWO_TIERS)
    leader = tiers.leader
    for number in range(3):
        put(tiers, ("k", f"v{number}"), (f"large {number}", LARGE))
        put(tiers, (f"larger {number}", LARGE))
        tiers.clean_local(leader, ROOMY)
        for _ in range(3):
            tiers.copy(is_late=False)
        tiers.retain(leader)
    assert [each.value for each in tiers.committed(leader) if each.key == b"k"] == [b"v0", b"v1", b"v2"]
    limits = CleanerLimits(dedupe_buffer_size=24 * slots, io_buffer_size=10)
    for _ in range(5):
        tiers.clean_remote(limits, 1 << 30, 1_000_000, is_late=False)
    assert [each.value for each in tiers.committed(leader) if each.key == b"k"] == [b"v2"]
