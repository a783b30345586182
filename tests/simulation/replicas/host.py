"""One broker's replica of one partition without a broker around it: its disk, its log, the leader's handler, the
follower's machine. Nothing happens by itself; whoever drives it says what is next.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

from moldau.broker.replicas.in_sync_changes import InSyncChanges
from moldau.broker.replicas.log_jobs import LogJobs
from moldau.broker.runtime.pending import Pending
from moldau.protocol.messages.fetch import FetchRequest, FetchResponse
from moldau.replication.partition import Partition
from moldau.replication.replica_fetcher import (
    Effect,
    FetcherSettings,
    FlushLog,
    LogWarning,
    LookUpLeaderOffsets,
    ReplicaFetcher,
    RestartLogAt,
    TruncateLog,
)
from moldau.storage.directory.log_directory import LogDirectory
from moldau.storage.log.changed_logs import ChangedLogs
from moldau.storage.log.flush_work import FlushWork
from moldau.storage.log.log import Log
from moldau.storage.log_config import LogConfig
from moldau.testing.simulation.disk import SimulatedDisk
from tests.simulation.replicas.controller import NOBODY, Controller, Metadata
from tests.support.replica_pair import TOPIC_ID, LeaderSide

DATA = "/data"
TOPIC = "t"
LAG_MS_MAX = 3000
SESSIONS_MAX = 1_000_000
"""Of one life: a leader that starts again gives none of its former ids."""


class Host(LeaderSide):
    """A process on a disk that outlives it; another one after each `boot`."""

    def __init__(self, node_id: int, seed: str, controller: Controller, config: LogConfig) -> None:
        self.node_id = node_id
        self.disk = SimulatedDisk(f"{seed}/{node_id}")
        self.life = 0
        self.power_cuts = 0
        self.fetch_size = 400
        """What a follower asks for at once."""
        self.is_up = False
        self._controller = controller
        self._config = config

    # Life

    def boot(self, now_ms: int) -> None:
        self.life += 1
        super().__init__(first_session_id=self.life * SESSIONS_MAX)
        self.is_up = True
        self.now_ms = now_ms
        self.effects: list[tuple[ReplicaFetcher, Effect]] = []
        self.preparation: int | None = None
        """The truncation count of the log whose truncation is prepared, and is the next effect."""
        self.asks: list[tuple[Any, Callable[[Any], None]]] = []
        """For the controller."""
        self.later: list[Callable[[], None]] = []
        self.flushes: list[FlushWork] = []
        self.must_flush = False
        """Whether another flush is due after the one in progress."""
        self.awaiting_flush: list[tuple[int, ReplicaFetcher, FlushLog]] = []
        self.metadata: Metadata | None = None
        self.directory = LogDirectory.open(self.disk, DATA, lambda _: None, f"boot {self.power_cuts}")
        log = self.directory.load_log(TOPIC, 0, self._config, now_ms, lambda _: None)
        known = self.directory.high_watermarks.get((TOPIC, 0), 0)
        self.partition = Partition(TOPIC, TOPIC_ID, 0, log, min(max(known, log.log_start_offset), log.end_offset))
        self.partition.min_insync_replicas = config_min_insync(self._config)
        self.replicas.add(self.partition)
        self.epoch = self._controller.registered(self.node_id)
        self.directory.record_serving_epoch(self.epoch)
        self.fetchers: dict[int, ReplicaFetcher] = {}
        broker = self._broker
        assigned = SimpleNamespace(directory_of=lambda replica: bytes(16))
        topics = SimpleNamespace(by_id={}, partition=lambda topic, index: assigned)
        self.cluster.image = SimpleNamespace(cluster=SimpleNamespace(brokers={}), topics=topics)
        broker.in_sync_changes = self.changes = InSyncChanges(
            self.node_id,
            LAG_MS_MAX,
            self.replicas,
            cast("Any", self.cluster),
            cast("Any", SimpleNamespace(submit=lambda request, reply: self.asks.append((request, reply)))),
            lambda: self.epoch,
            broker.environment,
            cast("Any", SimpleNamespace(call_later=lambda _, call: self.later.append(call))),
        )
        broker.environment.wall_ms = lambda: self.now_ms
        removal = SimpleNamespace(remove_later=self._remove)
        nothing = cast("Any", None)
        self.jobs = LogJobs(
            nothing,
            broker.environment,
            self.replicas,
            nothing,
            ChangedLogs(),
            cast("Any", SimpleNamespace(flush=self._flush_soon)),
            cast("Any", removal),
            lambda: None,
        )

    def kill(self) -> None:
        self.is_up = False
        self.disk.end_process()

    def cut_power(self) -> None:
        self.is_up = False
        self.power_cuts += 1
        self.disk.crash()

    def stop(self) -> None:
        """SIGTERM: everything is written out."""
        for work in self.flushes:
            self.partition.log.finish_flush(work, self.now_ms)
        if self.preparation is not None:
            self.partition.log.end_truncation()  # Its task is cancelled.
        self.directory.close(self.now_ms, self.epoch, self._high_watermarks().get)
        self.kill()

    # What the metadata says

    def learn(self, metadata: Metadata) -> None:
        """As `broker/replicas/roles.py` does."""
        self.metadata, partition, assigned = metadata, self.partition, metadata.assigned
        self.cluster.image.cluster.brokers = metadata.brokers
        was_leader, epoch_before = partition.is_leader, partition.leader_epoch
        if assigned.leader == self.node_id:
            for fetcher in self.fetchers.values():
                fetcher.unfollow(partition)
            partition.become_leader(
                assigned.leader,
                assigned.leader_epoch,
                assigned.isr,
                replicas=assigned.replicas,
                partition_epoch=assigned.partition_epoch,
                now_ms=self.now_ms,
            )
        else:
            partition.become_follower(assigned.leader, assigned.leader_epoch, assigned.partition_epoch)
            if was_leader or assigned.leader_epoch != epoch_before:
                self._follow(assigned.leader)
        self.changes.on_brokers_changed()

    def _follow(self, leader_id: int) -> None:
        for other, fetcher in self.fetchers.items():
            if other != leader_id:
                fetcher.unfollow(self.partition)
        if leader_id != NOBODY:
            fetcher = self.fetchers.setdefault(
                leader_id, ReplicaFetcher(self.node_id, FetcherSettings(max_bytes=self.fetch_size))
            )
            self._plan(fetcher, fetcher.follow(self.partition))

    # Leading

    def answer(self, request: FetchRequest) -> FetchResponse:
        self._context.connection.served.clear()  # asked twice for the same, it reads beside the loop: there is none
        request.max_wait_ms = 0
        response = self.handle(request)
        assert not isinstance(response, Pending), "it was not to wait"
        return response

    def shrink(self) -> None:
        """The look for laggards, which waits for nothing."""
        with suppress(StopIteration):
            cast("Coroutine[None, None, None]", self.changes.job().run()).send(None)

    def run_later(self) -> None:
        calls, self.later = self.later, []
        for call in calls:
            call()

    # Following

    def ask_leader(self) -> tuple[int, ReplicaFetcher, FetchRequest] | None:
        for leader_id, fetcher in self.fetchers.items():
            request = fetcher.next_request(self.epoch, self.now_ms)
            if request is not None:
                return leader_id, fetcher, request
        return None

    def take(self, fetcher: ReplicaFetcher, response: FetchResponse) -> None:
        for effect in fetcher.on_response(response, self.now_ms, self.now_ms):
            self._plan(fetcher, effect)

    def _plan(self, fetcher: ReplicaFetcher, effect: Effect | None) -> None:
        if effect is not None and not isinstance(effect, LogWarning):
            self.effects.append((fetcher, effect))

    def perform(self, bounds: tuple[int, int] | None) -> None:
        """The next effect, as `broker/replicas/replica_fetchers.py` does. `bounds`: of the leader's log, if
        it can be asked."""
        fetcher, effect = self.effects[0]
        partition = effect.partition if not isinstance(effect, LogWarning) else self.partition
        is_first = self.preparation is None
        if isinstance(effect, TruncateLog | RestartLogAt) and is_first and fetcher.awaits(effect):
            partition.log.lower_recovery_point(effect.offset, empties=isinstance(effect, RestartLogAt))
            self.checkpoint()
            self.preparation = partition.log.truncation_count
            if isinstance(effect, TruncateLog):
                for _ in partition.log.prepare_producers(effect.offset, self.now_ms):
                    pass
            return  # Anything may happen before the truncation.
        self.effects.pop(0)
        preparation, self.preparation = self.preparation, None
        match effect:
            case TruncateLog(_, epoch, offset) | RestartLogAt(_, epoch, offset):
                if fetcher.awaits(effect):
                    if isinstance(effect, TruncateLog):
                        partition.log.truncate_to(offset, self.now_ms)
                    else:
                        partition.log.truncate_fully_and_start_at(offset, self.now_ms)
                    partition.adapt_to_truncation()
                elif partition.log.truncation_count == preparation:
                    partition.log.end_truncation()
                fetcher.on_truncated(partition, epoch)
            case FlushLog():
                self.awaiting_flush.append((partition.log.end_offset, fetcher, effect))
            case LookUpLeaderOffsets(_, epoch):
                if bounds is None:
                    fetcher.on_look_up_failed(partition, epoch, self.now_ms)
                    return
                for more in fetcher.on_looked_up(partition, epoch, *bounds):
                    self._plan(fetcher, more)

    # The disk

    def begin_flush(self) -> None:
        """The part that waits for the disk; what is appended meanwhile is not in it."""
        work = self.partition.log.pending_flush()
        if work is not None:
            work.sync_files()
            self.flushes.append(work)

    def _flush_soon(self, log: Log) -> None:
        if self.flushes:
            self.must_flush = True
        else:
            self.begin_flush()

    def end_flush(self) -> None:
        log = self.partition.log
        for work in self.flushes:
            log.finish_flush(work, self.now_ms)
        self.flushes = []
        if self.must_flush:
            self.must_flush = False
            self.begin_flush()
        self.partition.advance_high_watermark()
        waiting, self.awaiting_flush = self.awaiting_flush, []
        for end_offset, fetcher, effect in waiting:
            if log.synced_end_offset >= min(end_offset, log.end_offset):
                fetcher.on_flushed(effect.partition, effect.leader_epoch)
            else:
                self.awaiting_flush.append((end_offset, fetcher, effect))

    def checkpoint(self, *, with_high_watermarks: bool = False) -> None:
        work = self.directory.begin_checkpoint(self._high_watermarks().get if with_high_watermarks else None)
        if work:
            work.write_files()
            self.directory.finish_checkpoint(work)

    def retain(self) -> None:
        """The job of the broker, which waits for nothing."""
        retaining = cast("Coroutine[None, None, None]", self.jobs.retain())
        with suppress(StopIteration):
            while True:
                retaining.send(None)

    def _remove(self, paths: list[str], delay_ms: int) -> None:
        """Renamed by retention, unlinked at once."""
        for path in paths:
            self.disk.unlink(path)

    def _high_watermarks(self) -> dict[tuple[str, int], int]:
        return {(TOPIC, 0): self.partition.high_watermark}


def config_min_insync(config: LogConfig) -> int:
    assert config.min_insync_replicas > 1, "else a leader alone commits what only it has"
    return config.min_insync_replicas
