"""Large Metadata responses: they are made and encoded in an executor thread, one at a time.

The response for all topics of a cluster of 100,000 partitions has 4 MB and takes most of a second to make; no other
client should wait for that. The last responses are kept until the metadata changes, because many clients may restart at
the same time, and one client may ask again and again. So is what a client may see of all topics.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from moldau.broker.metadata.topic_creation import TopicCreation
from moldau.broker.network.replies import EncodedResponse, coalesce
from moldau.broker.runtime.environment import Environment
from moldau.broker.runtime.pending import EXECUTOR, Pending
from moldau.broker.runtime.tasks import Spawn

if TYPE_CHECKING:
    from moldau.broker.metadata.cluster_view import NodeAddress
    from moldau.kraft.image.metadata_image import MetadataImage
    from moldau.protocol.messages.metadata import MetadataRequestTopic, MetadataResponse, MetadataResponseTopic
    from moldau.protocol.primitives import Chunk
    from moldau.security.principal import Principal

KEPT_MAX: Final = 8
"""The most responses, and the most clients whose visible topics are kept."""
KEPT_SIZE_MAX: Final = 1 << 23
"""The most bytes of all kept responses but the newest."""
KEPT_TOPICS_MAX: Final = 100_000
"""The most visible topics of all clients but the newest."""


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
    """What the client may do to each topic, by id, or by the name of a missing topic; None if that is the same for
    all: `topic_operations`."""


MakeAnswer = Callable[[MetadataQuery], tuple["MetadataResponse", list[str]]]
"""Makes the response, and the names of the topics to be created."""


class Client(NamedTuple):
    """What the ACLs decide by."""

    principal: Principal
    host: str
    stamp: int
    """Of its access: decisions are the same while it is the same."""


class KeptAnswer(NamedTuple):
    """A response, and what it answers."""

    question: MetadataQuery
    version: int
    response: EncodedResponse
    size: int
    """In bytes."""

    def is_current(self, question: MetadataQuery) -> bool:
        """Whether it was made by the same metadata."""
        image = self.question.image
        return image.topics is question.image.topics and image.cluster is question.image.cluster

    def answers(self, question: MetadataQuery, version: int) -> bool:
        """Whether this response answers the question by the current metadata."""
        if version != self.version or not self.is_current(question):
            return False
        kept = self.question
        return question == kept._replace(
            image=question.image, nodes=question.nodes, controller_id=question.controller_id
        )


class LargeMetadata:
    """The queue of a broker's large Metadata responses, which an executor thread makes one at a time."""

    def __init__(self, environment: Environment, topics: TopicCreation, spawn: Spawn) -> None:
        self._environment = environment
        self._topics = topics
        self._spawn = spawn
        self._turn = asyncio.Lock()
        self._kept: list[KeptAnswer] = []
        """From the oldest to the newest."""
        self._visible: dict[tuple[Client, int], MetadataQuery] = {}
        self.made_count = 0

    def known(self, question: MetadataQuery, version: int) -> EncodedResponse | None:
        """The kept response to a question; None if there is none."""
        return next((kept.response for kept in self._kept if kept.answers(question, version)), None)

    def visible(self, client: Client, question: MetadataQuery, allowed: Callable[[], MetadataQuery]) -> MetadataQuery:
        """The question for all topics as a question for those that the client may see, as `allowed` finds them: anew
        once the topics or the ACLs have changed.
        """
        asked, topics = (client, question.topic_operations), question.image.topics
        known = self._visible.pop(asked, None)
        if known is None or known.image.topics is not topics:
            known = allowed()
            self._visible = {each: of for each, of in self._visible.items() if of.image.topics is topics}
        self._visible[asked] = known
        left = KEPT_TOPICS_MAX - sum(len(each.requested or ()) for each in self._visible.values())
        while len(self._visible) > 1 and (len(self._visible) > KEPT_MAX or left < 0):
            left += len(self._visible.pop(next(iter(self._visible))).requested or ())
        return question._replace(requested=known.requested, operations=known.operations)

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
            response = self.known(question, version) or await self._made(question, version, make)
        reply.complete(response)

    async def _made(self, question: MetadataQuery, version: int, make: MakeAnswer) -> EncodedResponse:
        response, missing = await self._environment.offload(lambda: made(question, version, make))
        self.made_count += 1
        for name in missing:
            self._topics.create(name)
        if not missing:
            self._keep(KeptAnswer(question, version, response, sum(map(len, response.pieces))))
        return response

    def _keep(self, kept: KeptAnswer) -> None:
        current = [each for each in self._kept if each.is_current(kept.question)][1 - KEPT_MAX :]
        while current and sum(each.size for each in current) > KEPT_SIZE_MAX:
            current.pop(0)
        self._kept = [*current, kept]


def made(question: MetadataQuery, version: int, make: MakeAnswer) -> tuple[EncodedResponse, list[str]]:
    """The response, and the names of the topics to be created."""
    from moldau.protocol.compiler import encoder_of
    from moldau.protocol.messages.metadata import MetadataResponse

    response, missing = make(question)
    pieces: list[Chunk] = []
    encoder_of(MetadataResponse, version)(response, pieces)
    return EncodedResponse(coalesce(pieces)), missing
