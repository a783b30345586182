"""One seed of the swarm: three whole nodes, clients, faults; then everything heals, and the cluster owes full service.

During the faults the invariants are looked at again and again. In the liveness phase every partition must have a leader
and all its replicas in sync, everything acknowledged must be readable, and new records must be acknowledged. At last
the history that the clients recorded is checked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from moldau.broker.config.internal_topics import GROUP_METADATA_TOPIC
from moldau.broker.replicas import partition_work
from moldau.kraft.image.metadata_image import MetadataImage
from moldau.kraft.image.topics import NO_LEADER
from moldau.protocol import record_validation
from moldau.testing.simulation.disk import SimulatedDisk
from moldau.testing.simulation.schedule import SimulationFailed
from tests.simulation.cluster.heartbeats import Heartbeats
from tests.simulation.cluster.late_copies import LateCopies
from tests.simulation.cluster.nemesis import Nemesis
from tests.simulation.cluster.plan import VOTERS, Fault, Plan
from tests.simulation.cluster.secured import Secured, credentials
from tests.simulation.cluster.tiered import Tiered
from tests.simulation.cluster.transactional import Transactional
from tests.simulation.cluster.transactional_table import TransactionalTable
from tests.simulation.invariants import ALL, Invariant
from tests.simulation.invariants.acknowledged import check_acknowledged
from tests.simulation.invariants.deleted_everywhere import DeletedEverywhere
from tests.simulation.invariants.leader_acknowledged import LeaderAnswers
from tests.simulation.invariants.observation import Observer, Violation
from tests.simulation.invariants.of_their_topic import OfTheirTopic
from tests.support.cluster import Cluster
from tests.support.cluster_admin import Administrator
from tests.support.cluster_clients import Bootstrap, Committer, Producer, Reader, Trimmer
from tests.support.cluster_group import GroupWatch, Member
from tests.support.failed_handlers import failed_handlers
from tests.support.history import History, Key
from tests.support.history_check import anomalies, told
from tests.support.keyed_table import KeyedTable, name_of
from tests.support.leader_producer import LeaderProducer, Shape
from tests.support.mixed_producer import MixedProducer
from tests.support.node import Client
from tests.support.told_ends import ToldEnds
from tests.support.topic_writer import TopicWriter
from tests.support.transactions.ledger import Ledger
from tests.support.whole_starts import whole_starts

TOPIC: Final = "numbers"
TABLE: Final = "table"
"""A compacted topic."""
TABLE_PARTITIONS: Final = 2
RETAINED: Final = "retained"
"""A topic of which retention deletes what nobody may have read."""
LIMIT_S: Final = 400.0
LIVENESS_S: Final = 60.0
"""How long a healed cluster may take until it serves fully."""
SMALL_FETCHES_PAUSE_S: Final = 0.3
"""Between two batches of a producer, so that a replica that fetches 400 bytes at a time catches up."""
DRAIN_S: Final = 60.0
COMMIT_S: Final = 30.0
"""How long an application may take until it commits a transaction in a healed cluster: a process may have just died."""
RESTS_LOOKS: Final = 8
"""Seconds without a change, longer than it takes until a record is too old."""
REPLICAS: Final = 3
MIXED_RECORDS_MAX: Final = 4
GIVES_UP: Final = 0.01
"""How often a producer begins a new incarnation after an answer."""
CONVERGED_S: Final = 20.0
LATE_COPIES_SHARE: Final = 0.5
"""Of the seeds."""

Story = Callable[["Swarm"], Awaitable[None]]
"""What happens instead of random faults: a scripted scenario."""


@dataclass(slots=True)
class Run:
    """What one seed came to."""

    seed: int
    plan: Plan
    history: History = field(default_factory=History)
    ledger: Ledger = field(default_factory=Ledger)
    """Of transactions."""
    table_history: History = field(default_factory=History)
    """Of the compacted topic, if not everything that was acknowledged is read."""
    complaints: list[str] = field(default_factory=list)
    struck: dict[str, int] = field(default_factory=dict)
    simulated_s: float = 0.0
    looks: int = 0
    digest: str = ""

    def problems(self) -> list[str]:
        records = [*told(anomalies(self.history)), *vanished(self.history)]
        return [*self.complaints, *records, *self.ledger.problems()]


def vanished(history: History) -> list[str]:
    """What anybody read, and a complete reading at the end does not have at that offset."""
    complete = {reading.key: dict(reading.records) for reading in history.readings if reading.is_complete}
    return [
        f"{reading.reader} read {value!r} at {offset} of {reading.key}: at the end not there"
        for reading in history.readings
        if reading.key in complete
        for offset, value in reading.records
        if complete[reading.key].get(offset) != value
    ][:5]


class Swarm:
    """One cluster in its world, its clients and its watch."""

    def __init__(self, seed: int, plan: Plan, *, keep_trace: bool = False) -> None:
        self.run = Run(seed, plan)
        self.plan = plan
        self.random = Random(f"{seed}/swarm")
        properties: dict[str, Any] = {**plan.broker_properties()}
        self.cluster = Cluster(
            seed,
            nodes=plan.nodes + plan.controllers,
            controllers=plan.controllers,
            voters=VOTERS if plan.names_voters else 0,
            features=plan.features(),
            credentials=credentials() if plan.changes_security else (),
            has_logins=plan.changes_security,
            keep_trace=keep_trace,
            **properties,
        )
        self.nemesis = Nemesis(self.cluster, plan, Random(f"{seed}/nemesis"))
        self.observer = Observer(self.cluster, flushes=plan.flushes, is_brief=True)
        self._topics: dict[bytes, str] = {}
        """Those that come and go."""
        self.invariants: list[Invariant] = [*(make() for make in ALL), OfTheirTopic(self._topics)]
        self.keys: list[Key] = [(TOPIC, index) for index in range(plan.partitions)]
        self.producers: list[Producer] = []
        self._late = LateCopies(self.cluster, Random(f"{seed}/late"))
        self._brings_late_copies = Random(f"{seed}/late copies").random() < LATE_COPIES_SHARE
        self._trimmed = {TOPIC} if plan.trims else set()
        """Topics whose log start moves by other means than retention."""
        self._administrators = [self._administrator(f"churn{number or ''}") for number in range(plan.administrators)]
        self._secured = Secured(self.cluster, plan, self.bootstrap, self.run.complaints)
        self._answers = LeaderAnswers(self.cluster, self._fail, flushes=plan.flushes)
        self._careless: list[LeaderProducer] = []
        self._mixed: list[MixedProducer] = []
        self._readers: list[Reader] = []
        self._table = KeyedTable(Random(f"{seed}/table"), plan.table_keys)
        self._table_starts: dict[Key, int] = {}
        """If the log of a partition of the compacted topic begins at the end, if retention has moved it."""
        self._told_ends = ToldEnds(self.run.complaints)
        self._transactional = Transactional(self.cluster, plan, self.bootstrap, self.run.ledger)
        self._heartbeats = Heartbeats(
            self.cluster, plan.heartbeat_members, TOPIC, plan.partitions, self.bootstrap, self.run.complaints
        )
        self._tiered = Tiered(self.cluster, plan, self.run, self.bootstrap, self._trimmed)
        if plan.is_tiered:
            self.invariants.append(self._tiered.rules)
        partitions = [(TABLE, index) for index in range(TABLE_PARTITIONS if plan.table_keys else 0)]
        self._transactional_table = TransactionalTable(
            self._table, partitions, plan, self.bootstrap, self.run.table_history
        )
        self._is_ended = False

    # What clients need of the cluster

    @property
    def node_ids(self) -> list[int]:
        """Of those who serve clients."""
        return list(self.cluster.nodes)[self.plan.controllers :]

    async def connect(self, node_id: int) -> Client:
        return await self.cluster.connect(node_id)

    def _administrator(self, name: str) -> Administrator:
        complaints = self.run.complaints
        writer = TopicWriter(self.bootstrap(f"{name}-writer"), complaints, self._topics)
        return Administrator(
            self.bootstrap(name),
            complaints,
            name,
            write=writer.write,
            pause_s=self.plan.churn_pause_s,
            tiered=self.plan.tiered_configs() if self.plan.is_tiered else {},
            disabled=self._trimmed,
        )

    def bootstrap(self, name: str) -> Bootstrap:
        return Bootstrap(self, Random(f"{self.run.seed}/{name}"))

    def _term_of(self, node_id: int, group: str) -> int | None:
        """The leader epoch in which a node coordinates a group, if nobody has heard of a later one."""
        brokers = {node.id: node.broker for node in self.cluster.nodes.values() if node.is_up}
        broker, images = brokers.get(node_id), [each.image for each in brokers.values() if each is not None]
        if broker is None:
            return None
        images += [] if self.observer.image is None else [self.observer.image]
        image = max(images, key=lambda each: each.provenance.end_offset)
        index = broker.coordinators.groups.partition_of(group)
        mine = broker.replicas.get(GROUP_METADATA_TOPIC, index)
        assigned = image.topics.partition(GROUP_METADATA_TOPIC, index)
        if mine is None or assigned is None or mine.leader_epoch != assigned.leader_epoch or not mine.is_leader:
            return None
        return mine.leader_epoch

    # The watch

    def look(self, *, is_full: bool = False) -> None:
        """Raises `Violation`."""
        seen = self.observer.look(is_full=is_full)
        if seen is not None:
            self.run.looks += 1
            for invariant in self.invariants:
                invariant.check(seen)

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(self.plan.look_every_s)
            try:
                self.look()
            except Exception as error:  # also what cannot be read any more is a violation
                self._fail(error)
                return

    # The story

    async def live(self, story: Story | None) -> None:
        loop = asyncio.get_running_loop()
        watch = loop.create_task(self.watch())
        operator = loop.create_task(self.nemesis.operate())
        late = [loop.create_task(self._late.work())] if self._brings_late_copies else []
        late.append(loop.create_task(self._late.work_for_the_dead()))
        await self.cluster.settled()
        await self.cluster.create(TOPIC, self.plan.partitions, REPLICAS, **self._topic_configs())
        if self.plan.retains:
            await self.cluster.create(RETAINED, 1, REPLICAS, **self.plan.retained_configs())
        if self.plan.table_keys:
            await self.cluster.create(TABLE, TABLE_PARTITIONS, REPLICAS, **self.plan.table_configs())
        await self._transactional.begin(self._topic_configs())
        self._transactional_table.begin()
        await self._heartbeats.begin()
        working = self._begin()
        working += await self._secured.begin(lambda: self._is_ended)
        if story is None:
            striking = loop.create_task(self.nemesis.work())
            await asyncio.sleep(self.plan.fault_s)
            self.nemesis.end()
            await striking
        else:
            await story(self)
        await self.nemesis.heal()
        for careless in self._careless:
            careless.is_ending = True  # they wait for no follower, and one that fetches little might never catch up
        for mixed in self._mixed:
            mixed.is_ending = True
        if self.plan.properties:
            for producer in self.producers:  # they wait for those in sync, and a replica that fetches little is not
                producer.slow_down(SMALL_FETCHES_PAUSE_S)
        for each in late:
            each.cancel()
        if late[1:]:
            self.nemesis.struck["late copies"] = self._late.count
        await self.full_service()
        await self._end(working)
        await self.converged()
        await self._secured.verify()
        if self.plan.is_tiered:
            await self._tiered.settled()
        watch.cancel()
        operator.cancel()
        self.look(is_full=True)

    def _topic_configs(self) -> dict[str, str]:
        """Those of the plan; in half of the runs the indexes have an entry for every batch."""
        is_dense = Random(f"{self.run.seed}/indexes").random() < 0.5
        return self.plan.topic_configs() | ({"index.interval.bytes": "0"} if is_dense else {})

    def _begin(self) -> list[asyncio.Task[None]]:
        loop, run, plan = asyncio.get_running_loop(), self.run, self.plan
        shape = {
            "in_flight": plan.in_flight,
            "batch_records_max": plan.batch_records_max,
            "pause_s": plan.pause_s,
            "timeout_ms": plan.timeout_ms,
            "issued": {},
            "gives_up": GIVES_UP,
        }
        for number in range(plan.producers):
            for key in self.keys:
                name = f"p{number}-{key[1]}"
                made = Producer(name, key, self.bootstrap(name), run.history, run.complaints, **shape)
                made.on_acknowledged = self._acknowledged
                self.producers.append(made)
        self.producers += self._table_producers(shape)
        self._careless = [*self._careless_producers()]
        working = [loop.create_task(producer.work()) for producer in self.producers]
        self._mixed = [*self._mixed_producers()]
        working += [loop.create_task(producer.work()) for producer in self._careless]
        working += [loop.create_task(producer.work()) for producer in self._mixed]
        for key in self.keys:
            for from_followers in (False, True):
                name = f"{'any' if from_followers else 'tail'}-{key[1]}"
                reading = run.history.reading(name, key)
                reader = Reader(
                    self.bootstrap(name),
                    reading,
                    run.complaints,
                    from_followers=from_followers,
                    may_rot=Fault.BIT_ROT in plan.faults,
                )
                reader.told_ends, reader.on_end = self._told_ends, self._told_end
                self._readers.append(reader)
                working.append(loop.create_task(reader.work(lambda: self._is_ended)))
        self._committers = [
            Committer(f"group-{number}", self.keys[0], self.bootstrap(f"group-{number}"), run.complaints, self._term_of)
            for number in range(2)
        ]
        working += [loop.create_task(committer.work()) for committer in self._committers]
        watch = GroupWatch("members", TOPIC, plan.partitions, run.complaints)
        self._members = [Member(watch, self.bootstrap(f"member-{number}")) for number in range(plan.members)]
        working += [loop.create_task(member.work()) for member in self._members]
        for key in self.keys if plan.trims else []:
            readers = [reader for reader in self._readers if reader.reading.key == key]
            producers = [producer for producer in self.producers if producer.key == key]
            trimmer = Trimmer(key, readers, producers, self.bootstrap(f"trim-{key[1]}"), run.complaints)
            trimmer.on_asking = DeletedEverywhere(self.cluster, self._fail).asking
            working.append(loop.create_task(trimmer.work(lambda: self._is_ended)))
        if plan.is_tiered:
            working += self._tiered.readers(self.keys, lambda: self._is_ended)
        for administrator in self._administrators if plan.churns_topics else []:
            working.append(loop.create_task(administrator.work(lambda: self._is_ended)))
        return working

    def _table_producers(self, shape: dict[str, Any]) -> Iterator[Producer]:
        for index in range(TABLE_PARTITIONS if self.plan.table_keys else 0):
            name, history, complaints = f"k-{index}", self.run.table_history, self.run.complaints
            of_table = shape | {"record_of": self._table.record}
            yield Producer(name, (TABLE, index), self.bootstrap(name), history, complaints, **of_table)

    async def _read_table(self) -> None:
        if self.plan.table_keys and self.plan.transactional:
            self.run.complaints += await self._transactional_table.finish(DRAIN_S)
            return
        for index in range(TABLE_PARTITIONS if self.plan.table_keys else 0):
            reading = self.run.table_history.reading("final", (TABLE, index), is_complete=True)
            bootstrap, may_rot = self.bootstrap(f"table-{index}"), Fault.BIT_ROT in self.plan.faults
            final = Reader(bootstrap, reading, self.run.complaints, may_rot=may_rot, name_of=name_of)
            if self.plan.table_retains:
                await self._log_start_rests(index)
                await asyncio.wait_for(final.start_after(()), DRAIN_S)
                self._table_starts[TABLE, index] = final.offset
            await asyncio.wait_for(final.work(lambda: True), DRAIN_S)
        self.run.complaints += self._table.problems(self.run.table_history, self._table_starts)

    async def _log_start_rests(self, index: int) -> None:
        """Wait until retention has done its work: a reader would meet it in the midst."""
        starts: list[int] = []
        while len(starts) < RESTS_LOOKS or len(set(starts[-RESTS_LOOKS:])) > 1:
            await asyncio.sleep(1)
            starts.append(
                max(
                    each.log.log_start_offset
                    for node in self.cluster.nodes.values()
                    for each in (node.broker.replicas if node.broker is not None else ())
                    if (each.topic, each.index) == (TABLE, index)
                )
            )

    def _careless_producers(self) -> Iterator[LeaderProducer]:
        plan = self.plan
        # Without acks=all nothing slows them down to what followers that fetch little can take.
        pause_s = max(plan.pause_s, SMALL_FETCHES_PAUSE_S) if plan.properties else plan.pause_s
        shape = Shape(batch_records_max=plan.batch_records_max, pause_s=pause_s)
        for number in range(plan.careless):
            for key in self.keys:
                name = f"c{number}-{key[1]}"
                yield LeaderProducer(name, key, self.bootstrap(name), self.run.history, self._answers, shape)
        if plan.retains:
            shape = shape._replace(pause_s=0.1, padding=50)
            yield LeaderProducer("r", (RETAINED, 0), self.bootstrap("r"), None, self._answers, shape)

    def _mixed_producers(self) -> Iterator[MixedProducer]:
        """Their large batches are examined in an executor thread if the plan's limit is small."""
        run, large = self.run, min(self.plan.loop_records_max + 1, MIXED_RECORDS_MAX)
        for number in range(self.plan.mixed):
            name = f"m{number}"
            bootstrap, pause_s = self.bootstrap(name), self.plan.pause_s
            made = MixedProducer(name, self.keys, bootstrap, run.history, run.complaints, large=large, pause_s=pause_s)
            made.on_acknowledged = self._acknowledged
            yield made

    def _acknowledged(self, key: Key, offset: int, client: Client) -> None:
        self.cluster.world.event("ack", *key, offset)
        self._committed(key, offset, client, "acknowledged")

    def _told_end(self, key: Key, offset: int, client: Client) -> None:
        self._committed(key, offset, client, "said to be there")

    def _committed(self, key: Key, offset: int, client: Client, what: str) -> None:
        try:
            check_acknowledged(self.cluster, key, offset, client, what)
        except Violation as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        failed = SimulationFailed(f"{type(error).__name__}: {error}")
        failed.__cause__ = error
        self.cluster.world.loop.fail(failed)

    # Liveness

    async def full_service(self) -> None:
        """Everybody serves, and every partition has a leader and all its replicas in sync."""
        try:
            await self.cluster.until(self._is_whole, "full service", LIVENESS_S)
        except AssertionError as error:
            raise Violation(f"not live: {LIVENESS_S:.0f} s after everything healed {self._state()}") from error

    async def converged(self) -> None:
        """Nobody writes any more: every replica holds what its leader holds, and knows that all of it is committed."""
        try:
            await self.cluster.until(lambda: not self._apart(), "replicas that agree", CONVERGED_S)
        except AssertionError as error:
            raise Violation(f"not live: {CONVERGED_S:.0f} s after the last record: {self._apart()}") from error

    def _apart(self) -> list[str]:
        brokers = [node.broker for node in self.cluster.nodes.values() if node.is_up and node.broker is not None]
        replicas = [
            (broker.node_id, each)
            for broker in brokers
            for each in broker.replicas
            if each.topic in (TOPIC, RETAINED, TABLE, *self._transactional.topics) or each.topic_id in self._topics
        ]
        leaders = {(each.topic_id, each.index): each for _, each in replicas if each.is_leader}
        apart = []
        for node_id, each in replicas:
            leader = leaders.get((each.topic_id, each.index))
            if leader is None or (each.log.end_offset, each.high_watermark) != (leader.log.end_offset,) * 2:
                apart.append(f"{each.topic}-{each.index} on {node_id}: {each.high_watermark} of {each.log.end_offset}")
            elif each.log.log_start_offset < leader.log.log_start_offset:
                apart.append(f"{each.topic}-{each.index} on {node_id} begins at {each.log.log_start_offset}")
        return apart

    def _is_whole(self) -> bool:
        brokers = [node.broker for node in self.cluster.nodes.values() if node.is_up and node.broker is not None]
        if len(brokers) < len(self.cluster.nodes) or any(broker.readiness.not_ready() for broker in brokers):
            return False
        image = self._newest_image()
        return image.topics.by_name(TOPIC) is not None and all(
            assigned.leader != NO_LEADER
            and set(assigned.isr) == set(assigned.replicas)
            and not (assigned.adding_replicas or assigned.removing_replicas)
            for _, _, assigned in image.topics.partitions()
        )

    def is_counted_on(self, disk: SimulatedDisk, topic: str, index: int) -> bool:
        """Whether the newest metadata that anybody has lets the replica on this disk lead, or waits for it."""
        (node_id,) = [node.id for node in self.cluster.nodes.values() if node.host.disk is disk]
        assigned = self._newest_image().topics.partition(topic, index)
        return assigned is not None and node_id in (
            *assigned.isr,
            *assigned.eligible_leader_replicas,
            *assigned.last_known_elr,
        )

    def _newest_image(self) -> MetadataImage:
        brokers = [node.broker for node in self.cluster.nodes.values() if node.is_up and node.broker is not None]
        return max((broker.image for broker in brokers), key=lambda each: each.provenance.end_offset)

    def _state(self) -> str:
        lines = []
        for node in self.cluster.nodes.values():
            broker = node.broker
            if broker is None or not node.is_up:
                lines.append(f"node {node.id} is down")
                continue
            why = broker.readiness.not_ready()
            bad = [
                f"{topic.name}-{index} {assigned.leader} {assigned.isr}"
                for topic, index, assigned in broker.image.topics.partitions()
                if assigned.leader == NO_LEADER or set(assigned.isr) != set(assigned.replicas)
            ]
            lines.append(f"node {node.id}: {why} {broker.image.provenance} {bad}")
        return "; ".join(lines)

    async def _end(self, working: Sequence[asyncio.Task[None]]) -> None:
        counts = [producer.acknowledged_count for producer in self.producers]
        self._transactional.remember()
        try:
            await self.cluster.until(
                lambda: all(
                    each.acknowledged_count > before for each, before in zip(self.producers, counts, strict=True)
                ),
                "new acknowledgements for every producer",
                DRAIN_S,
            )
            await self.cluster.until(self._transactional.has_progressed, "a commit of every application", COMMIT_S)
            await self._transactional_table.stop(DRAIN_S)
            await self._transactional.end(DRAIN_S)
            for producer in self.producers:
                producer.is_ending = True
            for committer in self._committers:
                committer.is_ending = True
            for member in self._members:
                member.is_ending = True
            waiting = working[: len(self.producers) + len(self._careless) + len(self._mixed)]
            await asyncio.wait_for(asyncio.gather(*waiting), DRAIN_S)
            await self._heartbeats.end(DRAIN_S)
            self._is_ended = True
            await asyncio.wait_for(asyncio.gather(*working), DRAIN_S)
            for key in self.keys:
                reading = self.run.history.reading("final", key, is_complete=True)
                final = Reader(
                    self.bootstrap(f"final-{key[1]}"),
                    reading,
                    self.run.complaints,
                    may_rot=Fault.BIT_ROT in self.plan.faults,
                )
                before = [reader.reading for reader in self._readers if reader.reading.key == key]
                await asyncio.wait_for(final.start_after(before), DRAIN_S)
                await asyncio.wait_for(final.work(lambda: True), DRAIN_S)
            await self._read_table()
            for verify in [each.verify for each in self._committers] + [each.verify for each in self._members[:1]]:
                await asyncio.wait_for(verify(), DRAIN_S)
            for administrator in self._administrators:
                administrator.verify(self._newest_image())
        except (TimeoutError, AssertionError) as error:
            raise Violation(f"not live: clients are not done: {error}; {self._state()}") from error


