"""Snapshots of the metadata: writes them when they are due, sends them to followers, and fetches one if the leader's
log begins after this node's log ends.

Files are read, written and removed in an executor thread; the log and the image change on the event loop alone
(KIP-630).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from moldau.broker.metadata.metadata_log import MetadataLog, unlink_all
from moldau.broker.metadata.publisher import CommittedMetadata, MetadataPublisher
from moldau.broker.metadata.raft.log_writer import REFUSED_RETRY_S, Feed
from moldau.broker.metadata.snapshot_files import MetadataSnapshotFiles, SnapshotPolicy
from moldau.broker.runtime.environment import Environment
from moldau.broker.runtime.pending import Pending
from moldau.broker.runtime.tasks import Tasks
from moldau.kraft.image.metadata_image import MetadataImage
from moldau.kraft.quorum.quorum_history import QuorumHistory
from moldau.kraft.raft import events
from moldau.kraft.snapshot.names import SnapshotId
from moldau.protocol.errors import ErrorCode
from moldau.protocol.primitives import BytesLike, MalformedMessage
from moldau.storage.files.port import TRANSIENT_ERRNOS

log = logging.getLogger("moldau.quorum")


class MetadataSnapshots:
    """Writes and fetches snapshots of the metadata. At most one snapshot is written at a time, and at most one is
    fetched.
    """

    def __init__(
        self,
        environment: Environment,
        tasks: Tasks,
        metadata_log: MetadataLog,
        files: MetadataSnapshotFiles,
        history: QuorumHistory,
        policy: SnapshotPolicy,
        publisher: MetadataPublisher,
        committed: CommittedMetadata,
        feed: Feed,
        flush: Callable[[], None],
        halt: Callable[[str], None],
    ) -> None:
        self._environment = environment
        self._tasks = tasks
        self._log = metadata_log
        self._files = files
        self._history = history
        self._policy = policy
        self._publisher = publisher
        self._committed = committed
        self._feed = feed
        self._flush = flush
        self._halt = halt
        self._is_stopping = False

    def stop(self) -> None:
        """Begin no further snapshot, because the node stops."""
        self._is_stopping = True

    # Writing

    def write_if_due(self) -> None:
        """Begin a snapshot if the policy asks for one and records were committed since the newest one."""
        image = self._publisher.image
        newest = self._log.latest_snapshot
        is_new = newest is None or image.provenance.end_offset > newest.end_offset
        now_ms = self._environment.monotonic_ms()
        if not self._is_stopping and is_new and self._policy.is_due(now_ms):
            self._policy.note_begun(now_ms)
            self._tasks.spawn(self.write(image), "metadata snapshot")

    async def write(self, image: MetadataImage) -> None:
        """Write a snapshot of the image. The image is immutable, so an executor thread can write it while the event
        loop continues.

        After a disk error no snapshot is written until the next one is due.
        """
        environment, now_ms = self._environment, self._environment.wall_ms()
        end_offset = image.provenance.end_offset
        quorum = self._history.description_at(end_offset)
        try:
            snapshot = await environment.offload(lambda: self._log.write_snapshot(image, quorum, now_ms))
            paths = self._log.snapshot_written(snapshot, self._policy, now_ms)
            await environment.offload(lambda: unlink_all(environment.fs, paths))
            log.info(
                "took a snapshot of the metadata up to offset %d: %s/%s",
                end_offset,
                self._log.directory,
                snapshot.file_name,
            )
        except OSError as error:
            log.error(
                "cannot take a snapshot of the metadata up to offset %d in %s: %s;"
                " the metadata log goes on growing until one succeeds",
                end_offset,
                self._log.directory,
                error,
            )
        self._policy.note_ended()

    # Sending to a follower

    def reply(self, effect: events.RespondWithSnapshot) -> None:
        """Respond to a FetchSnapshot request with the bytes that it asks for."""
        self._tasks.spawn(self._reply(effect), "snapshot to a follower")

    async def _reply(self, effect: events.RespondWithSnapshot) -> None:
        reply = effect.token
        assert isinstance(reply, Pending)
        read, partition = self._files.read, effect.response.topics[0].partitions[0]
        try:
            partition.unaligned_records = await self._environment.offload(
                lambda: read(effect.snapshot_id, effect.size_max, effect.position)
            )
        except OSError as error:  # A later snapshot may have replaced it since the machine checked.
            log.warning(
                "cannot read snapshot %s for a follower, which fetches a later one instead: %s",
                effect.snapshot_id.file_name,
                error,
            )
            partition.error_code = ErrorCode.SNAPSHOT_NOT_FOUND
        reply.complete(effect.response)

    # Fetching from the leader

    def write_part(self, snapshot_id: SnapshotId, position: int, data: BytesLike) -> None:
        """Write bytes of a snapshot that is being fetched from the leader, at `position` of its file."""
        self._files.write_part(snapshot_id, position, data)

    def load(self, snapshot_id: SnapshotId) -> None:
        """Replace the log by a snapshot of the leader that was fetched completely."""
        self._tasks.spawn(self._load(snapshot_id), "snapshot of the leader")

    async def _load(self, snapshot_id: SnapshotId) -> None:
        environment = self._environment
        try:
            loaded = await environment.offload(lambda: self._files.finish(snapshot_id))
        except MalformedMessage as error:
            log.error("the snapshot %s that the leader sent is malformed: %s", snapshot_id.file_name, error)
            self._feed(events.SnapshotRefused(snapshot_id))
            return
        except OSError as error:
            if error.errno not in TRANSIENT_ERRNOS:
                self._halt(f"cannot write snapshot {snapshot_id.file_name} into {self._log.directory}: {error}")
                raise
            log.warning(
                "no room for snapshot %s in %s: %s; this node fetches it again in %g s; free some space on that disk",
                snapshot_id.file_name,
                self._log.directory,
                error,
                REFUSED_RETRY_S,
            )
            await asyncio.sleep(REFUSED_RETRY_S)
            self._feed(events.SnapshotRefused(snapshot_id))
            return
        paths = self._log.replace_by_snapshot(snapshot_id, environment.wall_ms())
        self._committed.publish_snapshot(loaded.replay)
        log.info(
            "replaced the metadata log by the leader's snapshot %s: it starts at offset %d now",
            snapshot_id.file_name,
            snapshot_id.end_offset,
        )
        self._feed(events.SnapshotLoaded(snapshot_id, loaded.quorum))
        self._flush()
        try:
            await environment.offload(lambda: unlink_all(environment.fs, paths))
        except OSError as error:
            log.error("cannot remove earlier snapshots from %s: %s", self._log.directory, error)
