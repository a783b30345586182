"""Fetches one partition from its leader. Two kinds of response without records do not mean that the log has none: the
client is throttled (KIP-219), or the leader has not yet read the records from remote storage (KIP-405).
"""

from __future__ import annotations

from typing import Final

from moldau.protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData
from moldau.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from moldau.storage.checkpoints.text_checkpoint import TopicPartition
from moldau.tables.client.cluster import LogEndsEarlier, RecordsPending, Throttled, check_error
from moldau.tables.client.connection import BrokerConnection
from moldau.tables.refusals import Refused

LIST_OFFSETS_KEY: Final = 2
EARLIEST_LOCAL_TIMESTAMP: Final = -4
EARLIEST_LOCAL_VERSION: Final = 8
"""The first version of ListOffsets in which a broker tells the start of its local log (`EARLIEST_LOCAL_TIMESTAMP`). A
broker without it has no remote storage.
"""


def fetch_partition(leader: BrokerConnection, request: FetchRequest, version_max: int, what: str) -> PartitionData:
    """Fetch from the one partition that a request names. The caller must check the error code of the partition. Raises
    `Throttled`, `TransientError`, `Disconnected` and `Refused`; `what` names the partition in their messages."""
    reply = leader.ask(request, FetchResponse, version_max, wait_ms=request.max_wait_ms)
    check_error(reply.error_code, what)
    if reply.responses:
        return reply.responses[0].partitions[0]
    if reply.throttle_time_ms:
        raise Throttled(reply.throttle_time_ms / 1000)
    raise Refused(f"{what}: the response to Fetch has no partition")


def fetched_batches(
    leader: BrokerConnection,
    key: TopicPartition,
    offset: int,
    end_offset: int,
    answer: PartitionData,
    *,
    is_committed: bool = False,
) -> bytes:
    """The batches in the answer of a leader to a fetch at `offset`. They are empty only if the log has no batch from
    there to `end_offset`, because compaction has removed the last ones.

    Raises `LogEndsEarlier`, `RecordsPending`, and what asking the leader raises.
    """
    records = answer.records
    if isinstance(records, bytes | bytearray | memoryview) and records:
        return bytes(records)
    end = answer.last_stable_offset if is_committed else answer.high_watermark
    if end < end_offset:
        raise LogEndsEarlier(f"the log ends at {end} now")
    if offset < local_start_offset(leader, key):
        raise RecordsPending(f"offset {offset} is in remote storage, and the broker has not read it yet")
    return b""


def local_start_offset(leader: BrokerConnection, key: TopicPartition) -> int:
    """The offset from which on a leader has the log of a partition on its own disk. It is 0 if the broker has no remote
    storage. Raises `TransientError`, `Disconnected` and `Refused`."""
    if leader.version_of(LIST_OFFSETS_KEY, EARLIEST_LOCAL_VERSION) < EARLIEST_LOCAL_VERSION:
        return 0
    topic, partition = key
    asked = ListOffsetsPartition(partition_index=partition, timestamp=EARLIEST_LOCAL_TIMESTAMP)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[asked])])
    reply = leader.ask(request, ListOffsetsResponse, EARLIEST_LOCAL_VERSION)
    answer = reply.topics[0].partitions[0]
    check_error(answer.error_code, f"{topic}-{partition}")
    return answer.offset
