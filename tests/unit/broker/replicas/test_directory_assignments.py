"""The reports of log directories to the controller: how many go in one request, and what is sent again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from moldau.broker.replicas.directory_assignments import ASSIGNMENTS_MAX, RETRY_MS, DirectoryAssignments
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
from moldau.testing.simulation.world import World

TOPIC, FIRST, SECOND = b"t" * 16, b"1" * 16, b"2" * 16


class Controller:
    """Answers at once."""

    def __init__(self) -> None:
        self.error = ErrorCode.NONE
        self.asked: list[dict[int, bytes]] = []
        """The directory of each partition of the topic, for each request."""

    def submit(self, request: AssignReplicasToDirsRequest, reply: Callable[..., None]) -> None:
        named = {
            data.partition_index: directory.id
            for directory in request.directories
            for topic in directory.topics
            for data in topic.partitions
        }
        self.asked.append(named)
        reply(AssignReplicasToDirsResponse(error_code=self.error))


def test_many_assignments_go_in_several_requests_and_a_refused_one_is_sent_again() -> None:
    count = 2 * ASSIGNMENTS_MAX + 1

    async def story() -> None:
        controller = Controller()
        loop = asyncio.get_running_loop()
        assignments = DirectoryAssignments(cast(Any, controller), cast(Any, None), loop, 1, lambda: 5)
        for index in range(count):
            assignments.report(TOPIC, index, FIRST)
        controller.error = ErrorCode.NOT_CONTROLLER
        assignments.begin()
        await asyncio.sleep(RETRY_MS / 2000)
        assignments.report(TOPIC, 0, SECOND)
        controller.error = ErrorCode.NONE
        await asyncio.sleep(RETRY_MS / 1000)
        assert [len(each) for each in controller.asked] == [ASSIGNMENTS_MAX, ASSIGNMENTS_MAX, ASSIGNMENTS_MAX, 1]
        taken: dict[int, bytes] = {}
        for each in controller.asked[1:]:
            taken |= each
        assert taken == {0: SECOND, **dict.fromkeys(range(1, count), FIRST)}

    with World(1) as world:
        world.run(story(), limit_s=100)
