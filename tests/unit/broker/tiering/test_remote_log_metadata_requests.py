"""What is fetched of the metadata topic is kept when the receive buffer of the channel is used again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from moldau.broker.network.peer_channel import PeerChannel
from moldau.broker.tiering.remote_log_metadata import send_and_wait
from moldau.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData


class OverwrittenChannel:
    """The next response arrives, in the same buffer, before the caller goes on."""

    def __init__(self) -> None:
        self.buffer = bytearray(b"first")

    def ask(self, request: object, take: Callable[[object], None], timeout_ms: int) -> None:
        data = PartitionData(partition_index=0, high_watermark=1, records=memoryview(self.buffer))
        take(FetchResponse(responses=[FetchableTopicResponse(partitions=[data])]))
        self.buffer[:] = b"later"


def test_a_response_is_kept_before_the_next_one_arrives() -> None:
    channel = cast("PeerChannel", OverwrittenChannel())
    response = asyncio.run(send_and_wait(channel, object(), 1000))
    assert isinstance(response, FetchResponse)
    assert response.responses[0].partitions[0].records == b"first"