@contextmanager
def few_at_once(plan: Plan) -> Iterator[None]:
    """What the loop of a broker does at once is bounded by the plan, so that a few records and partitions are work to
    be done beside it, which else only many thousands of records are, and more than ten partitions."""
    records_max, partitions_max = record_validation.LOOP_RECORDS_MAX, partition_work.AT_ONCE_MAX
    vars(record_validation)["LOOP_RECORDS_MAX"] = plan.loop_records_max
    vars(partition_work)["AT_ONCE_MAX"] = plan.partitions_at_once_max
    try:
        yield
    finally:
        vars(record_validation)["LOOP_RECORDS_MAX"] = records_max
        vars(partition_work)["AT_ONCE_MAX"] = partitions_max


def run_seed(seed: int, *, plan: Plan | None = None, story: Story | None = None, lines: list[str] | None = None) -> Run:
    """Raises what broke: `SimulationFailed`, `Violation`; what clients saw is in the run's `problems`. The trace goes
    into `lines`, also of a run that broke."""
    plan = plan or Plan.drawn(Random(f"{seed}/plan"))
    swarm = Swarm(seed, plan, keep_trace=lines is not None)
    world = swarm.cluster.world
    random = Random(f"{seed}/clocks")
    for node in swarm.cluster.nodes.values():
        node.host.may_halt = True
        node.host.clock_rate_ppm = random.randint(-plan.rate_ppm_max, plan.rate_ppm_max)
        node.host.clock_offset_ns = random.randrange(10**12)
        node.host.wall_skew_ms = random.randint(-plan.skew_ms_max, plan.skew_ms_max)

    async def main(_: Cluster) -> None:
        await swarm.live(story)

    complaints = swarm.run.complaints
    with (
        swarm.cluster,
        failed_handlers(complaints),
        whole_starts(complaints, swarm.is_counted_on),
        few_at_once(plan),
    ):
        try:
            swarm.cluster.live(main, limit_s=LIMIT_S)
        finally:
            swarm.run.simulated_s = world.now_s
            swarm.run.digest = world.digest()
            swarm.run.struck = swarm.nemesis.struck
            if lines is not None:
                lines += world.trace.lines or []
    return swarm.run
