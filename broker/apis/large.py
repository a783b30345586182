"""Work that takes too long for the event loop. It is done in an executor thread, one batch and one response at a time:
that bounds the memory, and leaves most of the processor to other connections.

The records of a large batch are decompressed and validated. The connection is not read until its batch is appended, so
that its requests stay in order, and so do the batches of each partition.

A large Metadata response is made and encoded: for all topics of a cluster of 100,000 partitions it has 4 MB and takes
most of a second. The last responses are kept until the metadata changes, because many clients may restart at the same
time, and one client may ask again and again. For the same reason the topics that a client may see are kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from moldau.broker.metadata.topic_creation import TopicCreation
from moldau.broker.network.replies import EncodedResponse, coalesce
from moldau.broker.runtime.environment import Environment
from moldau.broker.runtime.pending import EXECUTOR, Pending
from moldau.broker.runtime.tasks import Spawn
from moldau.protocol.late_tuple import NamedTuple
from moldau.protocol.record_validation import RejectedBatch, ValidBatch, examine_batch
from moldau.replication.partition import Partition

if TYPE_CHECKING:
    from moldau.broker.metadata.cluster_view import NodeAddress
    from moldau.kraft.image.metadata_image import MetadataImage
    from moldau.protocol.messages.metadata import MetadataRequestTopic, MetadataResponse, MetadataResponseTopic
    from moldau.protocol.primitives import Chunk
    from moldau.security.principal import Principal

T = TypeVar("T")
Examined = ValidBatch | RejectedBatch


class LargeBatch(NamedTuple):
    """A copy of the bytes of a batch for one partition. `append` is called with the result of its validation."""

    partition: Partition
    batch: bytearray
    now_ms: int
    produce_version: int
    append: Callable[[Examined], None]


class LargeBatches:
    """The queue of the large batches of a broker."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._examining = asyncio.Lock()
        self.examined_count = 0
        self.waiting_bytes = 0
        """The bytes of all batches that are being examined or wait to be examined."""

    async def examine(self, batches: list[LargeBatch]) -> None:
        """Examine and append the batches one after the other."""
        size = sum(len(each.batch) for each in batches)
        self.waiting_bytes += size
        try:
            for each in batches:
                each.append(await self._examined(each))
        finally:
            self.waiting_bytes -= size

    async def _examined(self, each: LargeBatch) -> Examined:
        # The log's settings at the time of arrival apply to the batch.
        work = partial(examine_batch, each.batch, each.partition.log.config, each.now_ms, each.produce_version)
        async with self._examining:
            examined = await self._environment.offload(work)
        self.examined_count += 1
        return examined


# Metadata

KEPT_MAX: Final = 8
"""The most responses that are kept, and the most clients whose visible topics are kept."""
KEPT_SIZE_MAX: Final = 1 << 23
"""The most bytes of all kept responses together, without the newest one."""
KEPT_TOPICS_MAX: Final = 100_000
"""The most visible topics that are kept for several clients together. A single client may have more."""


class MetadataQuery(NamedTuple):
    """A question for metadata, and everything that its answer depends on: an executor thread can make the answer."""

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
    """The client's operations by topic id, or by the name of a missing topic; if None, `topic_operations` for all."""


MakeAnswer = Callable[[MetadataQuery], tuple["MetadataResponse", list[str]]]
"""Makes the response, and the names of the topics to be created."""


class Client(NamedTuple):
    """The properties of a client that decisions of the ACLs depend on."""

    principal: Principal
    host: str
    stamp: int
    """The stamp of the client's access: while it is the same, the decisions are the same."""


class KeptAnswer(NamedTuple):
    """A response that is kept, with the question and the version that it answers."""

    question: MetadataQuery
    version: int
    response: EncodedResponse
    size: int
    """The size of the encoded response in bytes."""

    def is_current(self, question: MetadataQuery) -> bool:
        """Whether this answer was made from the topics and the cluster of the image that `question` has."""
        image = self.question.image
        return image.topics is question.image.topics and image.cluster is question.image.cluster

    def answers(self, question: MetadataQuery, version: int) -> bool:
        """Whether this response answers a question, and was made from the metadata of the question."""
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
        """The answers that are kept, from the oldest to the newest."""
        self._visible: dict[tuple[Client, int], MetadataQuery] = {}
        self.made_count = 0

    def known(self, question: MetadataQuery, version: int) -> EncodedResponse | None:
        """The kept response to a question; None if there is none."""
        return next((kept.response for kept in self._kept if kept.answers(question, version)), None)

    def visible(self, client: Client, question: MetadataQuery, allowed: Callable[[], MetadataQuery]) -> MetadataQuery:
        """Turn a question for all topics into a question for the topics that the client may see. `allowed` finds these
        topics. Its result is kept until the topics or the ACLs change.
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
        return self._in_turn(lambda: self._answer(question, version, make))

    def describe(self, question: MetadataQuery, make: MakeAnswer) -> Pending[MetadataResponse]:
        """Make a part of a response, which is not encoded yet."""
        return self._in_turn(lambda: self._describe(question, make))

    def _in_turn(self, answer: Callable[[], Coroutine[object, object, T]]) -> Pending[T]:
        """Answer after all earlier questions. If the client has disconnected, `waits` is empty and nothing is made."""
        waits = [True]
        reply: Pending[T] = Pending(waits.clear, EXECUTOR)

        async def work() -> None:
            async with self._turn:
                if not waits:
                    return
                response = await answer()
            reply.complete(response)

        self._spawn(work())
        return reply

    async def _describe(self, question: MetadataQuery, make: MakeAnswer) -> MetadataResponse:
        response, missing = await self._environment.offload(lambda: make(question))
        for name in missing:
            self._topics.create(name)
        return response

    async def _answer(self, question: MetadataQuery, version: int, make: MakeAnswer) -> EncodedResponse:
        return self.known(question, version) or await self._made(question, version, make)

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
    """The encoded response, and the names of the topics to be created."""
    from moldau.protocol.compiler import encoder_of
    from moldau.protocol.messages.metadata import MetadataResponse

    response, missing = make(question)
    pieces: list[Chunk] = []
    encoder_of(MetadataResponse, version)(response, pieces)
    return EncodedResponse(coalesce(pieces)), missing
