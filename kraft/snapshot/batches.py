"""The content of a snapshot file, which is a header batch, batches of records and a footer batch; and its loading into
an image."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from moldau.kraft.features import record_version
from moldau.kraft.image.metadata_image import Provenance
from moldau.kraft.image.replay import Replay
from moldau.kraft.quorum.control_records import (
    QuorumDescription,
    quorum_after,
    quorum_records,
    snapshot_footer,
    snapshot_header,
)
from moldau.kraft.record_frame import decode_record, encode_record
from moldau.kraft.snapshot.names import SnapshotId
from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.control_records import ControlRecordType, control_record_type
from moldau.protocol.late_tuple import NamedTuple
from moldau.protocol.primitives import BytesLike, MalformedMessage
from moldau.protocol.record_batch import crc_is_valid
from moldau.protocol.record_builder import Record, build_batch
from moldau.protocol.record_reader import records_of

BATCH_RECORDS_MAX: Final = 1024


class SnapshotContent(NamedTuple):
    """The content of a snapshot: its records, and the description of the quorum at its end."""

    records: list[object]
    quorum: QuorumDescription


def snapshot_batches(
    records: Iterable[object],
    quorum: QuorumDescription,
    *,
    metadata_version: int,
    epoch: int,
    last_contained_ms: int,
    now_ms: int,
) -> Iterator[bytes]:
    """Yield the batches of a snapshot one at a time, so that the whole is never in memory. Their offsets count from
    0."""
    header = [snapshot_header(last_contained_ms, now_ms)]
    if quorum.voters is not None:
        header += quorum_records(quorum.kraft_version, quorum.voters, now_ms)
    yield build_batch(header, is_control=True, partition_leader_epoch=epoch)
    offset = len(header)
    remaining = iter(records)
    while chunk := list(islice(remaining, BATCH_RECORDS_MAX)):
        values = [encode_record(record, record_version(record, metadata_version)) for record in chunk]
        yield build_batch(
            [Record(None, value, now_ms) for value in values], base_offset=offset, partition_leader_epoch=epoch
        )
        offset += len(chunk)
    yield build_batch([snapshot_footer(now_ms)], base_offset=offset, is_control=True, partition_leader_epoch=epoch)


def read_snapshot(data: BytesLike) -> SnapshotContent:
    """Read the whole content of a snapshot. Raises `MalformedMessage` if it is damaged or lacks its header or
    footer."""
    reading = SnapshotReading(data)
    return SnapshotContent(list(reading.records()), reading.quorum)


class SnapshotReading:
    """Reads a snapshot record by record, because all records together would take more memory than the image."""

    def __init__(self, data: BytesLike) -> None:
        self._data = data
        self.quorum = QuorumDescription()
        """The description of the quorum in the snapshot; complete when all records are read."""

    def records(self) -> Iterator[object]:
        """Yield the records of the snapshot in their order. Raises `MalformedMessage` at the first damage, and at the
        end if the footer is missing. The caller must then discard the records that it has got."""
        data = self._data
        kinds: list[ControlRecordType | None] = []
        batches = iterate_batches(data)
        for position, header in batches:
            if not crc_is_valid(data, position, header):
                raise MalformedMessage(f"the batch at position {position} of the snapshot has a wrong checksum")
            for record in records_of(data, position, header):
                if header.is_control:
                    kinds.append(control_record_type(record.key))
                    self.quorum = quorum_after(record, self.quorum)
                elif record.value is None:
                    raise MalformedMessage("a snapshot holds a record without a value")
                else:
                    yield decode_record(record.value)
        if batches.partial_size:
            raise MalformedMessage("the snapshot ends in the middle of a batch")
        if not kinds or kinds[0] is not ControlRecordType.SNAPSHOT_HEADER:
            raise MalformedMessage("the snapshot has no header")
        if kinds[-1] is not ControlRecordType.SNAPSHOT_FOOTER:
            raise MalformedMessage("the snapshot has no footer: it was not finished")


# Loading


class LoadedSnapshot(NamedTuple):
    """A loaded snapshot: the metadata at its end, and the description of the quorum in it."""

    replay: Replay
    quorum: QuorumDescription


def load_snapshot(data: BytesLike, snapshot_id: SnapshotId) -> LoadedSnapshot:
    """Load the content of a snapshot into an image.

    With a million partitions this takes seconds, so it is called in an executor thread. Raises `MalformedMessage`.
    """
    reading, replay = SnapshotReading(data), Replay()
    replay.replay(reading.records(), Provenance(snapshot_id.end_offset, snapshot_id.epoch))
    return LoadedSnapshot(replay, reading.quorum)
