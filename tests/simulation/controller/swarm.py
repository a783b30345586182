"""The controller alone, step by step in an order that a seed draws: brokers that come, go and lose their power, leaders
that change their in-sync sets, administrators; no network and no log, so that a second holds thousands of steps.

What each replica holds of the committed records is counted: a replica that leads, is in sync or may be elected holds
all of it. Decisions may be lost with the controller that made them, before they are committed. At the end everything
heals: all moves end, and everybody is in sync.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, NamedTuple
from unittest.mock import patch

from moldau.kraft.controller import decision as decisions
from moldau.kraft.controller.controller import Controller
from moldau.kraft.controller.decision import Decision
from moldau.kraft.controller.settings import ControllerSettings
from moldau.kraft.features import ELIGIBLE_LEADER_REPLICAS, SUPPORTED_FEATURES
from moldau.kraft.image.cluster import FENCE
from moldau.kraft.image.configs import ResourceType
from moldau.kraft.image.metadata_image import Provenance
from moldau.kraft.image.replay import Replay
from moldau.kraft.image.topics import NO_LEADER
from moldau.kraft.image.topics import PartitionRegistration as Assigned
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages import alter_partition as altering
from moldau.protocol.messages import alter_partition_reassignments as moving
from moldau.protocol.messages import broker_registration as registering
from moldau.protocol.messages import create_topics as creating
from moldau.protocol.messages import delete_topics as deleting
from moldau.protocol.messages import elect_leaders as electing
from moldau.protocol.messages import incremental_alter_configs as incremental
from moldau.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from moldau.protocol.records.metadata import (
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
)
from tests.simulation.controller.contacts import Contacts
from tests.simulation.invariants.controller_state import ControllerState
from tests.simulation.invariants.observation import Violation
from tests.simulation.invariants.sound_image import SoundImage, min_in_sync
from tests.support.controller_scribe import SETTINGS
from tests.support.drawn_steps import Weighted, drawn_steps

STEPS: Final = 1500
ROUNDS_MAX: Final = 60
SESSION_MS: Final = 9000
PATIENCE_MS: Final = 2500
"""Longer than what passes at once when all heals."""
BEATS_KEPT: Final = 500
SILENCE_ROUNDS: Final = 14
"""Of a second each: longer than a session."""
MIN_IN_SYNC: Final = "min.insync.replicas"
Key = tuple[bytes, int]
"""Topic id and index."""


@dataclass(slots=True)
class Node:
    """A broker's process, and what it knows of itself."""

    id: int
    life: int = 0
    is_up: bool = False
    epoch: int = -1
    """Of its registration in this life; -1 before that is committed."""
    former_epoch: int = -1
    """In which it ended and lost nothing."""
    is_asking: bool = False
    """For its registration."""
    is_stopping: bool = False
    """It says so with every heartbeat, until it may."""


class Entry(NamedTuple):
    """A decision in the log, and who is told when it is committed."""

    records: Sequence[object]
    provenance: Provenance
    told: Callable[[], None]


@dataclass(slots=True)
class Data:
    """Of one partition: how many records were committed, and how many of those each replica holds."""

    committed: int = 0
    held: dict[int, int] = field(default_factory=dict)
    proposed: set[int] = field(default_factory=set)
    """The set that its leader asked for, as long as it does not know whether it has it."""
    proposed_in: int = -1
    """The partition epoch of that."""
    asked: tuple[altering.AlterPartitionRequest, Callable[[Any], None]] | None = None
    """For that set; it is asked again if the answer is lost."""
    is_answer_lost: bool = False


