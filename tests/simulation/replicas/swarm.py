"""Three replicas of one partition, step by step in an order that a seed draws: no network and no loop, so that a second
holds thousands of steps.

Requests arrive late, twice removed from their senders, or never; bits flip on the way; leaders change; disks refuse;
processes are killed, stopped and lose their power, which takes what was not synced if a topic promises the disk, or
if the others have everything. After every step the invariants are looked at; at the end everything heals, and all
replicas must hold the same.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any, Final, NamedTuple, cast

from moldau.broker.purgatory.purgatory import CommitCallback
from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.alter_partition import AlterPartitionResponse
from moldau.protocol.messages.fetch import FetchRequest, FetchResponse
from moldau.replication.replica_fetcher import ReplicaFetcher
from moldau.storage.log_config import INT64_MAX, LogConfig
from tests.simulation.invariants import Invariant
from tests.simulation.invariants.aborted_transactions import AbortedTransactions
from tests.simulation.invariants.committed_prefix import CommittedPrefix
from tests.simulation.invariants.confirmed_set import ConfirmedSet
from tests.simulation.invariants.epochs_of_log import EpochsOfLog
from tests.simulation.invariants.epochs_rise import EpochsRise
from tests.simulation.invariants.high_watermark_bound import HighWatermarkBound
from tests.simulation.invariants.high_watermark_rises import HighWatermarkRises
from tests.simulation.invariants.in_sync_complete import InSyncComplete
from tests.simulation.invariants.observation import (
    Committed,
    LogContent,
    Observation,
    Observer,
    Replica,
    Violation,
)
from tests.simulation.invariants.one_leader import OneLeader
from tests.simulation.invariants.producer_sequences import ProducerSequences
from tests.simulation.invariants.producer_state import ProducerState
from tests.simulation.invariants.sound_log import SoundLog
from tests.simulation.invariants.stable_offset import StableOffset
from tests.simulation.replicas.controller import NOBODY, Controller
from tests.simulation.replicas.host import Host
from tests.simulation.replicas.producers import SequencedProducer
from tests.simulation.replicas.transactional import TransactionalClients
from tests.support.drawn_steps import Weighted, drawn_steps
from tests.support.replica_pair import TOPIC_ID

NODE_IDS: Final = (1, 2, 3)
KEY: Final = (TOPIC_ID, 0)
STEPS: Final = 2000
ROUNDS_MAX: Final = 400
"""How many rounds the healed replicas may need to agree."""
SECTOR_SIZE: Final = 512
"""Of a disk: a loss of power leaves some of those that were not synced, and no others."""
CRC_BEGINS: Final = 17
"""In a batch; what follows it is covered."""
INVARIANTS: Final = (
    AbortedTransactions,
    CommittedPrefix,
    ConfirmedSet,
    EpochsOfLog,
    EpochsRise,
    HighWatermarkBound,
    HighWatermarkRises,
    InSyncComplete,
    OneLeader,
    ProducerSequences,
    ProducerState,
    SoundLog,
    StableOffset,
)


class Fetch(NamedTuple):
    """A request on its way to a leader."""

    follower: Host
    life: int
    fetcher: ReplicaFetcher
    leader_id: int
    request: FetchRequest


class Producer(SequencedProducer):
    def __init__(self, producer_id: int) -> None:
        super().__init__(producer_id)
        self.count = 0

    def next_batch(self, random: Random, now_ms: int) -> int:
        values = [f"{self.id}/{self.count + i}" for i in range(random.randint(1, 3))]
        self.count += len(values)
        padding = b"." * random.choice((0, 0, SECTOR_SIZE, 3 * SECTOR_SIZE))  # no zeros: those a lost sector is full of
        return self.add([value.encode() + padding for value in values], now_ms)

    def begin_anew(self) -> None:
        self.late += self.unacknowledged.values()
        self.epoch, self.sequence, self.unacknowledged, self.sequences = self.epoch + 1, 0, {}, []


class Swarm:
    def __init__(self, seed: int) -> None:
        self.random = random = Random(f"{seed}/replicas")
        self.flushes = random.random() < 0.5
        self.trims = random.random() < 0.3
        self.sync_ends = random.choice((1.0, 0.3, 0.05))
        """How likely a sync under way has ended when it is asked for."""
        self.faults = Random(f"{seed}/faults")
        self.damages = self.faults.choice((0.0, 0.0, 0.05, 0.3))
        """How likely a bit of what a follower is sent flips."""
        config = LogConfig(
            min_insync_replicas=2,
            flush_messages=1 if self.flushes else INT64_MAX,
            segment_bytes=random.choice((6000, 15000, 1 << 20)),
            index_interval_bytes=random.choice((0, 200, 4096)),
            retention_ms=self.faults.choice((-1, -1, 5000)) if self.trims else -1,
            retention_bytes=self.faults.choice((-1, 1000, 8000)) if self.trims else -1,
        )
        self.controller = Controller(NODE_IDS)
        self.hosts = {each: Host(each, f"{seed}", self.controller, config) for each in NODE_IDS}
        for host in self.hosts.values():
            host.fetch_size = self.faults.choice((400, 8000))
        self.now_ms = 1_000_000
        self.producers = [Producer(each) for each in range(1, 3)]
        self.acknowledged: dict[int, str] = {}
        self._fetches: list[Fetch] = []
        self._waiting: dict[tuple[int, int, int], FetchRequest] = {}
        self._answers: list[tuple[Host, int, ReplicaFetcher, FetchResponse | None]] = []
        self._alterations: list[tuple[Host, int, Callable[[Any], None], AlterPartitionResponse]] = []
        self._committed: dict[tuple[bytes, int], Committed] = {KEY: Committed()}
        self._contents: dict[tuple[int, int], LogContent] = {}
        self._glances: dict[tuple[int, int], object] = {}
        self._invariants: list[Invariant] = [make() for make in INVARIANTS]
        of_transactions = Random(f"{seed}/transactions")
        self.has_transactions = of_transactions.random() < 0.6
        self.transactional = transactional = TransactionalClients(self, of_transactions)
        weights = (100, 80, 80, 40, 40, 25, 2, 100) if self.has_transactions else (0,) * 8
        self._steps: Weighted = [
            (self.produce, 100),
            (self.ask, 200),
            (self.deliver, 200),
            (self.answer, 200),
            (self.perform, 100),
            (self.flush, 150),
            (self.learn, 80),
            (self.alter, 60),
            (self.answer_alteration, 60),
            (self.read, 40),
            (self.tick, 60),
            (self.shrink, 10),
            (self.checkpoint, 12),
            (self.elect, random.choice((0, 2, 15))),
            (self.kill, random.choice((0, 1, 4))),
            (self.cut_power, random.choice((0, 2, 12))),
            (self.stop, random.choice((0, 1, 3))),
            (self.boot, 20),
            (self.lose_fetch, random.choice((0, 2, 6))),
            (self.trim, 4 if self.trims else 0),
            (transactional.send, weights[0]),
            (transactional.verify, weights[1]),
            (transactional.append, weights[2]),
            (transactional.end, weights[3]),
            (transactional.write_marker, weights[4]),
            (transactional.repeat_marker, weights[5]),
            (transactional.fail_over, weights[6]),
            (transactional.read, weights[7]),
        ]
        self.last = ""

    # The story

    def run(self) -> None:
        for host in self.hosts.values():
            host.boot(self.now_ms)
        for host in self.hosts.values():
            self.controller.unfenced(host.node_id)
        for step in drawn_steps(self.random, self._steps, 2 * STEPS if self.has_transactions else STEPS):
            self.last = step.__name__
            step()
            self.look()
        self.heal()

    def heal(self) -> None:
        self.last, self.sync_ends, self.damages = "heal", 1.0, 0.0
        self._come_to_rest()
        self._check_acknowledged()
        self._send_the_rest()
        self._come_to_rest()
        self._end_transactions()
        self._trim_at_rest()
        self._come_to_rest()

    def _come_to_rest(self) -> None:
        for _ in range(ROUNDS_MAX):
            for host in self.hosts.values():
                if not host.is_up:
                    host.boot(self.now_ms)
            for node_id, broker in self.controller.newest.brokers.items():
                if not broker.is_active:
                    self.controller.unfenced(node_id)
            for step in (self.learn, self.ask, self.deliver, self.answer, self.perform, self.flush):
                for _ in NODE_IDS:
                    step()
            for step in (self.alter, self.answer_alteration, self.tick, self.shrink):
                step()
            self.look()
            if self._is_at_rest():
                return
        raise Violation(f"the replicas do not agree: {self._state()}")

    def _is_at_rest(self) -> bool:
        assigned = self.controller.newest.assigned
        logs = {each: host.partition.log for each, host in self.hosts.items()}
        ends = {(log.end_offset, self.hosts[each].partition.high_watermark) for each, log in logs.items()}
        has_agreed = len(assigned.isr) == len(NODE_IDS) and len(ends) == 1 and len({*ends.pop()}) == 1
        return has_agreed and all(
            log.log_start_offset >= logs[assigned.leader].log_start_offset for log in logs.values()
        )

    def _state(self) -> str:
        told = [
            f"{each.node_id}: {each.partition.high_watermark} of {each.partition.log.log_start_offset} to"
            f" {each.partition.log.end_offset}"
            for each in self.hosts.values()
        ]
        return f"{self.controller.newest.assigned} {told}"

    def _check_acknowledged(self) -> None:
        """All that was acknowledged is there, at its offset."""
        log = self.hosts[1].partition.log
        batches = self._contents[1, self.hosts[1].life].batches
        held = {
            offset: (batch.producer_id, batch.producer_epoch, batch.base_sequence + offset - batch.base_offset)
            for batch in batches
            for offset in range(batch.base_offset, batch.last_offset + 1)
        }
        for offset, sent in self.acknowledged.items():
            if offset >= log.log_start_offset and f"{held.get(offset)}" != sent:
                raise Violation(f"{sent} was acknowledged at offset {offset}, where {held.get(offset)} is")

    def _send_the_rest(self) -> None:
        """In its order: what is there already is known to be, all else goes on from there."""
        leader = self.hosts[self.controller.newest.assigned.leader].partition
        for producer in self.producers if leader.is_leader and not self.trims else ():
            for sequence in sorted(producer.unacknowledged):
                result = leader.append(producer.unacknowledged[sequence], -1, self.now_ms, 9)
                if result.error is not ErrorCode.NONE:
                    sent = f"{(producer.id, producer.epoch, sequence)}"
                    raise Violation(f"{sent} is refused for good: {result.error.name} {result.error_message}")

    def _end_transactions(self) -> None:
        leader = self.hosts[self.controller.newest.assigned.leader]
        if self.has_transactions and leader.partition.is_leader:
            while self.transactional.finish(leader):
                self._come_to_rest()
            self.transactional.check_late(leader)
            self._come_to_rest()
            for host in self.hosts.values():
                self.transactional.check_log(host, self._contents[host.node_id, host.life])

    def _trim_at_rest(self) -> None:
        """Nothing is written any more: followers hear of the deletion, though there is no other news."""
        leader = self.hosts[self.controller.newest.assigned.leader].partition
        if leader.is_leader:
            leader.delete_records_before(leader.high_watermark)

    # Watching

    def look(self) -> None:
        replicas = []
        for host in self.hosts.values():
            if not host.is_up:
                continue
            place, partition, log = (host.node_id, host.life), host.partition, host.partition.log
            assert log.failure is None, log.failure
            glance = (
                (partition.leadership and partition.leadership.in_sync, partition.leader_epoch),
                (partition.partition_epoch, partition.high_watermark, log.log_start_offset, log.end_offset),
                (log.synced_end_offset, len(log.segments), log.active.base_offset, log.active.size),
                (tuple(log.epochs.entries), self._committed[KEY].end_offset, self.controller.newest),
            )
            if self._glances.get(place) == glance:
                continue
            self._glances[place] = glance
            content = self._contents.setdefault(place, LogContent())
            content.read(host.disk, log)
            is_registered = self.controller.newest.brokers[host.node_id].epoch == host.epoch
            replicas.append(
                Replica(host.node_id, host.life, cast("Any", None), partition, host.disk, content, is_registered)
            )
        topics = SimpleNamespace(by_id={TOPIC_ID: SimpleNamespace(partitions={0: self.controller.newest.assigned})})
        seen = Observation(
            0, [], {KEY: replicas}, cast("Any", SimpleNamespace(topics=topics)), self._committed, self.flushes
        )
        try:
            for replica in replicas:
                if replica.partition.leadership is not None:
                    Observer._learn(self._committed[KEY], replica)
            for invariant in self._invariants:
                invariant.check(seen)
        except Violation as violation:
            raise Violation(f"after {self.last}: {violation}") from None

    # Clients

    def _up(self) -> list[Host]:
        return [each for each in self.hosts.values() if each.is_up]

    def leading(self) -> Host | None:
        """Somebody who believes to lead."""
        leading = [each for each in self._up() if each.partition.is_leader]
        return self.random.choice(leading) if leading else None

    def produce(self) -> None:
        host, producer = self.leading(), self.random.choice(self.producers)
        if host is None:
            return
        if producer.is_known and self.random.random() < 0.02:
            producer.begin_anew()
        if producer.late and self.random.random() < 0.2:
            host.partition.append(producer.late.pop(), -1, self.now_ms, 9)
            return
        unacknowledged = producer.unacknowledged
        if unacknowledged and (not producer.may_send_more or self.random.random() < 0.4):
            sequence = self.random.choice([*unacknowledged])
        else:
            sequence = producer.next_batch(self.random, self.now_ms)
        epoch, partition, data = producer.epoch, host.partition, unacknowledged.get(sequence)
        result = partition.append(data or producer.unacknowledged[sequence], -1, self.now_ms, 9)
        if result.error is not ErrorCode.NONE:
            return
        host_life = host.life

        def committed(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE or host.life != host_life:
                return
            producer.is_known = True
            if epoch == producer.epoch:
                producer.unacknowledged.pop(sequence, None)
            for i in range(result.last_offset + 1 - result.base_offset):
                self.acknowledge(result.base_offset + i, (producer.id, epoch, sequence + i))
            if result.last_offset >= partition.high_watermark:
                raise Violation(f"acknowledged at {result.last_offset}, committed up to {partition.high_watermark}")

        host.purgatory.await_commit(partition, CommitCallback(partition.log.end_offset, committed))

    def acknowledge(self, offset: int, sent: tuple[int, int, int]) -> None:
        """A producer, or the coordinator of a marker, was told that this lies at the offset."""
        known = self.acknowledged.setdefault(offset, f"{sent}")
        if known != f"{sent}":
            raise Violation(f"offset {offset} was acknowledged for {known} and for {sent}")

    def read(self) -> None:
        """From any replica, any offset up to its high watermark: what is there must be what was committed."""
        if not self._up():
            return
        host = self.random.choice(self._up())
        log, end_offset = host.partition.log, host.partition.high_watermark
        if log.log_start_offset >= end_offset:
            return
        offset = self.random.randrange(log.log_start_offset, end_offset)
        found = log.read(offset, self.random.choice((1, 300, 5000)), end_offset=end_offset, at_least_one=True)
        if not isinstance(found, ErrorCode) and found.slice is None and self.is_split(host):
            return
        if isinstance(found, ErrorCode) or found.slice is None:
            raise Violation(f"node {host.node_id}: offset {offset} of {end_offset} cannot be read: {found}")
        next_offset = None
        data = bytes(found.slice.read())
        for _, header in iterate_batches(data):
            if next_offset is None and not header.base_offset <= offset < header.next_offset:
                raise Violation(f"node {host.node_id}: asked for {offset} it reads from {header.base_offset}")
            if next_offset not in (None, header.base_offset) or header.next_offset > end_offset:
                raise Violation(f"node {host.node_id} reads {header.base_offset} after {next_offset} of {end_offset}")
            known = self._committed[KEY].batches.get(header.base_offset)
            if known is not None and known.crc != header.crc:
                raise Violation(f"node {host.node_id} reads at {header.base_offset} what was not committed there")
            next_offset = header.next_offset
        if next_offset is None:
            raise Violation(f"node {host.node_id}: nothing whole comes at {offset} of {end_offset}")

    def is_split(self, host: Host) -> bool:
        """Whether the high watermark lies in the first batch of the log: the log began with a later record of that
        batch, as its leader's did, and a crash took that back."""
        batches = self._contents[host.node_id, host.life].batches
        return bool(batches) and batches[0].base_offset < host.partition.high_watermark <= batches[0].last_offset

    def trim(self) -> None:
        host = self.leading()
        if host is None:
            return
        partition = host.partition
        before = heard = partition.log.log_start_offset
        while heard in self.acknowledged:
            heard += 1  # what its producer has not heard of may come again, and nobody would know it
        is_forbidden = self.random.random() < 0.2
        offset = partition.high_watermark + 1 if is_forbidden else self.random.randint(before, heard)
        error = partition.log.advance_log_start(offset, partition.high_watermark)
        if (error is ErrorCode.NONE) != (offset <= partition.high_watermark):
            raise Violation(f"records up to {offset} of {partition.high_watermark}: {error.name}")
        host.retain()

    # Replication

    def ask(self) -> None:
        """A follower has one request under way to each leader; one that it gave up may still arrive."""
        for host in self._shuffled():
            for leader_id, fetcher in host.fetchers.items():
                place = (host.node_id, host.life, leader_id)
                if place in self._waiting:
                    continue
                request = fetcher.next_request(host.epoch, host.now_ms)
                if request is not None:
                    self._waiting[place] = request
                    self._fetches.append(Fetch(host, host.life, fetcher, leader_id, request))
                    return

    def _shuffled(self) -> list[Host]:
        up = self._up()
        return self.random.sample(up, len(up))

    def deliver(self) -> None:
        if not self._fetches:
            return
        fetch = self._fetches.pop(self.random.randrange(len(self._fetches)))
        leader = self.hosts[fetch.leader_id]
        response = leader.answer(fetch.request) if leader.is_up else None
        if response is not None and self.faults.random() < self.damages:
            self._damage(response)
        if self._waiting.get((fetch.follower.node_id, fetch.life, fetch.leader_id)) is fetch.request:
            self._answers.append((fetch.follower, fetch.life, fetch.fetcher, response))

    def _damage(self, response: FetchResponse) -> None:
        """One bit, of what its checksum covers."""
        for data in (data for topic in response.responses for data in topic.partitions if data.records):
            records = bytearray(cast("bytes", data.records))
            batches = [*iterate_batches(bytes(records))]
            position, header = self.faults.choice(batches[1:] or batches)  # those before it are taken, and stay
            records[position + self.faults.randrange(CRC_BEGINS, header.size)] ^= 1 << self.faults.randrange(8)
            data.records = bytes(records)

    def answer(self) -> None:
        if not self._answers:
            return
        host, life, fetcher, response = self._answers.pop(self.random.randrange(len(self._answers)))
        leader_id = next((each for each, known in host.fetchers.items() if known is fetcher), NOBODY)
        self._waiting.pop((host.node_id, life, leader_id), None)
        if host.is_up and host.life == life:
            if response is None:
                fetcher.on_request_failed(host.now_ms)
            else:
                host.take(fetcher, response)

    def lose_fetch(self) -> None:
        """A connection breaks: the follower waits no more; what it sent may arrive all the same."""
        if self._waiting:
            place = self.random.choice([*self._waiting])
            del self._waiting[place]
            host = self.hosts[place[0]]
            if host.is_up and host.life == place[1]:
                fetcher = host.fetchers[place[2]]
                self._answers = [each for each in self._answers if each[2] is not fetcher]
                fetcher.on_request_failed(host.now_ms)

    def perform(self) -> None:
        for host in self._shuffled():
            if host.effects:
                leader = self.hosts.get(host.partition.leader_id)
                is_there = leader is not None and leader.is_up and leader.partition.is_leader
                log = leader.partition.log if leader is not None and is_there else None
                host.perform((log.log_start_offset, log.end_offset) if log is not None else None)
                return

    def flush(self) -> None:
        for host in self._shuffled():
            if host.flushes:
                if self.random.random() < self.sync_ends:
                    host.end_flush()
                return
            is_asked = self.flushes and (host.partition.is_leader or host.awaiting_flush)
            if is_asked or self.random.random() < 0.1:
                host.begin_flush()
                if host.awaiting_flush and not host.flushes:
                    host.end_flush()
                if host.flushes:
                    return

    # The controller

    def learn(self) -> None:
        for host in self._shuffled():
            if host.metadata is not self.controller.newest:
                host.learn(self.controller.newest)
                return

    def alter(self) -> None:
        for host in self._shuffled():
            host.run_later()
            if host.asks:
                request, reply = host.asks.pop(0)
                response = self.controller.alter(request)
                if self.random.random() < 0.15:  # the controller goes, and its answer with it
                    response = AlterPartitionResponse(error_code=ErrorCode.REQUEST_TIMED_OUT)
                self._alterations.append((host, host.life, reply, response))
                return

    def answer_alteration(self) -> None:
        if self._alterations:
            host, life, reply, response = self._alterations.pop(self.random.randrange(len(self._alterations)))
            if host.is_up and host.life == life:
                reply(response)

    def elect(self) -> None:
        self.controller.elect(self.random.choice(self.controller.newest.assigned.isr))

    # Time, disks, processes

    def tick(self) -> None:
        self.now_ms += self.random.choice((1, 20, 200, 1000))
        for host in self._up():
            host.now_ms = self.now_ms

    def shrink(self) -> None:
        for host in self._up():
            host.shrink()

    def checkpoint(self) -> None:
        for host in self._shuffled()[:1]:
            host.checkpoint(with_high_watermarks=True)
            host.retain()
            self._check_start(host)

    @staticmethod
    def _check_start(host: Host) -> None:
        """Retention takes what is committed alone."""
        partition = host.partition
        if partition.log.log_start_offset > partition.high_watermark:
            begin = partition.log.log_start_offset
            raise Violation(f"node {host.node_id} begins at {begin}, {partition.high_watermark} is committed")

    def kill(self) -> None:
        for host in self._shuffled()[:1]:
            host.kill()
            self._is_missed(host)

    def stop(self) -> None:
        for host in self._shuffled()[:1]:
            host.stop()
            self._is_missed(host)

    def cut_power(self) -> None:
        """If nothing is flushed, only of one whose place in the set the others can take."""
        up = self._shuffled()
        is_safe = len(up) == len(NODE_IDS) == len(self.controller.newest.assigned.isr)
        for host in up[:1] if self.flushes or is_safe else []:
            host.cut_power()
            if self.flushes:
                self._is_missed(host)
            else:
                self.controller.fenced(host.node_id)

    def _is_missed(self, host: Host) -> None:
        """Now, or when it comes back."""
        if self.random.random() < 0.5:
            self.controller.fenced(host.node_id)

    def boot(self) -> None:
        for host in self.hosts.values():
            if not host.is_up:
                host.boot(self.now_ms)
                self.controller.unfenced(host.node_id)
                return
            if not self.controller.newest.brokers[host.node_id].is_active:
                self.controller.unfenced(host.node_id)
                return
