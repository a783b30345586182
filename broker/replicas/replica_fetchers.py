"""Replica fetchers: one, over one connection, for each broker that leads partitions which this broker follows.

The machine decides (replication/replica_fetcher.py); this module sends its requests, and carries out its effects.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from moldau.broker.config.config import Config, object_of_settings
from moldau.broker.metadata.cluster_view import ClusterView
from moldau.broker.metadata.other_brokers import OtherBrokers
from moldau.broker.network.peer_channel import NoResponseReason, PeerChannel
from moldau.broker.replicas.local_logs import LocalLogs
from moldau.broker.runtime.environment import Environment
from moldau.broker.runtime.flusher import Flusher
from moldau.broker.runtime.tasks import Spawn
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.fetch import FetchResponse
from moldau.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from moldau.protocol.primitives import MalformedMessage
from moldau.replication.partition import Partition
from moldau.replication.replica_fetcher import (
    Effect,
    FetcherSettings,
    FlushLog,
    LogWarning,
    LookUpLeaderOffsets,
    RebuildFromRemote,
    ReplicaFetcher,
    RestartLogAt,
    TruncateLog,
)
from moldau.replication.replication_quota import ReplicationQuota
from moldau.storage.log.truncation import RemoteStart

log = logging.getLogger("moldau.replica")

PURPOSE: Final = "replica fetch"
EARLIEST: Final = -2
LATEST: Final = -1


@dataclass(frozen=True, slots=True)
class FetcherPorts:
    """The parts of the broker that each fetcher uses."""

    node_id: int
    config: Config
    environment: Environment
    loop: asyncio.AbstractEventLoop
    cluster: ClusterView
    brokers: OtherBrokers
    logs: LocalLogs
    flusher: Flusher
    quota: ReplicationQuota
    """The replication quota of followers."""
    broker_epoch: Callable[[], int]
    """The epoch of this broker's registration."""
    spawn: Spawn
    remote_state: RemoteState | None
    """The state of remote logs; None if tiered storage is off."""


class ReplicaFetchers:
    """All replica fetchers of a broker, by the broker id of the leader."""

    def __init__(self, ports: FetcherPorts) -> None:
        self._ports = ports
        self.may_fetch = False
        """Whether fetches are sent. They are sent once this broker is registered, because a leader must know its broker
        epoch, and until it stops.
        """
        self._fetchers: dict[int, RunningFetcher] = {}

    def begin(self) -> None:
        """Begin to fetch, because this broker is registered and has its broker epoch."""
        self.may_fetch = True
        self.on_brokers_changed()

    def end(self) -> None:
        """Stop fetching, because the logs are about to be closed. Responses that arrive later are dropped."""
        self.may_fetch = False

    def follow(self, partition: Partition) -> None:
        """Fetch the partition from its leader, which may have changed. If the partition has no leader, stop fetching
        it.
        """
        for leader_id, fetcher in self._fetchers.items():
            if leader_id != partition.leader_id:
                fetcher.unfollow(partition)
        if partition.leader_id >= 0:
            self._fetcher(partition.leader_id).follow(partition)

    def unfollow(self, partition: Partition) -> None:
        """Stop fetching a partition that this broker leads now, or whose replica it does not have any more."""
        for fetcher in self._fetchers.values():
            fetcher.unfollow(partition)

    def leaders_of(self, partition: Partition) -> list[int]:
        """The id of the broker from which the partition is fetched, in a list; an empty list if it is not fetched."""
        return [leader_id for leader_id, fetcher in self._fetchers.items() if fetcher.follows(partition)]

    def on_brokers_changed(self) -> None:
        """Fetch from the leaders by their present addresses, because registered brokers changed: a leader may have
        another address, or may have restarted.
        """
        for fetcher in self._fetchers.values():
            fetcher.on_leader_changed()
            fetcher.fetch_next()

    def _fetcher(self, leader_id: int) -> RunningFetcher:
        fetcher = self._fetchers.get(leader_id)
        if fetcher is None:
            fetcher = self._fetchers[leader_id] = RunningFetcher(self, self._ports, leader_id)
        return fetcher


