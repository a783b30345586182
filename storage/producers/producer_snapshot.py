"""The .snapshot file: the producer state of a log up to the offset in its name."""

from __future__ import annotations

from contextlib import suppress
from struct import Struct

from moldau.protocol.primitives import BytesLike, crc32c
from moldau.protocol.record_batch import NO_SEQUENCE, SEQUENCE_MAX
from moldau.storage.files.log_paths import SNAPSHOT_SUFFIX, offset_name, offset_of_name
from moldau.storage.files.port import FileSystem, write_atomically
from moldau.storage.producers.producer_state import NO_OFFSET, ProducerBatch, ProducerEntry, ProducerStates

SNAPSHOT_HEADER = Struct(">hIi")  # Fields: version, CRC of the bytes after the CRC, count.
SNAPSHOT_ENTRY = Struct(">qhiqiqiq")
CRC_END = 6
VERSION = 1


class CorruptSnapshot(ValueError):
    """A producer snapshot is torn or has an unknown version. It is removed, and the producer state is rebuilt from the
    log."""


def encode_snapshot(states: ProducerStates) -> bytes:
    """The content of a snapshot file for a producer state. Kafka's format has room only for the last batch of each
    producer."""
    out = bytearray(SNAPSHOT_HEADER.pack(VERSION, 0, len(states.entries)))
    for entry in states.entries.values():
        last = entry.batches[-1] if entry.batches else None
        out += SNAPSHOT_ENTRY.pack(
            entry.producer_id,
            entry.producer_epoch,
            last.last_sequence if last else NO_SEQUENCE,
            last.last_offset if last else NO_OFFSET,
            last.offset_delta if last else 0,
            entry.last_timestamp,
            entry.coordinator_epoch,
            entry.open_transaction_offset,
        )
    SNAPSHOT_HEADER.pack_into(out, 0, VERSION, crc32c(memoryview(out)[CRC_END:], 0), len(states.entries))
    return bytes(out)


def decode_snapshot(data: BytesLike) -> list[ProducerEntry]:
    """Decode the content of a snapshot file into its producers. Raises `CorruptSnapshot`."""
    if len(data) < SNAPSHOT_HEADER.size:
        raise CorruptSnapshot(f"{len(data)} bytes hold no snapshot")
    version, crc, count = SNAPSHOT_HEADER.unpack_from(data, 0)
    if version != VERSION:
        raise CorruptSnapshot(f"producer snapshot version {version}")
    if crc32c(memoryview(data)[CRC_END:], 0) != crc:
        raise CorruptSnapshot("the checksum of the producer snapshot does not match")
    if count < 0 or SNAPSHOT_HEADER.size + count * SNAPSHOT_ENTRY.size != len(data):
        raise CorruptSnapshot(f"{count} producers in {len(data)} bytes")
    return [decode_entry(fields) for fields in SNAPSHOT_ENTRY.iter_unpack(memoryview(data)[SNAPSHOT_HEADER.size :])]


def decode_entry(fields: tuple[int, ...]) -> ProducerEntry:
    producer_id, epoch, last_sequence, last_offset, offset_delta, timestamp, coordinator_epoch, open_offset = fields
    entry = ProducerEntry(producer_id, epoch)
    if last_offset >= 0:
        first_sequence = (last_sequence - offset_delta) & SEQUENCE_MAX
        entry.note_batch(epoch, ProducerBatch(first_sequence, last_sequence, last_offset, offset_delta, timestamp))
    entry.last_timestamp = timestamp
    entry.coordinator_epoch = coordinator_epoch
    entry.open_transaction_offset = open_offset
    return entry


def _is_before(entry: ProducerEntry, offset: int) -> bool:
    """Whether all offsets in an entry are before the offset of its snapshot. If they are not, the snapshot is of
    another log."""
    last_offset = entry.batches[-1].last_offset if entry.batches else NO_OFFSET
    return last_offset < offset and entry.open_transaction_offset < offset


class ProducerSnapshots:
    """The producer snapshot files of one log, by offset.

    The next flush of the log syncs the snapshots that were written at a roll. A snapshot that a crash tore before that
    is recognized by its checksum, and the producer state is rebuilt from the log.
    """

    __slots__ = ("_directory", "_fs", "offsets")

    def __init__(self, fs: FileSystem, directory: str, names: list[str]) -> None:
        self._fs = fs
        self._directory = directory
        self.offsets = sorted(offset_of_name(name) for name in names if name.endswith(SNAPSHOT_SUFFIX))

    def path(self, offset: int) -> str:
        return f"{self._directory}/{offset_name(offset, SNAPSHOT_SUFFIX)}"

    def write(self, states: ProducerStates) -> bool:
        """Write a snapshot of a producer state at its `map_end_offset`. The caller syncs the file. Returns False if
        there is already a snapshot at or past that offset. Raises OSError, and then leaves no file: the next start
        would conclude from its name that the log has reached that offset."""
        offset = states.map_end_offset
        if offset <= (self.offsets[-1] if self.offsets else 0):
            return False
        path = self.path(offset)
        file = self._fs.open(path, create=True)
        try:
            file.truncate(0)
            file.append([encode_snapshot(states)])
        except OSError:
            with suppress(OSError):
                self._fs.unlink(path)
            raise
        finally:
            file.close()
        self.offsets.append(offset)
        return True

    def write_fetched_snapshot(self, offset: int, data: BytesLike) -> None:
        """Write `data`, a producer snapshot of another replica, durably. The producer state could not be rebuilt
        otherwise, because this log does not have the batches before `offset`. This log must have no snapshot at or past
        `offset`. Blocks for the sync. Raises OSError."""
        assert offset > (self.offsets[-1] if self.offsets else -1)
        write_atomically(self._fs, self.path(offset), data)
        self.offsets.append(offset)

    def load_latest(self, offset_min: int, offset_max: int) -> tuple[int, list[ProducerEntry]] | None:
        """Return the newest readable snapshot from `offset_min` to `offset_max` (inclusive), with its offset; None if
        there is none. Newer snapshots in this range that cannot be read are removed. Raises OSError."""
        for offset in reversed(self.offsets):
            if offset_min <= offset <= offset_max:
                try:
                    entries = decode_snapshot(self._fs.read(self.path(offset)))
                    if all(_is_before(entry, offset) for entry in entries):
                        return offset, entries
                except (CorruptSnapshot, FileNotFoundError):
                    pass
                self.remove(offset)
        return None

    def remove_after(self, offset: int) -> None:
        """Remove the snapshots past `offset`, to which the log was truncated. Raises OSError."""
        for late in [each for each in self.offsets if each > offset]:
            self.remove(late)

    def remove(self, offset: int) -> None:
        path = self.path(offset)
        self.drop_offset(offset)
        if self._fs.exists(path):
            self._fs.unlink(path)

    def drop_offset(self, offset: int) -> None:
        """Remove a snapshot from `offsets`. The caller renames its file."""
        self.offsets.remove(offset)
