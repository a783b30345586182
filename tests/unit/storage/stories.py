"""What the tests of the log share: small batches whose values say what they are, and reading a whole log back."""

from __future__ import annotations

from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.compression import Codec
from moldau.protocol.record_batch import crc_is_valid
from moldau.protocol.record_builder import Record, build_batch
from moldau.protocol.record_reader import records_of
from moldau.storage.files.port import FileSystem
from moldau.storage.log.log import Log
from moldau.storage.log.reading import LogRead
from moldau.storage.log_config import LogConfig

NOW_MS = 1_000_000
SMALL = LogConfig(segment_bytes=900, index_interval_bytes=150)
"""Rolls every dozen small batches, and indexes every second one."""


def batch(
    *values: str,
    timestamp: int = NOW_MS,
    producer: tuple[int, int, int] = (-1, -1, -1),
    codec: Codec = Codec.NONE,
    is_transactional: bool = False,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """A batch as a client sends it; `producer` is (id, epoch, base sequence). Record i has the timestamp + i."""
    return bytearray(
        build_batch(
            [Record(b"k", value.encode(), timestamp + i) for i, value in enumerate(values)],
            base_offset=base_offset,
            codec=codec,
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=producer[2],
            is_transactional=is_transactional,
            partition_leader_epoch=leader_epoch,
        )
    )


def open_log(
    fs: FileSystem, directory: str, config: LogConfig = SMALL, *, recovery_point: int = 0, clean: bool = False
) -> Log:
    return Log.open(fs, directory, config, recovery_point=recovery_point, clean_shutdown=clean, now_ms=NOW_MS)


def append(log: Log, *values: str, leader_epoch: int = 0, timestamp: int = NOW_MS) -> int:
    """Append one batch as a client without an id; its base offset."""
    result = log.append_as_leader(batch(*values, timestamp=timestamp), leader_epoch, NOW_MS)
    assert result.error == 0, result
    return result.base_offset


def read_all(log: Log, *, size_max: int = 1 << 20, start: int | None = None) -> dict[int, str]:
    """offset -> value of every record, read as a consumer does; checksums and order are checked on the way."""
    records: dict[int, str] = {}
    offset = log.log_start_offset if start is None else start
    while offset < log.end_offset:
        read = log.read(offset, size_max, end_offset=log.end_offset, at_least_one=True)
        assert isinstance(read, LogRead), read
        if read.slice is None:
            break
        data = read.slice.file.pread(read.slice.size, read.slice.position)
        next_offset = offset
        for position, header in iterate_batches(data):
            assert crc_is_valid(data, position, header)
            assert header.last_offset >= next_offset, "batches come in order"
            for record in records_of(data, position, header):
                if record.offset >= offset:
                    records[record.offset] = (record.value or b"").decode()
            next_offset = header.next_offset
        assert next_offset > offset, "a read that asks for at least one batch moves on"
        offset = next_offset
    return records
