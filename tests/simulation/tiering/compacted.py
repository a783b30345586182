"""Scripted stories of a compacted topic with remote storage: whatever was cleaned, and whichever generation of a remote
segment a fetch meets, a reader of both tiers sees the latest committed value of each key, and no key that was deleted.

The reader asks for one batch at a time, so that each offset is looked up anew: a reader that takes whole segments would
pass over a border between two generations.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.errors import ErrorCode
from moldau.protocol.record_builder import Record, build_batch
from moldau.protocol.record_reader import records_of
from moldau.storage.tiered.metadata.lineage import read_lineage
from tests.simulation.tiering.scripts import PASSING, Stage, told
from tests.support.node import Closed

KEYS: Final = 6
TIME: Final = 1_767_225_600_000
CLEANER: Final[dict[str, Any]] = {
    "log_cleaner_backoff_ms": 300,
    "log_cleaner_dedupe_buffer_size": 24_000,
    "moldau_tiered_superseded_retention_ms": 1_000,
}
COMPACTED: Final[dict[str, Any]] = {
    "cleanup_policy": "compact",
    "min_cleanable_dirty_ratio": 0.01,
    "delete_retention_ms": 1_000,
    "internal_segment_bytes": 600,
}
ROUNDS: Final = 7
PAUSE_S: Final = 3.0
"""What is written is copied, and what is copied is cleaned, in this time."""
ASKS: Final = 400
"""Fetches of one reading that may fail."""


class Table:
    """What one producer wrote, all of it acknowledged; None: the key is deleted."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._latest: dict[bytes, bytes | None] = {}
        self._count = 0

    async def write(self, count: int) -> None:
        """So many records: a third of the keys is deleted now and then, and the first key was written once only."""
        done = 0
        while done < count:
            with suppress(OSError, Closed, TimeoutError):
                client = await self._stage.cluster.connect(await self._stage.cluster.led("t"))
                while done < count:
                    number = self._count % KEYS if self._count else 0
                    key = b"once" if not self._count else f"k{number}".encode()
                    deletes = self._count > KEYS and number % 3 == 0 and self._count // KEYS % 2
                    value = None if deletes else f"value {self._count}".encode()
                    data = build_batch([Record(key, value, TIME)])
                    answer = await asyncio.wait_for(client.produce("t", data), 10)
                    if answer.error_code:
                        break
                    self._latest[key] = value
                    self._count, done = self._count + 1, done + 1
                client.close()
            await asyncio.sleep(0.05)

    def erased(self, key: bytes) -> None:
        """All records of a key were erased."""
        del self._latest[key]

    async def check(self) -> None:
        found = await self._read()
        expected = {key: value for key, value in self._latest.items() if value is not None}
        assert found == expected, f"a reader of both tiers has {found}, written was {expected}"

    async def _read(self) -> dict[bytes, bytes]:
        latest: dict[bytes, bytes] = {}
        stage, offset = self._stage, 0
        client = await stage.cluster.connect(await stage.cluster.led("t"))
        for _ in range(ASKS):
            answer = await client.fetch("t", offset, max_wait_ms=100, partition_max_bytes=1)
            if answer.error_code:
                assert answer.error_code in PASSING, ErrorCode(answer.error_code).name
                await asyncio.sleep(0.5)
                continue
            assert answer.records is None or isinstance(answer.records, bytes | memoryview)
            data, before = bytes(answer.records or b""), offset
            for place, header in iterate_batches(data):
                for record in () if header.is_control else records_of(data, place, header):
                    assert record.key is not None
                    if record.offset >= before:
                        latest.pop(record.key, None)
                        latest |= {} if record.value is None else {record.key: bytes(record.value)}
                offset = max(offset, header.next_offset)
            if offset >= answer.high_watermark:
                client.close()
                return latest
        raise AssertionError(f"a reader does not pass offset {offset}")


def generations(stage: Stage) -> list[int]:
    """Of the remote segments that are read, in their order, as the leader knows them."""
    leader = stage.leader()
    found = [
        node.id for node in stage.cluster.nodes.values() if node.broker is not None and leader in node.broker.replicas
    ]
    lineages = [read_lineage(each.custom_metadata) for each in stage.followed(found[0]).remote_log.read_segments()]
    return [each.generation if each is not None else 0 for each in lineages]


def generations_are_not_mixed(seed: int) -> None:
    """Segments are copied, cleaned together, and cleaned again; the table is read after each."""

    async def story(stage: Stage) -> None:
        table = Table(stage)
        for _ in range(ROUNDS):
            await table.write(30)
            await asyncio.sleep(PAUSE_S)
            await table.check()
        assert max(generations(stage)) > 1, "segments were cleaned twice"

    told(seed, story, properties=CLEANER, **COMPACTED)


ALL: Final[tuple[Callable[[int], None], ...]] = (generations_are_not_mixed,)
