"""Drives the Raft machine: gives it events one at a time, and carries out its effects in their order.

peers, timers, disk ──▶ events ──▶ Raft ──▶ effects ──▶ writer (log, quorum-state), peers, replies, snapshots
                                                ├── Lead, Follow ──▶ the controller's terms
                                                └── Commit ──▶ the publisher: readers, and replies that waited

A start waits until this node has read all records that were committed before it started (`CatchUpWait`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from moldau.broker.metadata.metadata_log import MetadataLog
from moldau.broker.metadata.publisher import CommittedMetadata, PublishProgress
from moldau.broker.metadata.raft.controller_terms import ControllerTerms
from moldau.broker.metadata.raft.log_writer import MetadataLogWriter
from moldau.broker.metadata.raft.metadata_snapshots import MetadataSnapshots
from moldau.broker.metadata.raft.quorum_peers import ForeignQuorum, QuorumPeers
from moldau.broker.runtime.environment import Environment
from moldau.broker.runtime.pending import Pending
from moldau.broker.runtime.progress import log as progress
from moldau.broker.runtime.tasks import Tasks
from moldau.kraft.raft import events
from moldau.kraft.raft.raft import Raft

PROGRESS_S: Final = 5.0
"""The time (seconds) between two log lines of a start that waits for the quorum."""


class EventFeed:
    """Passes events to the driver of a Raft machine. The parts that report events are made before the driver."""

    def __init__(self) -> None:
        self._listener: Callable[[events.Event], None] | None = None

    def subscribe(self, listener: Callable[[events.Event], None]) -> None:
        """Pass all events to the listener."""
        self._listener = listener

    def feed(self, event: events.Event) -> None:
        """Pass an event on."""
        assert self._listener is not None, "a part reports before the driver is made"
        self._listener(event)


class RaftDriver:
    """Drives one Raft machine.

    `feed` may be called while the effects of an earlier event are still being carried out: an append reports
    `LogAppended` at once, as `kraft/raft/events.py` allows.
    """

    def __init__(
        self,
        environment: Environment,
        loop: asyncio.AbstractEventLoop,
        tasks: Tasks,
        raft: Raft,
        metadata_log: MetadataLog,
        committed: CommittedMetadata,
        writer: MetadataLogWriter,
        snapshots: MetadataSnapshots,
        terms: ControllerTerms,
        peers: QuorumPeers,
        catch_up: CatchUpWait,
        event_feed: EventFeed,
    ) -> None:
        self._environment = environment
        self._loop = loop
        self._tasks = tasks
        self._raft = raft
        self._log = metadata_log
        self._committed = committed
        self._writer = writer
        self._snapshots = snapshots
        self._terms = terms
        self._peers = peers
        self._catch_up = catch_up
        self._stopped: asyncio.Future[None] = loop.create_future()
        self._timer: asyncio.TimerHandle | None = None
        self._rest: asyncio.Handle | None = None
        """The next step of publishing metadata that is committed."""
        self._is_over = False
        """Whether the machine has stopped, because the logs are about to be closed. Later events are ignored."""
        event_feed.subscribe(self.feed)

    def feed(self, event: events.Event) -> None:
        """Pass an event to the machine, carry out the effects, and set the timer for the machine's next deadline."""
        if self._is_over:
            return
        environment = self._environment
        try:
            for effect in self._raft.step(event, environment.monotonic_ms(), environment.wall_ms()):
                self._perform(effect)
        except OSError as error:
            self._writer.on_disk_failed(error)  # Only a part of the step's effects was carried out.
        self._arm()

    async def stop(self, patience_ms: int) -> None:
        """Stop the machine. A leader hands leadership over first, for which this waits `patience_ms` at most. Later
        events are ignored.
        """
        self.feed(events.Stop(patience_ms))
        await asyncio.wait([self._stopped], timeout=patience_ms / 1000)
        self._is_over = True
        for handle in (self._timer, self._rest):
            if handle is not None:
                handle.cancel()

    def _perform(self, effect: events.Effect) -> None:
        match effect:
            case events.SaveElection(election):
                self._tasks.spawn(self._writer.save_election(election), "quorum-state")
            case events.Append(epoch, records):
                self._writer.append_control(records, epoch)
            case events.AppendFetched(fetched, leader_epoch):
                self._writer.append_fetched(fetched, leader_epoch)
            case events.TruncateLog(end_offset):
                self._writer.truncate(end_offset)
            case events.Send():
                self._peers.send(effect)
            case events.Respond(Pending() as reply, response):
                reply.complete(response)
            case events.RespondWithRecords(Pending() as reply):
                reply.complete(self._with_records(effect))
            case events.RespondWithSnapshot():
                self._snapshots.reply(effect)
            case events.WriteSnapshotPart(snapshot_id, position, data):
                self._snapshots.write_part(snapshot_id, position, data)
            case events.CompleteSnapshot(snapshot_id):
                self._snapshots.load(snapshot_id)
            case events.Lead(epoch):
                self._terms.lead(epoch)
            case events.Follow(epoch, leader_id):
                self._terms.follow(epoch, leader_id)
            case events.Commit(high_watermark):
                self._commit(high_watermark)
            case events.Stopped():
                self._end_stop()
            case _:
                raise AssertionError(f"the driver does not know the effect {effect}")

    def _with_records(self, effect: events.RespondWithRecords) -> object:
        effect.response.responses[0].partitions[0].records = self._log.read(effect.fetch_offset, effect.size_max)
        return effect.response

    def _commit(self, high_watermark: int) -> None:
        """Publish the committed metadata. A node that has fetched much of it publishes it in several iterations of the
        event loop.
        """
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None
        match self._committed.commit(high_watermark, is_active=self._terms.active is not None):
            case PublishProgress.PUBLISHED:
                self._catch_up.succeed()
                self._snapshots.write_if_due()
            case PublishProgress.BEHIND:
                self._rest = self._loop.call_soon(self._publish_rest, high_watermark)

    def _publish_rest(self, high_watermark: int) -> None:
        try:
            self._commit(high_watermark)
        except OSError as error:
            self._writer.on_disk_failed(error)

    def _end_stop(self) -> None:
        if not self._stopped.done():
            self._stopped.set_result(None)

    def _arm(self) -> None:
        """Set the timer for the machine's next deadline."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline_ms = self._raft.next_deadline_ms()
        if deadline_ms is not None:
            delay_ms = max(0, deadline_ms - self._environment.monotonic_ms())
            self._timer = self._loop.call_later(delay_ms / 1000, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.feed(events.DeadlineReached())


class CatchUpWait:
    """The wait of a start until this node has caught up with the metadata. The first call of `succeed` or `fail` ends
    it.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._ended: asyncio.Future[None] = loop.create_future()

    @property
    def is_over(self) -> bool:
        return self._ended.done()

    def succeed(self) -> None:
        """End the wait successfully: the published image includes every record that was committed when this node
        started.
        """
        if not self._ended.done():
            self._ended.set_result(None)

    def fail(self, error: OSError | ForeignQuorum) -> None:
        """End the wait with an error, which `wait` raises, because this node can neither lead nor catch up."""
        if not self._ended.done():
            self._ended.set_exception(error)

    async def wait(self, describe: Callable[[], str]) -> None:
        """Wait until `succeed` or `fail` is called, and log the text of `describe` every five seconds. Raises the
        error given to `fail`.
        """
        while not (await asyncio.wait([self._ended], timeout=PROGRESS_S))[0]:
            progress.info("still waiting for the metadata quorum: %s", describe())
        self._ended.result()