class Swarm:
    def __init__(self, seed: int) -> None:
        self.random = random = Random(f"{seed}/controller")
        self.has_eligible = random.random() < 0.7
        self.nodes = {each: Node(each) for each in range(1, random.choice((3, 4, 5)) + 1)}
        self.now_ms = 0
        self.offset = 0
        self.epoch = 1
        self.ids = 0
        self.settings: ControllerSettings = SETTINGS._replace(
            random=Random(f"{seed}/placement"),
            new_uuid=self._new_id,
            broker_session_timeout_ms=SESSION_MS,
            broker_silence_fence_ms=Random(f"{seed}/silence").choice((0, PATIENCE_MS)),
        )
        self.slice_size = Random(f"{seed}/slices").choice((1, 2, decisions.PARTITIONS_PER_SLICE))
        """How many partitions one batch of a decision about many is about."""
        self.contacts = Contacts(SESSION_MS, hurries=self.settings.broker_silence_fence_ms > 0)
        self.committed = Replay()
        self.uncommitted: list[Entry] = []
        self.controller = Controller(self.committed.fork(), self.settings, 0)
        self.data: dict[Key, Data] = {}
        self.on_their_way: list[tuple[altering.AlterPartitionRequest, Callable[[Any], None]]] = []
        self.late: dict[str, list[object]] = {}
        """What was sent lately, by its kind."""
        self.beats: deque[BrokerHeartbeatRequest] = deque(maxlen=BEATS_KEPT)
        self.last = "the start"
        self._steps: Weighted = [
            (self.beat, 60),
            (self.commit, 120),
            (self.write, 60),
            (self.fetch, 80),
            (self.grow, 60),
            (self.shrink, 15),
            (self.arrive, 80),
            (self.boot, 20),
            (self.pass_time, 20),
            (self.create, 6),
            (self.delete, random.choice((0, 1))),
            (self.move, random.choice((0, 3, 12))),
            (self.cancel, random.choice((0, 1, 3))),
            (self.elect, random.choice((0, 4))),
            (self.change_minimum, random.choice((0, 0, 2, 6))),
            (self.kill, random.choice((0, 2, 8))),
            (self.shut_down, random.choice((0, 2, 6))),
            (self.cut_power, random.choice((0, 2, 6))),
            (self.fail_over, random.choice((0, 1, 4))),
            (self.repeat, random.choice((0, 4))),
            (self.fall_silent, 2),
        ]

    def _new_id(self) -> bytes:
        self.ids += 1
        return self.ids.to_bytes(16, "big")

    # The story

    def run(self) -> None:
        with patch.object(decisions, "PARTITIONS_PER_SLICE", self.slice_size):
            self._run()

    def _run(self) -> None:
        self._activate()
        for node in self.nodes.values():
            self._boot(node)
        for step in drawn_steps(self.random, self._steps, STEPS):
            self.last = step.__name__
            step()
            self.look()
        self.heal()

    def heal(self) -> None:
        self.last = "heal"
        for _ in range(ROUNDS_MAX):
            for node in self.nodes.values():
                if not node.is_up:
                    self._boot(node)
                self._register(node)
                self._beat(node)
            self.commit_all()
            for key in [*self.data]:
                for node in self.nodes.values():
                    self._fetch(key, node)
                self._grow(key)
            while self.on_their_way:
                self.arrive()
            self.commit_all()
            self._pass(2000)
            self.look()
            if not self._unhealed() and all(map(self._stays, self.nodes.values())):
                break
        else:
            raise Violation(f"after everything healed: {self._unhealed()}")
        for _ in range(self.settings.leader_imbalance_check_interval_seconds // 2 + 2):
            for node in self.nodes.values():
                self._register(node)
                self._beat(node)
            self._pass(2000)
            self.commit_all()
            self.look()
        for name, assigned in self._partitions():
            if assigned.leader != assigned.replicas[0]:
                raise Violation(f"{name} is not led by its preferred leader: {assigned}")

    def _unhealed(self) -> list[str]:
        return [
            f"{name} {assigned}"
            for name, assigned in self._partitions()
            if {*assigned.isr} != {*assigned.replicas}
            or assigned.leader == NO_LEADER
            or assigned.adding_replicas
            or assigned.removing_replicas
        ]

    def _partitions(self) -> list[tuple[str, Assigned]]:
        return [(f"{topic.name}-{index}", each) for topic, index, each in self.committed.image.topics.partitions()]

    # Watching

    def look(self) -> None:
        """At what is committed, and at what is decided."""
        try:
            for image in (self.committed.image, self.controller.image):
                for topic, index, assigned in image.topics.partitions():
                    name = f"{topic.name}-{index}"
                    ControllerState._check_moment(image, name, assigned)
                    needed = min_in_sync(image, topic, 1) if self.has_eligible else None
                    SoundImage._check_partition(name, assigned, needed, has_eligible=self.has_eligible)
                    self._check_data(name, (topic.id, index), assigned)
        except Violation as violation:
            raise Violation(f"after {self.last}: {violation}") from None

    def _check_data(self, name: str, key: Key, assigned: Assigned) -> None:
        data = self.data.get(key)
        if data is None:
            return
        for node_id in (*assigned.isr, *assigned.eligible_leader_replicas):
            if data.held.get(node_id, 0) < data.committed:
                held = data.held.get(node_id, 0)
                raise Violation(f"{name}: {node_id} may lead with {held} of {data.committed} records: {assigned}")

    # The log

    def _activate(self) -> None:
        bootstrap = [
            FeatureLevelRecord(name="metadata.version", feature_level=SUPPORTED_FEATURES["metadata.version"][1])
        ]
        if self.has_eligible:
            bootstrap.append(FeatureLevelRecord(name=ELIGIBLE_LEADER_REPLICAS, feature_level=1))
        registration = RegisterControllerRecord(controller_id=0, incarnation_id=bytes(16), zk_migration_ready=False)
        for decision in self.controller.activate(bootstrap, registration):
            self._carry_out(decision)

    def _carry_out(self, decision: Decision, told: Callable[[Any], None] | None = None) -> None:
        """`told`: the reply, once it is committed."""

        def tell() -> None:
            if told is not None:
                told(decision.reply)

        for records in decision.batches():
            provenance = self._append(records)
            self.uncommitted.append(Entry(records, provenance, lambda: None))
        self.uncommitted[-1] = self.uncommitted[-1]._replace(told=tell)

    def _append(self, records: Sequence[object]) -> Provenance:
        self.offset += len(records)
        provenance = Provenance(self.offset, self.epoch, self.now_ms)
        for record in records:
            if isinstance(record, RegisterBrokerRecord):
                self.contacts.registered(record.broker_id, self.now_ms)
            elif isinstance(record, BrokerRegistrationChangeRecord) and record.fenced == FENCE:
                self.contacts.fenced(record.broker_id)
        if records:
            steps = {(topic.id, index): each for topic, index, each in self.controller.image.topics.partitions()}
            self.controller.replay(records, provenance, self.now_ms)
            for topic, index, after in self.controller.image.topics.partitions():
                known = steps.get((topic.id, index))
                if known is not None:
                    ControllerState._check_step(f"{topic.name}-{index}", known, after)
                    self._check_election(f"{topic.name}-{index}", known, after)
        return provenance

    def _check_election(self, name: str, before: Assigned, after: Assigned) -> None:
        """An eligible leader replica is elected if no in-sync replica can be."""
        cluster = self.controller.image.cluster
        left_out = {*before.isr} & {*after.replicas} - {*after.isr, *after.eligible_leader_replicas}
        if after.leader in before.eligible_leader_replicas and any(map(cluster.is_active, left_out)):
            raise Violation(f"{name}: {after.leader} is elected, and {left_out} were in sync: {before}, {after}")

    def _ask(self, request: object, told: Callable[[Any], None] | None = None) -> None:
        if isinstance(request, BrokerHeartbeatRequest):
            known = self.controller.image.cluster.brokers.get(request.broker_id)
            if known is not None and known.epoch == request.broker_epoch:
                self.contacts.heard(request.broker_id, self.now_ms)
        self._carry_out(self.controller.step(request, self.now_ms), told)

    def commit(self) -> None:
        for _ in range(self.random.randint(1, 4)):
            self._commit_one()

    def commit_all(self) -> None:
        while self.uncommitted:
            self._commit_one()

    def _commit_one(self) -> None:
        if not self.uncommitted:
            return
        entry = self.uncommitted.pop(0)
        if entry.records:
            self.committed.replay(entry.records, entry.provenance)
            self._follow()
        entry.told()

    def _follow(self) -> None:
        """What brokers make of the metadata: replicas that are theirs no more go, and new ones are empty."""
        seen = {(topic.id, index): each for topic, index, each in self.committed.image.topics.partitions()}
        for key in self.data.keys() - seen.keys():
            del self.data[key]
        for key, assigned in seen.items():
            data = self.data.setdefault(key, Data())
            data.held = {each: data.held.get(each, 0) for each in assigned.replicas}
            if assigned.partition_epoch > data.proposed_in:
                data.proposed = set()

    def fail_over(self) -> None:
        """The next controller has what was committed, and perhaps some of what was not."""
        kept = self.random.randint(0, len(self.uncommitted))
        for _ in range(kept):
            entry = self.uncommitted.pop(0)
            self.committed.replay(entry.records, entry.provenance)  # committed with the new term; its reply was lost
            self._follow()
        self.uncommitted = []
        for node in self.nodes.values():
            node.is_asking = False
        for data in self.data.values():
            data.is_answer_lost = data.asked not in self.on_their_way
        self.offset = self.committed.image.provenance.end_offset
        self.epoch += 1
        self.controller = Controller(self.committed.fork(), self.settings, self.now_ms)
        self.contacts.begin_anew(self.committed.image.cluster.brokers, self.now_ms)
        self._activate()

    # Brokers

    def _some(self, *, is_up: bool = True) -> Node | None:
        nodes = [each for each in self.nodes.values() if each.is_up is is_up]
        return self.random.choice(nodes) if nodes else None

    def boot(self) -> None:
        node = self._some(is_up=False)
        if node is not None:
            self._boot(node)
        for each in self.nodes.values():
            self._register(each)

    def _boot(self, node: Node) -> None:
        node.life += 1
        node.is_up, node.is_asking, node.epoch = True, False, -1
        self._register(node)

    def _register(self, node: Node) -> None:
        if not node.is_up or node.epoch >= 0 or node.is_asking:
            return
        life = node.life

        def told(response: registering.BrokerRegistrationResponse) -> None:
            if node.life == life and node.is_up:
                node.is_asking = False
                if response.error_code == ErrorCode.NONE:
                    node.epoch = node.former_epoch = response.broker_epoch

        node.is_asking = True
        request = registering.BrokerRegistrationRequest(
            broker_id=node.id,
            cluster_id="cluster",
            incarnation_id=(node.id * 1000 + life).to_bytes(16, "big"),
            listeners=[registering.Listener(name="PLAINTEXT", host="h", port=9092, security_protocol=0)],
            features=[
                registering.Feature(name=name, min_supported_version=first, max_supported_version=last)
                for name, (first, last) in SUPPORTED_FEATURES.items()
                if last > 0
            ],
            previous_broker_epoch=node.former_epoch,
            log_dirs=[(1000 + node.id).to_bytes(16, "big")],
        )
        self._ask(request, told)

    def beat(self) -> None:
        for node in self.nodes.values():
            if self.random.random() < 0.8:
                self._beat(node)

    def _beat(self, node: Node) -> None:
        if not node.is_up or node.epoch < 0:
            return
        life = node.life

        def told(response: BrokerHeartbeatResponse) -> None:
            if response.should_shut_down and node.life == life:
                self._end(node)

        request = BrokerHeartbeatRequest(
            broker_id=node.id,
            broker_epoch=node.epoch,
            current_metadata_offset=self.committed.image.provenance.end_offset,
            want_fence=False,
            want_shut_down=node.is_stopping,
        )
        self._remember(request)
        self.beats.append(request)
        self._ask(request, told)

    def kill(self) -> None:
        """It loses nothing: its machine is up."""
        node = self._some()
        if node is not None:
            self._end(node)
            if self.random.random() < 0.3:
                self._disconnect(node)

    def _disconnect(self, node: Node) -> None:
        self.controller.note_disconnected(node.id, self.now_ms)
        self.contacts.lost(node.id, self.now_ms)

    def fall_silent(self) -> None:
        """A process ends for longer than a session. What earlier processes of that broker sent arrives meanwhile."""
        node = self._some()
        if node is None or node.epoch < 0 or self.random.random() < 0.5:
            return
        former = [each for each in self.beats if each.broker_id == node.id and each.broker_epoch != node.epoch]
        self._end(node)
        if self.random.random() < 0.5:
            self._disconnect(node)
        for _ in range(SILENCE_ROUNDS):
            if former:
                self._ask(self.random.choice(former))
            self._pass(1000)
            for other in self.nodes.values():
                self._beat(other)
            self.commit_all()

    def shut_down(self) -> None:
        node = self._some()
        if node is not None:
            node.is_stopping = True
            self._beat(node)

    @staticmethod
    def _end(node: Node) -> None:
        node.is_up, node.is_asking, node.is_stopping, node.epoch = False, False, False, -1

    def cut_power(self) -> None:
        """Of one without which everything is still there; it is back before another goes."""
        node = self._some()
        if node is None or not self._is_dispensable(node):
            return
        self.commit_all()
        if not self._is_dispensable(node):
            return
        for data in self.data.values():
            if node.id in data.held:
                data.held[node.id] = self.random.randint(0, data.held[node.id])
        node.former_epoch = -1
        self._end(node)
        self.last = "cut_power"
        for _ in range(30):
            self._pass(1000)
            for each in self.nodes.values():
                if each is not node:
                    self._beat(each)
            self.commit_all()
            if not node.is_up:
                self._boot(node)
            self._register(node)
            self.commit_all()
            if node.epoch >= 0:
                return

    def _is_dispensable(self, node: Node) -> bool:
        for _, assigned in self._partitions():
            counts = {*assigned.isr, *assigned.eligible_leader_replicas, *assigned.last_known_elr}
            others = [each for each in assigned.isr if each != node.id and self._stays(self.nodes[each])]
            if node.id in counts and not others:
                return False
        return True

    @staticmethod
    def _stays(node: Node) -> bool:
        return node.is_up and not node.is_stopping and node.epoch >= 0

    def pass_time(self) -> None:
        self._pass(self.random.choice((10, 500, 3000)))

    def _pass(self, milliseconds: int) -> None:
        self.now_ms += milliseconds
        before = self._unfenced()
        for decision in self.controller.tick(self.now_ms):
            self._carry_out(decision)
        self.contacts.check(before, self._unfenced(), self.now_ms)

    def _unfenced(self) -> set[int]:
        return {each.id for each in self.controller.image.cluster.brokers.values() if not each.fenced}

    def _remember(self, request: object) -> None:
        sent = self.late.setdefault(type(request).__name__, [])
        sent.append(request)
        del sent[:-20]

    def repeat(self) -> None:
        """A request that was sent long ago arrives once more; no node waits for its response. One for an in-sync set
        only if that has changed since: else its leader would ask for it still."""
        if self.late:
            request = self.random.choice(self.late[self.random.choice([*self.late])])
            if not isinstance(request, altering.AlterPartitionRequest) or self._is_over(request):
                self._ask(request)

    def _is_over(self, request: altering.AlterPartitionRequest) -> bool:
        (topic,) = request.topics
        (wish,) = topic.partitions
        known = self.committed.image.topics.by_id.get(topic.topic_id)
        return known is None or known.partitions[wish.partition_index].partition_epoch > wish.partition_epoch

    # Leaders and followers

    def _leader(self, key: Key) -> tuple[Node, Assigned] | None:
        """As the metadata has it, if it lives and is the same process."""
        topic = self.committed.image.topics.by_id.get(key[0])
        assigned = topic.partitions.get(key[1]) if topic is not None else None
        if assigned is None or assigned.leader == NO_LEADER:
            return None
        node = self.nodes[assigned.leader]
        known = self.committed.image.cluster.brokers[node.id]
        return (node, assigned) if node.is_up and node.epoch == known.epoch else None

    def _any_key(self) -> Key | None:
        return self.random.choice([*self.data]) if self.data else None

    def write(self) -> None:
        """What everybody who counts, or may count, has taken is committed, if they are enough."""
        key = self._any_key()
        led = self._leader(key) if key is not None else None
        if key is None or led is None:
            return
        _, assigned = led
        data = self.data[key]
        counts = {*assigned.isr, *data.proposed}
        topic = self.committed.image.topics.by_id[key[0]]
        needed = min(min_in_sync(self.committed.image, topic, 1) or 1, len(assigned.replicas))
        if len(assigned.isr) >= needed and all(self.nodes[each].is_up for each in counts):
            data.committed += 1
            for each in counts:
                data.held[each] = data.committed

    def fetch(self) -> None:
        key = self._any_key()
        if key is not None:
            for node in self.nodes.values():
                self._fetch(key, node)

    def _fetch(self, key: Key, node: Node) -> None:
        led = self._leader(key)
        if led is not None and node.is_up and node.epoch >= 0 and node.id in led[1].replicas:
            self.data[key].held[node.id] = self.data[key].held[led[0].id]

    def grow(self) -> None:
        key = self._any_key()
        if key is not None:
            self._grow(key)

    def _grow(self, key: Key) -> None:
        """The leader proposes replicas that have every record; now and then one that the controller must refuse."""
        led, data = self._leader(key), self.data[key]
        if led is None or data.proposed:
            if led is not None and data.is_answer_lost and data.asked is not None:
                data.is_answer_lost = False
                self.on_their_way.append(data.asked)
            return
        _, assigned = led
        others = [each for each in assigned.replicas if each not in assigned.isr]
        brokers = self.committed.image.cluster.brokers
        ready = [
            each
            for each in others
            if data.held.get(each, 0) == data.committed
            and self.nodes[each].is_up
            and self.nodes[each].epoch >= 0
            and brokers[each].epoch == self.nodes[each].epoch
            and not brokers[each].fenced
        ]
        if ready:
            self._alter(key, led, [*assigned.isr, self.random.choice(ready)])

    def shrink(self) -> None:
        key = self._any_key()
        led = self._leader(key) if key is not None else None
        if key is not None and led is not None and not self.data[key].proposed:
            kept = [each for each in led[1].isr if each == led[0].id or self.random.random() < 0.5]
            if len(kept) < len(led[1].isr):
                self._alter(key, led, kept)

    def _alter(self, key: Key, led: tuple[Node, Assigned], isr: Sequence[int]) -> None:
        node, assigned = led
        data = self.data[key]
        data.proposed, data.proposed_in = {*isr}, assigned.partition_epoch
        brokers = self.committed.image.cluster.brokers
        wish = altering.PartitionData(
            partition_index=key[1],
            leader_epoch=assigned.leader_epoch,
            partition_epoch=assigned.partition_epoch,
            new_isr_with_epochs=[
                altering.BrokerState(broker_id=each, broker_epoch=brokers[each].epoch) for each in isr
            ],
        )
        request = altering.AlterPartitionRequest(
            broker_id=node.id,
            broker_epoch=node.epoch,
            topics=[altering.TopicData(topic_id=key[0], partitions=[wish])],
        )
        life = node.life

        def told(response: altering.AlterPartitionResponse) -> None:
            """Refused: the set is what it was. What was granted shows in the metadata."""
            is_granted = response.error_code == ErrorCode.NONE and all(
                each.error_code == ErrorCode.NONE for topic in response.topics for each in topic.partitions
            )
            now = self.data.get(key)
            if not is_granted and now is not None and node.life == life and now.proposed_in == assigned.partition_epoch:
                now.proposed = set()

        self._remember(request)
        data.asked, data.is_answer_lost = (request, told), False
        self.on_their_way.append(data.asked)

    def arrive(self) -> None:
        """In any order: what a request speaks of may be over."""
        if self.on_their_way:
            self._ask(*self.on_their_way.pop(self.random.randrange(len(self.on_their_way))))

    # Administrators

    def create(self) -> None:
        active = [each.id for each in self.controller.image.cluster.brokers.values() if not each.fenced]
        if len(self.data) < 6 and active:
            topic = creating.CreatableTopic(
                name=f"topic-{self.ids}",
                num_partitions=self.random.randint(1, 2),
                replication_factor=self.random.randint(1, min(3, len(active))),
                configs=self.random.choice(
                    ([], [creating.CreatableTopicConfig(name=MIN_IN_SYNC, value=self.random.choice("123"))])
                ),
            )
            self._ask(creating.CreateTopicsRequest(topics=[topic]))

    def delete(self) -> None:
        key = self._any_key()
        if key is not None:
            state = deleting.DeleteTopicState(name=None, topic_id=key[0])
            self._ask(deleting.DeleteTopicsRequest(topics=[state], timeout_ms=1000))

    def move(self) -> None:
        known = [*self.committed.image.cluster.brokers]
        if known:
            self._move(self.random.sample(known, self.random.randint(1, min(3, len(known)))))

    def cancel(self) -> None:
        self._move(None)

    def _move(self, replicas: list[int] | None) -> None:
        key = self._any_key()
        topic = self.committed.image.topics.by_id.get(key[0]) if key is not None else None
        if key is None or topic is None:
            return
        partition = moving.ReassignablePartition(partition_index=key[1], replicas=replicas)
        self._ask(
            moving.AlterPartitionReassignmentsRequest(
                topics=[moving.ReassignableTopic(name=topic.name, partitions=[partition])]
            )
        )

    def elect(self) -> None:
        self._ask(electing.ElectLeadersRequest(election_type=0, topic_partitions=None))

    def change_minimum(self) -> None:
        key = self._any_key()
        topic = self.committed.image.topics.by_id.get(key[0]) if key is not None else None
        if topic is None:
            return
        self.commit_all()
        config = incremental.AlterableConfig(name=MIN_IN_SYNC, config_operation=0, value=self.random.choice("123"))
        resource = incremental.AlterConfigsResource(
            resource_type=ResourceType.TOPIC, resource_name=topic.name, configs=[config]
        )
        self._ask(incremental.IncrementalAlterConfigsRequest(resources=[resource], validate_only=False))
        self.commit_all()
