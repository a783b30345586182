"""Large Metadata responses: they are made and encoded in an executor thread, one at a time.

The response for all topics of a cluster of 100,000 partitions has 4 MB and takes most of a second to make; no other
client should wait for that. The last response with all topics is cached until the metadata changes, because many
clients may restart at the same time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from moldau.broker.metadata.topic_creation import TopicCreation
from moldau.broker.network.replies import EncodedResponse
from moldau.broker.runtime.environment import Environment
from moldau.broker.runtime.pending import EXECUTOR, Pending
from moldau.broker.runtime.tasks import Spawn

if TYPE_CHECKING:
    from moldau.broker.metadata.cluster_view import NodeAddress
    from moldau.kraft.image.metadata_image import MetadataImage
    from moldau.protocol.messages.metadata import MetadataRequestTopic, MetadataResponse, MetadataResponseTopic
    from moldau.protocol.primitives import Chunk


class MetadataQuery(NamedTuple):
    """The question, and everything that the answer depends on, so that an executor thread can make the answer."""

    image: MetadataImage
    listener: str
    nodes: Sequence[NodeAddress]
    controller_id: int
    cluster_id: str
    requested: Sequence[MetadataRequestTopic] | None
    """None for all topics."""
    topic_operations: int
    cluster_operations: int
    new_topics_max: int
    """How many of the requested topics may be created: either all missing ones or none, as in Apache Kafka."""
    denied: Sequence[MetadataResponseTopic] = ()
    """Refusals of the topics that the client may not describe or create."""
    operations: Mapping[bytes | str, int] | None = None
    """What the client may do to each topic, by id, or by the name of a missing topic; None where that is the same for
    all: `topic_operations`."""


MakeAnswer = Callable[[MetadataQuery], tuple["MetadataResponse", list[str]]]
"""Makes the response, and the names of the topics to be created."""


class CachedAnswer(NamedTuple):
    question: MetadataQuery
    version: int
    response: EncodedResponse

    def answers(self, question: MetadataQuery, version: int) -> bool:
        """Whether this response answers the question by the current metadata."""
        kept = self.question
        is_same_cluster = kept.image.topics is question.image.topics and kept.image.cluster is question.image.cluster
        same = kept._replace(image=question.image, nodes=question.nodes, controller_id=question.controller_id)
        return version == self.version and is_same_cluster and same == question


class LargeMetadata:
    """The queue of a broker's large Metadata responses, which an executor thread makes one at a time."""

    def __init__(self, environment: Environment, topics: TopicCreation, spawn: Spawn) -> None:
        self._environment = environment
        self._topics = topics
        self._spawn = spawn
        self._turn = asyncio.Lock()
        self._kept: CachedAnswer | None = None
        self.made_count = 0

    def ask(self, question: MetadataQuery, version: int, make: MakeAnswer) -> Pending[EncodedResponse]:
        waits = [True]
        reply: Pending[EncodedResponse] = Pending(waits.clear, EXECUTOR)
        self._spawn(self._answer(question, version, make, reply, waits))
        return reply

    def describe(self, question: MetadataQuery, make: MakeAnswer) -> Pending[MetadataResponse]:
        """Make a part of a response, which is not encoded yet."""
        waits = [True]
        reply: Pending[MetadataResponse] = Pending(waits.clear)
        self._spawn(self._describe(question, make, reply, waits))
        return reply

    async def _describe(
        self, question: MetadataQuery, make: MakeAnswer, reply: Pending[MetadataResponse], waits: list[bool]
    ) -> None:
        async with self._turn:
            if not waits:
                return
            response, missing = await self._environment.offload(lambda: make(question))
        for name in missing:
            self._topics.create(name)
        reply.complete(response)

    async def _answer(
        self,
        question: MetadataQuery,
        version: int,
        make: MakeAnswer,
        reply: Pending[EncodedResponse],
        waits: list[bool],
    ) -> None:
        """Make a response, unless the client has disconnected: `waits` is then empty."""
        async with self._turn:
            if not waits:
                return
            if self._kept is None or not self._kept.answers(question, version):
                kept = await self._made(question, version, make)
            else:
                kept = self._kept
        reply.complete(kept.response)

    async def _made(self, question: MetadataQuery, version: int, make: MakeAnswer) -> CachedAnswer:
        response, missing = await self._environment.offload(lambda: made(question, version, make))
        self.made_count += 1
        for name in missing:
            self._topics.create(name)
        kept = CachedAnswer(question, version, response)
        if question.requested is None:
            self._kept = kept
        return kept


def made(question: MetadataQuery, version: int, make: MakeAnswer) -> tuple[EncodedResponse, list[str]]:
    """The response, and the names of the topics to be created."""
    from moldau.protocol.compiler import encoder_of
    from moldau.protocol.messages.metadata import MetadataResponse

    response, missing = make(question)
    pieces: list[Chunk] = []
    encoder_of(MetadataResponse, version)(response, pieces)
    return EncodedResponse(pieces), missing
