"""Random clients of both protocols in one group, over a log that refuses, a coordinator that moves, topics that grow.

After every request: the group is the one that its log makes, and no partition has two owners (`ConsumerStage.check`);
and whatever a client believes to own, the coordinator counts as its own: nothing is given away before it is revoked.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest

from moldau.coordinator.classic.group import ClassicGroup
from moldau.coordinator.consumer.group import ConsumerGroup
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from tests.support.compacted_reading import loaded_from, readings
from tests.support.consumer_stage import ConsumerStage, assigned, check_owners, id_of, snapshot
from tests.unit.coordinator.consumer.test_conversion import Classic, given

pytestmark = pytest.mark.slow

STEPS = 120
READINGS = 60
"""The number of times that the log of a walk is read while it is being compacted."""
NONE = ErrorCode.NONE
GONE = {ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND}
GONE_CLASSIC = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.ILLEGAL_GENERATION}


@dataclass
class Client:
    """What a client knows. An epoch of 0: it is no member, and owns nothing."""

    name: str
    instance_id: str | None
    is_classic: bool
    member_id: str = ""
    epoch: int = 0
    owned: dict[str, set[int]] = field(default_factory=dict)
    is_away: bool = False

    def forget(self) -> None:
        self.epoch = 0
        self.owned = {}


class Walk:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.classic = Classic()
        self.stage: ConsumerStage = self.classic.stage
        self.stage.topics(a=3, b=2)
        self.seen: set[str] = set()
        instances = [None, None, "i1", None, None, "i2"]
        self.clients = [
            Client(f"c{number}", instance, is_classic=number % 3 == 2, member_id=f"c{number}")
            for number, instance in enumerate(instances)
        ]

    def run(self) -> None:
        for _ in range(STEPS):
            self.step()
            self.check()

    def check(self) -> None:
        group = self.stage.shard.group("g")
        self.seen.add("none" if group is None else f"{group.type_name} {group.state_name}")
        if not isinstance(group, ConsumerGroup):
            return
        for client in self.clients:
            member = group.members.get(client.member_id)
            for topic, partitions in client.owned.items() if member is not None and client.epoch else ():
                for partition in partitions:
                    assert member is not None and member.owned_epoch(id_of(topic), partition) is not None, (
                        f"{client.name} owns {topic}-{partition}, and the coordinator does not know"
                    )

    def step(self) -> None:
        chance = self.random.random()
        if chance < 0.06:
            self.stage.take_over()
            self.forget_unless_consumer()
        elif chance < 0.10:
            self.stage.topics(a=3 + self.random.randrange(3), b=2 + self.random.randrange(2))
        elif chance < 0.11:
            self.stage.wait(61_000)  # the sessions of all members end
            for client in self.clients:
                client.forget()
        elif chance < 0.30:
            self.stage.wait(self.random.choice([100, 1_000, 1_000, 5_000, 9_000]))
        elif chance < 0.36 and self.stage.commands:
            self.stage.resolve()
        else:
            if self.random.random() < 0.05:
                self.stage.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
            client = self.random.choice(self.clients)
            (self.act_classic if client.is_classic else self.act)(client)
            self.stage.refusal = NONE

    def forget_unless_consumer(self) -> None:
        """A classic group that moves forgets its parked joins: its members begin again."""
        if not isinstance(self.stage.shard.group("g"), ConsumerGroup):
            for client in self.clients:
                if client.is_classic:
                    client.forget()

    # Of the consumer protocol

    def act(self, client: Client) -> None:
        chance = self.random.random()
        if client.epoch == 0:
            if chance < 0.5:
                self.join(client)
        elif chance < 0.1:
            epoch = -2 if client.instance_id and self.random.random() < 0.7 else -1
            answer = self.stage.heartbeat(client.member_id, epoch, instance_id=client.instance_id)
            if answer.error_code == NONE:
                client.is_away = epoch == -2
                client.forget()
        else:
            topics = self.random.choice([["a"], ["a", "b"], ["b"], []]) if chance < 0.25 else None
            owned = client.owned if topics is not None or self.random.random() < 0.7 else None
            answer = self.stage.heartbeat(
                client.member_id, client.epoch, owned=owned, topics=topics, instance_id=client.instance_id
            )
            if self.random.random() < 0.85:
                self.hear(client, answer)
            elif answer.error_code in GONE:
                client.forget()

    def join(self, client: Client) -> None:
        if client.is_away:
            client.member_id += "'"
            client.is_away = False
        regex = self.random.choice([None, None, "a.*", "[ab]"])
        answer = self.stage.join(
            client.member_id,
            None if regex else self.random.choice([["a"], ["a", "b"]]),
            instance_id=client.instance_id,
            **({"subscribed_topic_regex": regex} if regex else {}),
            server_assignor=self.random.choice([None, "uniform", "range"]),
        )
        if self.random.random() < 0.9:
            self.hear(client, answer)

    def hear(self, client: Client, answer: ConsumerGroupHeartbeatResponse) -> None:
        if answer.error_code in GONE:
            client.forget()
        elif answer.error_code == NONE:
            client.epoch = answer.member_epoch
            given_now = assigned(answer)
            if given_now is not None:
                client.owned = {topic: set(partitions) for topic, partitions in given_now.items()}

    # Of the classic protocol

    def act_classic(self, client: Client) -> None:
        chance = self.random.random()
        if client.epoch and chance < 0.1:
            if self.classic.leave((client.member_id, client.instance_id)) == [NONE]:
                client.forget()
        elif client.epoch and chance < 0.6:
            error = self.classic.heartbeat(client.member_id, client.epoch, client.instance_id)
            if error == ErrorCode.REBALANCE_IN_PROGRESS:
                self.join_classic(client)
            elif error in GONE_CLASSIC:
                client.forget()
        else:
            self.join_classic(client)

    def join_classic(self, client: Client) -> None:
        member_id = client.member_id if client.epoch else ""
        answer = self.classic.join(member_id, owned=client.owned, instance_id=client.instance_id, topics=["a", "b"])
        if answer is not None and answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            answer = self.classic.join(answer.member_id, instance_id=client.instance_id, topics=["a", "b"])
        if answer is None or answer.error_code != NONE:
            client.forget()
            return
        client.member_id, client.epoch = answer.member_id, answer.generation_id
        if not isinstance(self.stage.shard.group("g"), ConsumerGroup):
            client.owned = {}
            return
        assignment = self.classic.sync(client.member_id, client.epoch, instance_id=client.instance_id)
        if assignment.error_code == NONE:
            client.owned = {topic: set(partitions) for topic, partitions in given(assignment).items()}
        elif assignment.error_code in GONE_CLASSIC:
            client.forget()


@pytest.mark.parametrize("seed", range(40))
def test_no_partition_has_two_owners_and_the_log_tells_the_truth(seed: int) -> None:
    walk = Walk(seed)
    try:
        walk.run()
    except Exception as error:
        error.add_note(f"seed {seed}")
        raise


@pytest.mark.parametrize("seed", range(40))
def test_a_log_that_is_being_compacted_gives_the_same_group(seed: int) -> None:
    """Also if the group turned from one protocol into the other and back meanwhile, or was emptied and made again."""
    walk = Walk(seed)
    walk.run()
    stage = walk.stage
    expected = stage.loaded_copy().group("g")
    for number, read in enumerate(readings(stage.log, walk.random, READINGS)):
        group = loaded_from(read, stage.config, stage.image, stage.wall_ms).group("g")
        assert type(group) is type(expected), f"reading {number} of seed {seed}"
        assert snapshot(group) == snapshot(expected), f"reading {number} of seed {seed}"
        if isinstance(group, ConsumerGroup):
            check_owners(group)
        elif isinstance(group, ClassicGroup) and isinstance(expected, ClassicGroup):
            assert (group.generation, [*group.members]) == (expected.generation, [*expected.members])


def test_the_walks_reach_every_state() -> None:
    seen = set()
    for seed in range(12):
        walk = Walk(seed)
        walk.run()
        seen |= walk.seen
    assert seen >= {f"consumer {state}" for state in ("Empty", "Assigning", "Reconciling", "Stable")}
    assert any(state.startswith("classic") for state in seen)
