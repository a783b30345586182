"""A member of a share group, by hand: its fetches, its acknowledgements, and what it got."""

from __future__ import annotations

from typing import Any, NamedTuple

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages import share_acknowledge, share_fetch
from moldau.protocol.record_reader import records_of
from tests.support.node import Client

GROUP, MEMBER = "g", "m"
NONE = ErrorCode.NONE
ACCEPT, RELEASE, RENEW = 1, 2, 4
SETTINGS: dict[str, Any] = {
    "share_coordinator_state_topic_replication_factor": 1,
    "share_coordinator_state_topic_min_isr": 1,
    "share_coordinator_state_topic_num_partitions": 1,
    "group_share_record_lock_duration_ms": 15_000,
    "group_share_max_share_sessions": 2,
}
FINAL = -1


class Taken(NamedTuple):
    """What a fetch gave of one partition."""

    error: int
    values: list[bytes]
    acquired: list[tuple[int, int, int]]
    acknowledge_error: int


class Consumer:
    """A member of a share group, by hand."""

    def __init__(self, client: Client, topic_id: bytes, member_id: str = MEMBER, group_id: str = GROUP) -> None:
        self.client = client
        self.topic_id = topic_id
        self.member_id = member_id
        self.group_id = group_id
        self.epoch = 0

    async def fetch(
        self,
        *acknowledgements: tuple[int, int, int],
        partition: int = 0,
        wait_ms: int = 0,
        records_max: int = 500,
        epoch: int | None = None,
        mode: int = 0,
        **fields: Any,
    ) -> Any:
        sent = self.epoch if epoch is None else epoch
        batches = [
            share_fetch.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[kind])
            for first, last, kind in acknowledgements
        ]
        data = share_fetch.FetchPartition(partition_index=partition, acknowledgement_batches=batches)
        request = share_fetch.ShareFetchRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            share_session_epoch=sent,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_records=records_max,
            batch_size=records_max,
            share_acquire_mode=mode,
            topics=[share_fetch.FetchTopic(topic_id=self.topic_id, partitions=[data])],
        )
        for name, value in fields.items():
            setattr(request, name, value)
        answer = await self.client.ask(request, 2)
        if answer.error_code == NONE and sent != FINAL:
            self.epoch = sent + 1
        return answer

    async def take(self, *acknowledgements: tuple[int, int, int], **fields: Any) -> list[Taken]:
        answer = await self.fetch(*acknowledgements, **fields)
        assert answer.error_code == NONE
        return [
            Taken(
                each.error_code,
                values_of(each.records),
                [(run.first_offset, run.last_offset, run.delivery_count) for run in each.acquired_records],
                each.acknowledge_error_code,
            )
            for topic in answer.responses
            for each in topic.partitions
        ]

    def acknowledgement(
        self, first: int, last: int, *kinds: int, epoch: int | None = None, is_renewal: bool = False
    ) -> share_acknowledge.ShareAcknowledgeRequest:
        batches = [
            share_acknowledge.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=list(kinds))
        ]
        data = share_acknowledge.AcknowledgePartition(partition_index=0, acknowledgement_batches=batches)
        return share_acknowledge.ShareAcknowledgeRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            share_session_epoch=self.epoch if epoch is None else epoch,
            is_renew_ack=is_renewal,
            topics=[share_acknowledge.AcknowledgeTopic(topic_id=self.topic_id, partitions=[data])],
        )

    async def acknowledge(
        self, first: int, last: int, *kinds: int, epoch: int | None = None, is_renewal: bool = False
    ) -> Any:
        request = self.acknowledgement(first, last, *kinds, epoch=epoch, is_renewal=is_renewal)
        answer = await self.client.ask(request, 2)
        if answer.error_code != NONE:
            return answer.error_code
        self.epoch = request.share_session_epoch + 1
        (topic,) = answer.responses
        return topic.partitions[0].error_code


def values_of(records: bytes) -> list[bytes]:
    values, position = [], 0
    while position < len(records):
        size = int.from_bytes(records[position + 8 : position + 12], "big") + 12
        values += [record.value or b"" for record in records_of(records, position)]
        position += size
    return values
