"""The cost of a Metadata response with all topics of a large cluster, and how long it holds the event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from moldau.broker.apis.large import LargeMetadata, MetadataQuery
from moldau.broker.apis.needs import NOT_ASKED
from moldau.broker.apis.topics.metadata import answer
from moldau.broker.metadata.cluster_view import NodeAddress
from moldau.broker.runtime.environment import LocalEnvironment

if TYPE_CHECKING:
    from moldau.broker.metadata.topic_creation import TopicCreation
    from moldau.broker.network.replies import EncodedResponse
    from moldau.broker.network.route import RequestContext
    from moldau.kraft.image.metadata_image import MetadataImage

VERSION = 13


class MetadataPorts:
    """The parts of a broker that `LargeMetadata` needs besides an environment."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._tasks: list[asyncio.Task[None]] = []

    def spawn(self, work: Coroutine[object, object, None], name: str = "") -> None:
        self._tasks.append(self._loop.create_task(work))

    def create(self, name: str) -> None:
        raise AssertionError("nothing is missing")


def metadata_query(image: MetadataImage) -> MetadataQuery:
    brokers = image.cluster.brokers.values()
    nodes = [NodeAddress(each.id, *each.endpoints["PLAINTEXT"][:2], each.rack, each.fenced) for each in brokers]
    return MetadataQuery(image, "PLAINTEXT", nodes, 0, "bench", None, NOT_ASKED, NOT_ASKED, 0)


def figures_of_all_topics(image: MetadataImage) -> dict[str, float]:
    """Measure the CPU time of the process for one response, and the longest CPU time between two event
    loop iterations.
    """
    return asyncio.run(_asked(image))


async def _asked(image: MetadataImage) -> dict[str, float]:
    loop = asyncio.get_running_loop()
    beside, environment = MetadataPorts(loop), LocalEnvironment(loop)
    done: asyncio.Future[EncodedResponse] = loop.create_future()
    started = last = time.process_time()
    longest = 0.0
    large = LargeMetadata(environment, cast("TopicCreation", beside), beside.spawn)
    context = cast("RequestContext", SimpleNamespace(version=VERSION))
    large.ask(context, metadata_query(image), answer).listen(done.set_result)
    while not done.done():
        await asyncio.sleep(0.001)
        now = time.process_time()
        longest, last = max(longest, now - last), now
    environment.close()
    return {
        "all topics asked for, CPU": time.process_time() - started,
        "all topics asked for, the loop held up, CPU": longest,
    }
