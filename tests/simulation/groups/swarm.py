"""Random members of a few groups, and producers that commit offsets in transactions, under one coordinator, which is
taken over again and again; then all is quiet.

A seed draws how the log behaves, how often answers are lost and requests come twice or late, which members are static,
how long offsets are kept.
"""

from __future__ import annotations

from functools import partial
from itertools import count
from random import Random
from typing import Final

from moldau.coordinator.classic.group import EMPTY
from moldau.coordinator.group import events
from moldau.coordinator.group.config import MINUTE_MS, GroupConfig
from moldau.coordinator.runtime.machine import TransactionEnd
from moldau.protocol.messages.delete_groups import DeleteGroupsRequest
from moldau.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from moldau.protocol.messages.offset_fetch import OffsetFetchRequestGroup
from tests.simulation.groups.client import TOPICS, Client, Sent, commit_request
from tests.simulation.groups.log_rules import LogRules
from tests.simulation.groups.member_rules import MemberRules
from tests.simulation.groups.producer import MARKER_VERSION, Producer
from tests.simulation.groups.stage import DrawnGroupStage
from tests.support.coordinator_swarm import CoordinatorSwarm
from tests.support.drawn_stage import Asked, Manners
from tests.support.drawn_steps import Violation, Weighted
from tests.support.group_stage import classic_groups

GROUPS: Final = ("g", "h")
SIMPLE: Final = "simple"
"""Of a consumer without a group."""
QUIET_WAITS: Final = 6
LONG_MINUTES: Final = 10_080


