"""A leader and a follower of the same partitions without a network: the leader's handler, the follower's machine."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any, cast

from moldau.broker.apis.records import fetch
from moldau.broker.network.client_quotas import ClientQuotas
from moldau.broker.network.connection import Connection
from moldau.broker.network.connection_resources import ConnectionResources
from moldau.broker.network.listener_security import plain_security
from moldau.broker.network.memory import ReplyMemory, RequestMemory
from moldau.broker.network.route import RequestContext, Route, RouteBinding
from moldau.broker.network.turns import TurnScheduler
from moldau.broker.purgatory.purgatory import Purgatory
from moldau.broker.purgatory.timer_wheel import Timeouts
from moldau.broker.replicas.replicas import Replicas
from moldau.broker.runtime.pending import Pending
from moldau.protocol.messages.fetch import FetchRequest, FetchResponse
from moldau.replication.fetch_plan import FetchPlanner
from moldau.replication.fetch_session import FetchSessions
from moldau.replication.partition import Partition
from moldau.replication.replica_fetcher import (
    Effect,
    FetcherSettings,
    FlushLog,
    LookUpLeaderOffsets,
    ReplicaFetcher,
    RestartLogAt,
    TruncateLog,
)
from moldau.replication.replication_quota import ReplicationQuota
from moldau.replication.source import LocalLogSource
from moldau.security.quotas.sampled_rate import QuotaWindows
from moldau.storage.log.log import Log
from moldau.storage.log_config import INT64_MAX, LogConfig
from moldau.testing.simulation.disk import SimulatedDisk
from tests.support.request_clocks import request_clock

TOPIC_ID = bytes(range(16))
LEADER, FOLLOWER = 1, 2
FETCH_VERSION = 17
BROKER_EPOCH = 9


def replica(index: int = 0, *, flush_messages: int = INT64_MAX, topic: str = "t") -> Partition:
    disk = SimulatedDisk("a seed")
    directory = f"/{topic}-{index}"
    disk.make_directories(directory)
    log = Log.open(disk, directory, LogConfig(flush_messages=flush_messages), now_ms=0)
    return Partition(topic, TOPIC_ID, index, log, 0)


class LeaderSide:
    """The part of a broker that the Fetch handler uses."""

    def __init__(self, *partitions: Partition, epoch: int = 5, first_session_id: int = 77) -> None:
        self.replicas = Replicas()
        self.now_ms = 0
        self.joined: list[int] = []
        self.throttles = SimpleNamespace(leader=ReplicationQuota())
        for partition in partitions:
            partition.become_leader(LEADER, epoch, (LEADER, FOLLOWER), replicas=(LEADER, FOLLOWER), partition_epoch=1)
            self.replicas.add(partition)
        self._loop = SimpleNamespace(
            call_at=lambda *_: SimpleNamespace(cancel=lambda: None),
            call_soon=lambda call, *args: call(*args),
            time=lambda: self.now_ms / 1000,
        )
        self.cluster = SimpleNamespace(image=SimpleNamespace(topics=SimpleNamespace(by_id={})), live_nodes=lambda _: ())
        loop = cast("Any", self._loop)
        self.purgatory = Purgatory(loop, Timeouts(loop), lambda: self.now_ms)
        self._broker = SimpleNamespace(
            replicas=self.replicas,
            environment=SimpleNamespace(monotonic_ms=lambda: self.now_ms),
            fetch_sessions=FetchSessions(10, 0, itertools.count(first_session_id).__next__),
            fetch_size_max=1 << 26,
            reply_memory=ReplyMemory(-1, cast("Any", self._loop)),
            in_sync_changes=SimpleNamespace(propose_if_caught_up=lambda *_: None),
            throttles=self.throttles,
            cluster=self.cluster,
            loop=self._loop,
            purgatory=self.purgatory,
            quotas=ClientQuotas(QuotaWindows()),
            fetch_planner=FetchPlanner(
                self.replicas, LocalLogSource(), self.throttles.leader, None, lambda: self.now_ms
            ),
        )
        listener = SimpleNamespace(
            name="PLAINTEXT",
            routes={},
            request_size_max=0,
            security=plain_security(),
            is_for_nodes=False,
            resources=ConnectionResources(
                cast("Any", self._loop),
                cast("Any", None),
                cast("Any", None),
                memoryview(b""),
                RequestMemory(None, cast("Any", self._loop)),
                self._broker.reply_memory,
                self.purgatory,
                clock := request_clock(self._loop),
                cast("Any", None),
                TurnScheduler(clock, self._loop.call_soon),
            ),
        )
        connection = Connection(cast("Any", listener), "127.0.0.1")
        fetch_route = Route(1, "Fetch", FETCH_VERSION, FETCH_VERSION, _not_decoded)
        self._context = RequestContext(connection, fetch_route, FETCH_VERSION, 0, None)

    def handle(self, request: FetchRequest) -> FetchResponse | Pending[FetchResponse]:
        return fetch.handle(cast("Any", self._broker), self._context, request)


def _not_decoded() -> RouteBinding:
    raise AssertionError("requests are handed over as messages")


class FollowerSide:
    """A fetcher whose effects are performed at once."""

    def __init__(self, *partitions: Partition, epoch: int = 5, **settings: int) -> None:
        self.machine = ReplicaFetcher(FOLLOWER, FetcherSettings(**settings))
        self.now_ms = 0
        self.effects: list[Effect] = []
        self.requests: list[FetchRequest] = []
        for partition in partitions:
            partition.become_follower(LEADER, epoch)
            self.machine.follow(partition)

    def request(self) -> FetchRequest | None:
        request = self.machine.next_request(BROKER_EPOCH, self.now_ms)
        if request is not None:
            self.requests.append(request)
        return request

    def answered(self, response: FetchResponse, leader: LeaderSide | None = None) -> None:
        for effect in list(self.machine.on_response(response, 0, self.now_ms)):
            self.perform(effect, leader)

    def perform(self, effect: Effect, leader: LeaderSide | None) -> None:
        self.effects.append(effect)
        match effect:
            case TruncateLog(partition, epoch, offset):
                partition.log.lower_recovery_point(offset)
                partition.log.truncate_to(offset, 0)
                partition.adapt_to_truncation()
                self.machine.on_truncated(partition, epoch)
            case RestartLogAt(partition, epoch, offset):
                partition.log.truncate_fully_and_start_at(offset, 0)
                partition.adapt_to_truncation()
                self.machine.on_truncated(partition, epoch)
            case FlushLog(partition, epoch):
                partition.log.flush(0)
                self.machine.on_flushed(partition, epoch)
            case LookUpLeaderOffsets(partition, epoch):
                assert leader is not None
                theirs = leader.replicas.find((partition.topic_id, partition.index))
                assert theirs is not None
                bounds = theirs.log.log_start_offset, theirs.log.end_offset
                for more in list(self.machine.on_looked_up(partition, epoch, *bounds)):
                    self.perform(more, leader)

    def fetch_from(self, leader: LeaderSide) -> bool:
        """One fetch. False if there is nothing to fetch, or no response now."""
        request = self.request()
        if request is None:
            return False
        answer = leader.handle(request)
        if isinstance(answer, Pending):
            return False
        self.answered(answer, leader)
        return True

    def catch_up(self, leader: LeaderSide, rounds_max: int = 20) -> int:
        """Fetch until the leader has nothing new. Returns the number of fetches with news."""
        for count in range(rounds_max):
            request = self.request()
            if request is None:
                return count
            request.max_wait_ms = 0
            answer = leader.handle(request)
            assert not isinstance(answer, Pending)
            self.answered(answer, leader)
            if not answer.responses:
                return count
        raise AssertionError(f"no end after {rounds_max} rounds")
