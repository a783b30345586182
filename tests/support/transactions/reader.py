"""A read_committed reader: it passes over aborted transactions as client libraries do, by the list in each response."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

from moldau.protocol.batch_iterator import iterate_batches
from moldau.protocol.control_records import ControlRecordType, control_record_type
from moldau.protocol.messages.fetch import PartitionData
from moldau.protocol.record_batch import BatchHeader, crc_is_valid
from moldau.protocol.record_builder import Record
from moldau.protocol.record_reader import records_of
from moldau.storage.segment.batch_scan import damage_in
from tests.support.cluster_clients import Bootstrap, within
from tests.support.history import Reading
from tests.support.node import Closed, fetch_request
from tests.support.transactions.ledger import Ledger

FETCH_VERSION = 12
READ_COMMITTED = 1


class CommittedReader:
    """Follows one partition from its beginning, from the leader or from any replica."""

    def __init__(
        self,
        bootstrap: Bootstrap,
        reading: Reading,
        ledger: Ledger,
        *,
        from_followers: bool = False,
        may_rot: bool = False,
        name_of: Callable[[Record], str] = lambda record: (record.value or b"").decode(),
    ) -> None:
        """`name_of`: the name of a record in the history."""
        self.reading = reading
        self.offset = 0
        self._bootstrap = bootstrap
        self._ledger = ledger
        self._from_followers = from_followers
        self._may_rot = may_rot
        self._name_of = name_of

    async def work(self, is_ended: Callable[[], bool]) -> None:
        """Read until no more records will come and the end of the log is reached."""
        while True:
            try:
                if await self._converse(is_ended):
                    return
            except Closed:
                pass
            await self._bootstrap.back_off()

    async def _converse(self, is_ended: Callable[[], bool]) -> bool:
        leader_id, replicas = await self._bootstrap.replicas(self.reading.key)
        may_finish = True
        if self._from_followers and replicas and not is_ended():
            leader_id, may_finish = self._bootstrap.random.choice(replicas), False
        if leader_id <= 0:
            return False
        client = await self._bootstrap.connect(leader_id)
        try:
            for _ in range(self._bootstrap.random.randint(1, 20) if self._from_followers else 1000):
                ends = is_ended()
                request = fetch_request(
                    [(*self.reading.key, self.offset)],
                    max_wait_ms=200,
                    partition_max_bytes=self._bootstrap.random.choice((300, 2000, 8000)),
                    isolation_level=READ_COMMITTED,
                )
                reply: Any = await within(client.ask(request, FETCH_VERSION))
                data: PartitionData = reply.responses[0].partitions[0]
                if data.error_code != 0:
                    return False
                self._take(data)
                if ends and may_finish and self.offset >= data.high_watermark:
                    return True
        except TimeoutError as error:
            raise Closed from error
        finally:
            client.close()
        return False

    def _take(self, data: PartitionData) -> None:
        stored = bytes(cast("bytes", data.records or b""))
        if self._may_rot and damage_in(stored) is not None:
            return
        for place, header, is_shown in told_apart(stored, data):
            if not crc_is_valid(stored, place, header):
                self._complain("was served a batch with a wrong CRC")
                raise Closed
            if header.last_offset >= data.last_stable_offset:
                self._complain(f"got offset {header.last_offset}, last stable offset {data.last_stable_offset}")
            if is_shown:
                self._read(stored, place, header)
            self.offset = max(self.offset, header.next_offset)

    def _read(self, stored: bytes, place: int, header: BatchHeader) -> None:
        for record in records_of(stored, place, header):
            if record.offset >= self.offset:
                self._ledger.read(self.reading, record.offset, self._name_of(record))

    def _complain(self, text: str) -> None:
        self._ledger.complaints.append(f"{self.reading.reader} {text} of {self.reading.key}")


def told_apart(stored: bytes, data: PartitionData) -> Iterator[tuple[int, BatchHeader, bool]]:
    """Place and header of each batch, and whether an application gets its records."""
    aborted = sorted((each.first_offset, each.producer_id) for each in data.aborted_transactions or [])
    passed_over: dict[int, None] = {}
    """Producers whose records belong to an aborted transaction, at this place of the response."""
    for place, header in iterate_batches(stored):
        while aborted and aborted[0][0] <= header.last_offset:
            passed_over[aborted.pop(0)[1]] = None
        if header.is_control and marker_of(stored, place, header) is ControlRecordType.ABORT:
            passed_over.pop(header.producer_id, None)
        is_aborted = header.is_transactional and header.producer_id in passed_over
        yield place, header, not header.is_control and not is_aborted


def marker_of(stored: bytes, place: int, header: BatchHeader) -> ControlRecordType | None:
    """The marker in a control batch. None if it is not a marker, or if compaction has left only the header."""
    record = next(iter(records_of(stored, place, header)), None)
    return None if record is None else control_record_type(record.key)
