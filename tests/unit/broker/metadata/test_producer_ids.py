"""Producer ids come from leased blocks, in order, and those who ask meanwhile wait."""

from __future__ import annotations

from collections.abc import Callable

from moldau.broker.metadata.producer_ids import ProducerIds
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse


class Controller:
    """Leases blocks when told."""

    def __init__(self) -> None:
        self.asked: list[AllocateProducerIdsRequest] = []
        self.answers: list[Callable[[AllocateProducerIdsResponse], None]] = []
        self.ids = ProducerIds(self.lease, 3, lambda: 42)
        self.given: list[tuple[ErrorCode, int]] = []

    def lease(self, request: AllocateProducerIdsRequest, answer: Callable[[AllocateProducerIdsResponse], None]) -> None:
        self.asked.append(request)
        self.answers.append(answer)

    def next(self, count: int = 1) -> None:
        for _ in range(count):
            self.ids.give_next_id(lambda error, producer_id: self.given.append((error, producer_id)))

    def answer(self, first: int, count: int, error: ErrorCode = ErrorCode.NONE) -> None:
        response = AllocateProducerIdsResponse(error_code=error, producer_id_start=first, producer_id_len=count)
        self.answers.pop(0)(response)


def test_one_block_is_asked_for_by_all_who_wait() -> None:
    controller = Controller()
    controller.next(3)
    ((request),) = controller.asked
    assert (request.broker_id, request.broker_epoch) == (3, 42)
    assert controller.given == []
    controller.answer(1000, 1000)
    assert controller.given == [(ErrorCode.NONE, 1000), (ErrorCode.NONE, 1001), (ErrorCode.NONE, 1002)]
    controller.next()
    assert controller.given[-1] == (ErrorCode.NONE, 1003) and not controller.answers


def test_a_block_that_is_used_up_is_followed_by_another() -> None:
    controller = Controller()
    controller.next(5)
    controller.answer(10, 2)
    assert [producer_id for _, producer_id in controller.given] == [10, 11] and len(controller.answers) == 1
    controller.answer(50, 2)
    controller.answer(90, 2)
    assert [producer_id for _, producer_id in controller.given] == [10, 11, 50, 51, 90]


def test_a_refusal_is_told_to_all_who_wait_and_the_next_one_asks_again() -> None:
    controller = Controller()
    controller.next(2)
    controller.answer(0, 0, ErrorCode.NOT_CONTROLLER)
    assert controller.given == [(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1)] * 2
    controller.next()
    controller.answer(7, 1)
    assert controller.given[-1] == (ErrorCode.NONE, 7)