class Swarm(CoordinatorSwarm):
    STEPS = 500
    stage: DrawnGroupStage

    def __init__(self, seed: int) -> None:
        random = Random(f"{seed}/groups")
        super().__init__(random)
        config = GroupConfig(
            max_session_timeout_ms=30_000,
            max_size=random.choice((2, 3, 0x7FFFFFFF, 0x7FFFFFFF)),
            initial_rebalance_delay_ms=random.choice((0, 3_000)),
            offsets_retention_minutes=random.choice((1, 1, LONG_MINUTES)),
            offsets_retention_check_interval_ms=random.choice((5_000, 30_000)),
        )
        self.log_rules = LogRules((*GROUPS, SIMPLE))
        self.member_rules = MemberRules(self.log_rules)
        self.watchers = (self.log_rules, self.member_rules)
        self.stage = DrawnGroupStage(random, self, config)
        self.log_rules.stage = self.member_rules.stage = self.stage
        self.draw_manners()
        self.draw_losses()
        offsets = count(1)
        self.clients = [
            Client(
                f"c{i}",
                random.choice((*GROUPS, GROUPS[0])),
                random,
                offsets,
                f"s{i}" if random.random() < 0.4 else None,
            )
            for i in range(random.randint(2, 5))
        ]
        self._offsets = offsets
        self.producers = [Producer(1_000 + i, random, offsets) for i in range(random.choice((0, 1, 2, 3)))]
        self._awaited: dict[Client | Producer, int] = {}
        """The number of what a client asked last."""
        self._asked_count = 0
        self._paused_until: dict[Client, int] = {}
        self.steps: Weighted = [
            (self.act, 100),
            (self.wait_a_little, 40),
            (self.wait_long, random.choice((0, 2, 6))),
            (self.commit_log, 20),
            (self.commit_simply, 4),
            (self.transact, random.choice((5, 30)) if self.producers else 0),
            (self.read, 25 if self.producers else 6),
            (self.pause, random.choice((0, 2, 5))),
            (self.restart, random.choice((0, 2, 5))),
            (self.leave, random.choice((0, 1, 3))),
            (self.deliver_late, 10 if self.repeats else 0),
            (self.take_over, random.choice((0, 1, 4))),
            (self.freeze, random.choice((0, 0, 1))),
            (self.hold, random.choice((0, 1))),
            (self.delete, random.choice((0, 0, 2))),
        ]

    # The story

    def begin(self) -> None:
        self.loaded()
        super().begin()

    def end(self) -> None:
        """All members are gone: what has outlived its retention is deleted, all else is there."""
        stage = self.stage
        stage.manners = Manners()
        stage.commit_log()
        stage.take_over(is_told=True)
        self.look_at_groups()
        self._end_transactions()
        self.look_at_groups()
        offsets = self.log_rules.committed_log.offsets
        kept = {place for place, (value, _) in offsets.items() if value.expire_ms is None}
        for _ in range(QUIET_WAITS):
            self.wait(10 * MINUTE_MS)
        self.look_at_groups()
        self.check_answers()
        states = {group_id: group.state for group_id, group in classic_groups(stage.shard).items()}
        if any(state is not EMPTY for state in states.values()):
            raise Violation(f"no member is left, and groups are {states}")
        left = {*offsets}
        if stage.config.offsets_retention_minutes < LONG_MINUTES and (left or states):
            raise Violation(f"long after the last was there are {states} and offsets {left}")
        if stage.config.offsets_retention_minutes == LONG_MINUTES and kept - left:
            raise Violation(f"offsets {kept - left} are gone within hours")

    def _end_transactions(self) -> None:
        """Their coordinator aborts what it hears nothing of, or ends what it was told to end."""
        for producer_id in sorted(self.log_rules.latest.pending):
            end = TransactionEnd(self.random.random() < 0.5, coordinator_epoch=0)
            epoch = self.stage.epoch_of(producer_id)
            make = partial(events.EndOffsetsTransaction, producer_id=producer_id, producer_epoch=epoch, end=end)
            self.ask((make, MARKER_VERSION), None)
        if self.log_rules.committed_log.pending:
            raise Violation(f"markers are written, and pending are {self.log_rules.committed_log.pending}")

    def look_at_groups(self) -> None:
        for group_id in (*GROUPS, SIMPLE):
            self.log_rules.look(group_id)

    # Clients

    def act(self) -> None:
        client = self.random.choice(self.clients)
        if self._paused_until.get(client, 0) > self.stage.now_ms:
            return
        if client.is_waiting and self.random.random() < 0.95:
            return  # else it has lost its patience
        self._send(self.random.choice(client.requests())(), client)

    def _send(self, sent: Sent, client: Client | Producer | None) -> None:
        """It may get lost, come twice, or come again much later."""
        number = self._asked_count = self._asked_count + 1
        if client is not None:
            client.is_waiting = True
            self._awaited[client] = number
        if self.random.random() < self.repeats:
            self.keep_late(sent)
        if self.random.random() < self.repeats:
            self.ask(sent, None)
        if self.random.random() >= self.loses / 2:
            self.ask(sent, (client, number))

    def answer(self, asked: Asked, response: object) -> None:
        if not isinstance(asked.owner, tuple):
            return
        client, number = asked.owner
        if client is not None and self._awaited.get(client) == number and self.random.random() >= self.loses:
            client.hear(response)

    def commit_simply(self) -> None:
        """A consumer without a group, or one that commits to a group without being a member."""
        group_id = self.random.choice((SIMPLE, SIMPLE, *GROUPS))
        self._send(commit_request(self.random, self._offsets, group_id, -1, "", None), None)

    def transact(self) -> None:
        """A producer commits the offsets of a consumer, with or without its name, or ends its transaction."""
        producer = self.random.choice(self.producers)
        client = self.random.choice((None, *self.clients))
        group_id = client.group_id if client is not None else self.random.choice((SIMPLE, *GROUPS))
        if not producer.is_waiting or self.random.random() < 0.2:
            self._send(producer.request(group_id, client), producer)

    def read(self) -> None:
        request = OffsetFetchRequestGroup(group_id=self.random.choice((*GROUPS, SIMPLE)), topics=None)
        self._send((lambda waiter: events.FetchStableOffsets(waiter, request), 9), None)

    def pause(self) -> None:
        self._paused_until[self.random.choice(self.clients)] = self.stage.now_ms + self.random.randint(1, 60_000)

    def restart(self) -> None:
        client = self.random.choice(self.clients)
        if self.random.random() < 0.7:
            client.forget()
        else:
            client.change()

    def leave(self) -> None:
        client = self.random.choice(self.clients)
        if client.member_id:
            self._send(client.leave(), client)

    def delete(self) -> None:
        group_id, topic = self.random.choice((*GROUPS, SIMPLE)), self.random.choice(TOPICS)
        partitions = [OffsetDeleteRequestPartition(partition_index=each) for each in range(2)]
        named = [OffsetDeleteRequestTopic(name=topic, partitions=partitions)]
        offsets = OffsetDeleteRequest(group_id=group_id, topics=named)
        groups = DeleteGroupsRequest(groups_names=[group_id])
        match self.random.randrange(3):
            case 0:
                self._send((lambda waiter: events.DeleteOffsets(waiter, offsets), 0), None)
            case 1:
                self._send((lambda waiter: events.DeleteGroups(waiter, groups), 2), None)
            case _:
                self.stage.step(events.TopicsDeleted(frozenset({topic})))

    # Time and the coordinator

    def wait(self, ms: int) -> None:
        super().wait(ms)
        self.member_rules.look()

    def freeze(self) -> None:
        self.stage.freeze(self.random.randint(1, 40_000))
        self.member_rules.thawed()

    def take_over(self) -> None:
        is_told = self.random.random() < 0.5
        self.stage.freeze(self.random.choice((0, 0, 2_000)))
        self.stage.wall_skew_ms = self.random.randint(-2_000, 2_000)
        self.stage.take_over(is_told=is_told)
        self.held_until_ms = 0