class RunningFetcher:
    """The replica fetcher for one leader's broker: its connection, its timer, and the effects of its state machine."""

    def __init__(self, fetchers: ReplicaFetchers, ports: FetcherPorts, leader_id: int) -> None:
        self._fetchers = fetchers
        self._ports = ports
        self._leader_id = leader_id
        self._backoff_ms = ports.config.integer("replica.fetch.backoff.ms")
        self._timeout_ms = ports.config.integer("replica.socket.timeout.ms")
        self._machine = ReplicaFetcher(ports.node_id, fetcher_settings(ports.config), ports.quota)
        self._is_asking = False
        self._leader: tuple[PeerChannel, int] | None = None
        """The connection to the leader's broker and its broker epoch; None if either may have changed."""
        self._asked: tuple[PeerChannel, int] | None = None
        """The connection and the broker epoch of the leader's broker to which the last request was sent."""
        self._timer: asyncio.TimerHandle | None = None

    def follow(self, partition: Partition) -> None:
        flush = self._machine.follow(partition)
        if flush is not None:
            self._perform(flush)
        self._ports.loop.call_soon(self.fetch_next)

    def unfollow(self, partition: Partition) -> None:
        self._machine.unfollow(partition)

    def follows(self, partition: Partition) -> bool:
        return partition in self._machine.partitions

    def fetch_next(self) -> None:
        """Send the next fetch, unless a response is outstanding."""
        if self._is_asking or not self._machine or not self._fetchers.may_fetch:
            return
        self._fetch_next(self._ports.environment.monotonic_ms())

    def _fetch_next(self, now_ms: int) -> None:
        leader = self._find_leader()
        if leader is None:
            self._look_again(self._backoff_ms)
            return
        request = self._machine.next_request(self._ports.broker_epoch(), now_ms)
        if request is not None:
            self._is_asking = True
            self._asked = leader
            leader[0].ask(request, self._answered, self._timeout_ms)
            return
        deadline_ms = self._machine.next_deadline_ms()
        retry_ms = self._machine.retry_delay_ms(now_ms)
        if deadline_ms is not None or retry_ms:
            self._look_again(max(retry_ms, 0 if deadline_ms is None else deadline_ms - now_ms))

    def on_leader_changed(self) -> None:
        """Note that the leader's broker may have another address, so the connection to it is looked up again.

        If a fetch is outstanding and that broker has restarted since the fetch was sent, close the old connection. A
        host that lost power never closes its connections, so the fetch would wait for its timeout.
        """
        self._leader = None
        if self._is_asking and self._asked is not None and self._asked[1] != self._leader_broker_epoch():
            self._asked[0].close()

    def _leader_broker_epoch(self) -> int:
        leader = self._ports.cluster.image.cluster.brokers.get(self._leader_id)
        return leader.epoch if leader is not None else -1

    def _look_again(self, delay_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._ports.loop.call_later(delay_ms / 1000, self.fetch_next)

    def _find_leader(self) -> tuple[PeerChannel, int] | None:
        """The connection to the leader's broker, and its broker epoch; None if the address is unknown."""
        if self._leader is None:
            channel = self._channel()
            self._leader = (channel, self._leader_broker_epoch()) if channel is not None else None
        return self._leader

    def _channel(self) -> PeerChannel | None:
        return self._ports.brokers.channel(self._leader_id, PURPOSE)

    def _answered(self, response: object) -> None:
        self._is_asking = False
        if not self._fetchers.may_fetch:
            return
        now_ms = self._ports.environment.monotonic_ms()
        if isinstance(response, NoResponseReason):
            self._machine.on_request_failed(now_ms)
        else:
            assert isinstance(response, FetchResponse)
            for effect in self._machine.on_response(response, self._ports.environment.wall_ms(), now_ms):
                self._perform(effect)
        if self._machine and not self._is_asking:
            self._fetch_next(now_ms)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case TruncateLog() | RestartLogAt():
                self._ports.spawn(self._truncate(effect))
            case FlushLog(partition, leader_epoch):
                self._flush(partition, leader_epoch)
            case LookUpLeaderOffsets(partition, leader_epoch):
                self._look_up(partition, leader_epoch)
            case RebuildFromRemote():
                self._ports.spawn(self._rebuild(effect))
            case LogWarning(message):
                log.warning("following broker %d: %s", self._leader_id, message)

    async def _rebuild(self, effect: RebuildFromRemote) -> None:
        """Rebuild a follower's log from the state of the leader's remote log. That state is read and checked before the
        log is changed.
        """
        partition, ports = effect.partition, self._ports
        try:
            start = await remote_start(ports.remote_state, effect)
            if not await self._has_prepared(effect, start.offset):
                return
            partition.log.start_after_remote(start, ports.environment.wall_ms())
            partition.adapt_to_truncation()
            log.info("%s-%d begins at offset %d, after its remote part", partition.topic, partition.index, start.offset)
        except MalformedMessage as malformed:
            partition.log.mark_damaged(str(malformed))
            return
        except (NoRemoteState, OSError) as error:
            log.error("%s-%d cannot begin at its leader's local log start: %s", partition.topic, partition.index, error)
            self._machine.on_rebuild_failed(partition, effect.leader_epoch, ports.environment.monotonic_ms())
            self.fetch_next()
            return
        self._machine.on_rebuilt(partition, effect.leader_epoch)
        self.fetch_next()

    async def _has_prepared(self, effect: TruncateLog | RestartLogAt | RebuildFromRemote, offset: int) -> bool:
        """Prepare a truncation of a log to `offset`. Returns whether it must still be carried out, which the caller
        then does without waiting. Raises OSError.

        The lowered recovery point is made durable first, because otherwise a recovery after a crash would report the
        truncated batches as damage. When this returns, no flush is in progress: it would write the same leader epoch
        checkpoint as the truncation.

        The producers at the new end are restored in steps, because that takes seconds for a segment of small batches.
        """
        ports, its_log = self._ports, effect.partition.log
        if not self._machine.awaits(effect):
            return False
        its_log.lower_recovery_point(offset, empties=not isinstance(effect, TruncateLog))
        preparation, is_due = its_log.truncation_count, False
        try:
            if not await ports.logs.checkpoint():
                raise OSError(errno.ENOSPC, "the recovery point is not durable", its_log.directory)
            if isinstance(effect, TruncateLog) and self._machine.awaits(effect):
                for _ in its_log.prepare_producers(offset, ports.environment.wall_ms()):
                    await asyncio.sleep(0)
                    if not self._machine.awaits(effect):
                        break
            await ports.flusher.wait_for_flush(its_log)
            is_due = self._machine.awaits(effect)
        finally:
            if not is_due and its_log.truncation_count == preparation:
                its_log.end_truncation()
        return is_due

    async def _truncate(self, effect: TruncateLog | RestartLogAt) -> None:
        """Truncate a follower's log as the effect says."""
        partition, ports = effect.partition, self._ports
        try:
            if not await self._has_prepared(effect, effect.offset):
                return
            now_ms = ports.environment.wall_ms()
            if isinstance(effect, TruncateLog):
                partition.log.truncate_to(effect.offset, now_ms)
            else:
                partition.log.truncate_fully_and_start_at(effect.offset, now_ms)
            partition.adapt_to_truncation()
            if partition.log.has_uncut_files:
                ports.flusher.flush(partition.log)
            log.info("truncated %s-%d to offset %d", partition.topic, partition.index, effect.offset)
        except MalformedMessage as malformed:
            partition.log.mark_damaged(str(malformed))
            return
        except OSError as error:
            log.error("cannot truncate %s: %s", partition.log.directory, error)
            self._machine.on_truncation_failed(partition, effect.leader_epoch, ports.environment.monotonic_ms())
            self.fetch_next()
            return
        self._machine.on_truncated(partition, effect.leader_epoch)
        self.fetch_next()

    def _flush(self, partition: Partition, leader_epoch: int) -> None:
        def flushed() -> None:
            self._machine.on_flushed(partition, leader_epoch)
            self.fetch_next()

        self._ports.flusher.call_when_durable([partition.log], flushed)

    def _look_up(self, partition: Partition, leader_epoch: int) -> None:
        """Look up the leader's log start and log end offsets, with two ListOffsets requests one after the other."""
        found: list[int] = []

        def ask(timestamp: int) -> None:
            channel = self._channel()
            if channel is None:
                self._machine.on_look_up_failed(partition, leader_epoch, self._ports.environment.monotonic_ms())
                self.fetch_next()
                return
            channel.ask(offsets_request(self._ports.node_id, partition, timestamp), answered, self._timeout_ms)

        def answered(response: object) -> None:
            offset = offset_in(response)
            if offset is None:
                self._machine.on_look_up_failed(partition, leader_epoch, self._ports.environment.monotonic_ms())
            else:
                found.append(offset)
                if len(found) == 1:
                    ask(LATEST)
                    return
                for effect in self._machine.on_looked_up(partition, leader_epoch, found[0], found[1]):
                    self._perform(effect)
            self.fetch_next()

        ask(EARLIEST)


def fetcher_settings(config: Config) -> FetcherSettings:
    return object_of_settings(FetcherSettings, config.settings, "replica.fetch.")


def offsets_request(replica_id: int, partition: Partition, timestamp: int) -> ListOffsetsRequest:
    requested = ListOffsetsPartition(
        partition_index=partition.index, current_leader_epoch=partition.leader_epoch, timestamp=timestamp
    )
    topic = ListOffsetsTopic(name=partition.topic, partitions=[requested])
    return ListOffsetsRequest(replica_id=replica_id, isolation_level=0, topics=[topic])


def offset_in(response: object) -> int | None:
    """The offset in a ListOffsets response; None if there is no response, or if it has an error."""
    if not isinstance(response, ListOffsetsResponse):
        return None
    answer = response.topics[0].partitions[0]
    return answer.offset if answer.error_code == ErrorCode.NONE else None


class NoRemoteState(Exception):
    """The leader or the remote storage did not provide the state of the remote log; a later attempt may succeed."""


class RemoteState(Protocol):
    """Finds the offset at which a leader's local log begins, and the leader epochs and producer states at the end of
    the remote log before it.
    """

    async def before_local_log(self, partition: Partition, leader_epoch: int, log_start_offset: int) -> RemoteStart:
        """Find the offset at which the follower's log is to start, and the state at that offset, by requests to the
        leader and to remote storage. Raises `NoRemoteState`.
        """


async def remote_start(state: RemoteState | None, effect: RebuildFromRemote) -> RemoteStart:
    """Find the offset at which the follower's log is to start, and the state at that offset. Raises `NoRemoteState`,
    also if tiered storage is off.
    """
    if state is None:
        raise NoRemoteState("tiered storage is off on this broker (remote.log.storage.system.enable)")
    return await state.before_local_log(effect.partition, effect.leader_epoch, effect.log_start_offset)
