"""Gives out producer ids one by one, from a block that the controller allocates to this broker."""

from __future__ import annotations

from collections.abc import Callable

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse

Receiver = Callable[[ErrorCode, int], None]
"""Called with (NONE, the producer id), or with (the error, -1)."""
Lease = Callable[[AllocateProducerIdsRequest, Callable[[AllocateProducerIdsResponse], None]], None]
"""Sends the request to the controller; the callback gets the response."""


class ProducerIds:
    """The producer ids of a broker. While a block is requested, callers that need an id wait and are served in their
    order.
    """

    def __init__(self, lease: Lease, broker_id: int, broker_epoch: Callable[[], int]) -> None:
        self._lease = lease
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._block = range(0)
        self._waiting: list[Receiver] = []

    def next_id(self) -> int | None:
        """A new producer id. If the block is used up, returns None and requests the next block."""
        if self._block and not self._waiting:
            producer_id = self._block[0]
            self._block = self._block[1:]
            return producer_id
        if not self._waiting:
            self.give_next_id(self._put_back)
        return None

    def _put_back(self, error: ErrorCode, producer_id: int) -> None:
        """Put back the producer id that was requested only to make the controller allocate a block. The block has
        arrived.
        """
        if error is ErrorCode.NONE:
            self._block = range(producer_id, self._block.stop)

    def give_next_id(self, receiver: Receiver) -> None:
        """Give the receiver a new producer id, now or when the next block has arrived."""
        if self._block:
            producer_id = self._block[0]
            self._block = self._block[1:]
            receiver(ErrorCode.NONE, producer_id)
            return
        self._waiting.append(receiver)
        if len(self._waiting) == 1:
            request = AllocateProducerIdsRequest(broker_id=self._broker_id, broker_epoch=self._broker_epoch())
            self._lease(request, self._leased)

    def _leased(self, response: AllocateProducerIdsResponse) -> None:
        waiting, self._waiting = self._waiting, []
        if response.error_code != ErrorCode.NONE:
            for receiver in waiting:
                receiver(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1)
            return
        self._block = range(response.producer_id_start, response.producer_id_start + response.producer_id_len)
        for receiver in waiting:
            self.give_next_id(receiver)
