"""Random walks of a streams group: live and loaded groups are equal, and no task is active on two processes."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from moldau.coordinator.group.kind_settings import StreamsGroupSettings
from moldau.coordinator.streams.tasks import task_ids_of
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatResponse, TaskIds
from tests.support.compacted_reading import loaded_from, readings
from tests.support.streams_stage import StreamsStage, group_in, image_of, subtopology, topology

pytestmark = pytest.mark.slow

STEPS = 150
READINGS = 60
"""The number of times that the log of a walk is read while it is being compacted."""
MEMBERS = "abcde"
PROCESS_OF = {"a": "P", "b": "P", "c": "Q", "d": "R", "e": "R"}
TOPOLOGY = topology(subtopology("0", ["in"], "c"), subtopology("1", ["other"]))
SIZES = {"in": 3, "c": 3, "other": 2}


class Client:
    """A member as a client has it: it owns what it was told last."""

    def __init__(self, member_id: str) -> None:
        self.member_id = member_id
        self.epoch = 0
        self.active: list[TaskIds] = []
        self.standby: list[TaskIds] = []

    def take(self, response: StreamsGroupHeartbeatResponse) -> None:
        if response.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
            self.__init__(self.member_id)  # type: ignore[misc]
        elif response.error_code == ErrorCode.NONE:
            self.epoch = max(response.member_epoch, 0)
            if response.active_tasks is not None:
                self.active, self.standby = response.active_tasks, response.standby_tasks or []

    @property
    def owned(self) -> list[tuple[str, int]]:
        return [(each.subtopology_id, partition) for each in self.active for partition in each.partitions]


class Walk:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        delays = self.random.choice(((0, 0), (0, 1_000), (3_000, 1_000)))
        config = StreamsGroupSettings(initial_rebalance_delay_ms=delays[0], assignment_interval_ms=delays[1])
        self.stage = StreamsStage(SIZES, config)
        self.clients = {member_id: Client(member_id) for member_id in MEMBERS}

    def go(self) -> None:
        choices = {self.beat: 60, self.leave: 6, self.pass_time: 12, self.resize: 4, self.standbys: 4}
        choices |= {self.reload: 4, self.fail: 4, self.wrong: 6}
        (act,) = self.random.choices(list(choices), list(choices.values()))
        act()
        self.check()

    def beat(self) -> None:
        client = self.clients[self.random.choice(MEMBERS)]
        is_answered = self.random.random() < 0.9
        if client.epoch == 0:
            response = self.stage.join(client.member_id, PROCESS_OF[client.member_id], topology=TOPOLOGY)
        else:
            response = self.stage.heartbeat(
                client.member_id,
                client.epoch,
                active_tasks=client.active,
                standby_tasks=client.standby,
                warmup_tasks=[],
            )
        if is_answered:
            client.take(response)

    def leave(self) -> None:
        client = self.clients[self.random.choice(MEMBERS)]
        self.stage.leave(client.member_id)
        self.clients[client.member_id] = Client(client.member_id)

    def pass_time(self) -> None:
        self.stage.wait(self.random.choice((500, 3_000, 20_000, 50_000)))

    def resize(self) -> None:
        grown = {name: count + self.random.randrange(3) for name, count in SIZES.items()}
        self.stage.set_topics(self.random.choice((SIZES, grown, {**grown, "c": grown["in"]}, {"in": 3})))

    def standbys(self) -> None:
        self.stage.set_topics(SIZES, streams_num_standby_replicas=str(self.random.randrange(3)))

    def reload(self) -> None:
        self.stage.take_over()

    def fail(self) -> None:
        self.stage.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
        self.beat()
        self.stage.refusal = ErrorCode.NONE

    def wrong(self) -> None:
        member_id = self.random.choice([*MEMBERS, "stranger"])
        self.stage.report(member_id, self.random.randrange(-3, 9), self.random.randrange(4))

    def check(self) -> None:
        if not self.stage.records:
            return
        group = self.stage.group
        assert image_of(group_in(self.stage.loaded_copy())) == image_of(group)
        held = [(member.assigned, member.process_id) for member in group.members.values()]
        held += [(member.to_revoke, member.process_id) for member in group.members.values()]
        active = Counter(task for assigned, _ in held for task in task_ids_of(assigned.active))
        assert not [task for task, count in active.items() if count > 1]
        roles = Counter(
            (process, task)
            for assigned, process in held
            for task in (*task_ids_of(assigned.active), *task_ids_of(assigned.standby))
        )
        assert not [role for role, count in roles.items() if count > 1]
        assert set(group.owners.active) == set(active)

    def settle(self) -> None:
        """All members join again, and beat until nothing changes: then each task is active once.

        They join again because an assignment whose answer was lost is not repeated, by Apache Kafka neither.
        """
        self.stage.set_topics(SIZES)
        self.clients = {member_id: Client(member_id) for member_id in MEMBERS}
        for _ in range(12):
            self.stage.wait(4_000)
            for client in self.clients.values():
                for _ in range(2):
                    if client.epoch == 0:
                        client.take(self.stage.join(client.member_id, PROCESS_OF[client.member_id], topology=TOPOLOGY))
                    else:
                        client.take(
                            self.stage.heartbeat(
                                client.member_id,
                                client.epoch,
                                active_tasks=client.active,
                                standby_tasks=client.standby,
                                warmup_tasks=[],
                            )
                        )
        assert self.stage.state == "Stable"
        owned = sorted(task for client in self.clients.values() for task in client.owned)
        assert owned == [("0", 0), ("0", 1), ("0", 2), ("1", 0), ("1", 1)]


@pytest.mark.parametrize("seed", range(30))
def test_a_walk(seed: int) -> None:
    walk = Walk(seed)
    for _ in range(STEPS):
        walk.go()
    walk.settle()


@pytest.mark.parametrize("seed", range(30))
def test_a_log_that_is_being_compacted_gives_the_same_group(seed: int) -> None:
    """Also the same owners of tasks, although members of one process pass tasks to each other."""
    walk = Walk(seed)
    for _ in range(STEPS):
        walk.go()
    stage = walk.stage
    for number, read in enumerate(readings(stage.log, walk.random, READINGS)):
        group = group_in(loaded_from(read, stage.config, stage.image, stage.wall_ms))
        assert image_of(group) == image_of(stage.group), f"reading {number} of seed {seed}"


def test_the_check_sees_a_task_with_two_owners() -> None:
    walk = Walk(0)
    walk.stage.join("a", topology=TOPOLOGY)
    walk.stage.wait(5_000)
    walk.stage.report("a", walk.stage.group.members["a"].epoch)
    member = walk.stage.group.members["a"]
    walk.stage.group.members["z"] = member
    with pytest.raises(AssertionError):
        walk.check()
