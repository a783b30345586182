"""Writes for the Raft machine and the controller: quorum-state, and records at the end of the metadata log.

Every append is reported to the machine twice, as `kraft/raft/events.py` requires: `LogAppended` when the end of the log
is known, `LogFlushed` when a sync has made it durable. Raft counts a copy only once it is durable (Raft paper, figure
2).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from moldau.broker.metadata.metadata_log import (
    DescriptionAtOffset,
    DiskFull,
    MetadataLog,
    description_of,
    save_election,
)
from moldau.broker.metadata.publisher import CommittedMetadata
from moldau.broker.metadata.snapshot_files import SnapshotPolicy
from moldau.broker.runtime.environment import Environment
from moldau.broker.runtime.flusher import Flusher
from moldau.kraft.image.metadata_image import Provenance
from moldau.kraft.quorum.quorum_history import QuorumHistory
from moldau.kraft.raft import events
from moldau.kraft.raft.election_state import ElectionState, encode_election
from moldau.kraft.raft.raft import Raft
from moldau.protocol.primitives import BytesLike
from moldau.protocol.record_builder import Record

log = logging.getLogger("moldau.quorum")

REFUSED_RETRY_S: Final = 1.0
"""The time (seconds) for which a follower with a full disk waits before it fetches the same records or the same
snapshot again.
"""

Feed = Callable[[events.Event], None]
"""Passes an event to the Raft machine, and carries out the effects."""


class MetadataLogWriter:
    """Writes the metadata log and quorum-state for one Raft machine.

    After a disk error `halt` ends the node, because it is not known what the disk contains.
    """

    def __init__(
        self,
        environment: Environment,
        loop: asyncio.AbstractEventLoop,
        raft: Raft,
        history: QuorumHistory,
        metadata_log: MetadataLog,
        committed: CommittedMetadata,
        flusher: Flusher,
        policy: SnapshotPolicy,
        feed: Feed,
        halt: Callable[[str], None],
        cannot_lead: Callable[[DiskFull], None],
    ) -> None:
        """`cannot_lead`: called when the disk has no room for the first batch of this node's term."""
        self._environment = environment
        self._loop = loop
        self._raft = raft
        self._history = history
        self._log = metadata_log
        self._committed = committed
        self._flusher = flusher
        self._policy = policy
        self._feed = feed
        self._halt = halt
        self._cannot_lead = cannot_lead

    async def save_election(self, election: ElectionState) -> None:
        """Make quorum-state durable.

        No message with the epoch or the vote is sent before that: after a crash this node must not vote twice in an
        epoch (Raft, figure 2).
        """
        history = self._history
        data = encode_election(election, history.kraft_version, history.voters.ids, self._raft.node_id)
        fs, directory = self._environment.fs, self._log.directory
        try:
            await self._environment.offload(lambda: save_election(fs, directory, data))
        except OSError as error:
            self._halt(f"the disk refuses {directory}/quorum-state, which holds this node's vote: {error}")
        self._feed(events.ElectionSaved(election))

    def append(self, records: Sequence[object], metadata_version: int) -> Provenance:
        """Append the controller's records as one batch. Raises `DiskFull` and `UnreadableRecord`, and then appends
        nothing."""
        size_before = self._log.log.size
        provenance = self._log.append(records, metadata_version, self._raft.epoch, self._environment.wall_ms())
        self._policy.note_appended(self._log.log.size - size_before)
        self._appended([])
        return provenance

    def append_control(self, records: Sequence[Record], epoch: int) -> None:
        """Append control records as one batch, as the leader of `epoch`. If the disk is full, `cannot_lead` is
        called.
        """
        base_offset, before = self._log.end_offset, self._history.description
        try:
            self._log.append_control(records, epoch, self._environment.wall_ms())
        except DiskFull as error:
            self._cannot_lead(error)
            return
        description = description_of(records, before)
        self._appended([(base_offset, description)] if description is not before else [])

    def append_fetched(self, fetched: BytesLike, leader_epoch: int) -> None:
        """Append batches that were fetched from the leader, unchanged. If the disk is full, the follower fetches them
        again later.
        """
        now_ms = self._environment.wall_ms()
        try:
            described = self._log.append_fetched(fetched, leader_epoch, self._history.description, now_ms)
        except DiskFull as error:
            log.warning(
                "%s: this node stays at offset %d of the metadata log, and fetches the records after it again in %g s;"
                " free some space on that disk",
                error,
                self._log.end_offset,
                REFUSED_RETRY_S,
            )
            self._loop.call_later(REFUSED_RETRY_S, self._nothing_appended, self._raft.epoch, self._raft.leader_id)
            return
        self._policy.note_appended(len(fetched))
        self._appended(described)

    def truncate(self, end_offset: int) -> None:
        """Remove the records that the leader does not have. Raises OSError."""
        self._log.truncate(end_offset, self._environment.wall_ms())
        self._committed.on_log_truncated(end_offset)
        self._feed(events.LogTruncated(end_offset))

    def flush(self) -> None:
        """Sync the log in an executor thread, and then report the durable end offset to the Raft machine."""
        self._flusher.call_when_durable([self._log.log], self._flushed)

    def on_disk_failed(self, error: OSError) -> None:
        """Halt the node, because its metadata log cannot be read or written any more."""
        self._halt(f"the metadata log {self._log.directory} has failed: {error}")

    def on_damage(self, reason: str) -> None:
        """Halt this node, so that the quorum elects another leader: a damaged batch cannot be sent to a follower."""
        self._halt(f"the metadata log {self._log.directory} is damaged: {reason}")

    def _appended(self, described: Sequence[DescriptionAtOffset]) -> None:
        self._feed(events.LogAppended(self._log.end_offset, described))
        self.flush()

    def _flushed(self) -> None:
        self._feed(events.LogFlushed(self._log.log.synced_end_offset))

    def _nothing_appended(self, epoch: int, leader_id: int) -> None:
        """Let the follower fetch again, unless it has another leader or epoch by now."""
        if (self._raft.epoch, self._raft.leader_id) == (epoch, leader_id):
            self._feed(events.LogAppended(self._log.end_offset))
