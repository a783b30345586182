"""Work that takes too long for the event loop: validating large batches, and making large Metadata responses. An
executor thread does it, one batch and one response at a time. That limits the memory, and leaves CPU time to other
connections.

A large batch is decompressed and validated. Its connection is not read until the batch is appended, so that requests
and batches keep their order.

A large Metadata response is made and encoded: for all topics of a cluster of 100,000 partitions it has 4 MB and takes
most of a second. The last responses are kept until the metadata changes, because many clients may restart at the same
time, and one client may ask repeatedly. For the same reason the topics that a client may describe are kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from moldau.broker.apis.forwarding import close_on_failure
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
    from moldau.broker.network.route import RequestContext
    from moldau.kraft.image.metadata_image import MetadataImage
    from moldau.protocol.messages.metadata import MetadataRequestTopic, MetadataResponse, MetadataResponseTopic
    from moldau.protocol.primitives import Chunk
    from moldau.security.principal import Principal

T = TypeVar("T")
Examined = ValidBatch | RejectedBatch


class LargeBatch(NamedTuple):
    """A copy of a batch for one partition, to be validated. `append` is called with the result."""

    partition: Partition
    batch: bytearray
    now_ms: int
    produce_version: int
    append: Callable[[Examined], None]


class LargeBatches:
    """Validates the large batches of a broker, one after the other."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._examining = asyncio.Lock()
        self.examined_count = 0
        self.waiting_bytes = 0
        """The total size (bytes) of the batches that are validated now or wait for their validation."""

    async def examine(self, batches: list[LargeBatch]) -> None:
        """Validate the batches one after the other, and call `append` of each with the result."""
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
"""The maximum number of kept responses, and of clients whose visible topics are kept."""
KEPT_SIZE_MAX: Final = 1 << 23
"""The most bytes of all kept responses, not counting the newest one."""
KEPT_TOPICS_MAX: Final = 100_000
"""The most visible topics that are kept for several clients together. A single client may have more."""


class MetadataQuery(NamedTuple):
    """The question of a Metadata request, with all that an executor thread needs to make the response."""

    image: MetadataImage
    listener: str
    nodes: Sequence[NodeAddress]
    controller_id: int
    cluster_id: str
    requested: Sequence[MetadataRequestTopic] | None
    """The requested topics; None for all topics."""
    topic_operations: int
    cluster_operations: int
    new_topics_max: int
    """The most missing topics that the request may create. If more are missing, none is created, as in Apache Kafka."""
    denied: Sequence[MetadataResponseTopic] = ()
    """Refusals of the topics that the client may not describe or create."""
    operations: Mapping[bytes | str, int] | None = None
    """The operations that the client may do, by topic id, or by the name of a missing topic. If None, they are
    `topic_operations` for all topics."""


MakeAnswer = Callable[[MetadataQuery], tuple["MetadataResponse", list[str]]]
"""Makes the response to a question, and the names of the topics to create."""
FindVisible = Generator[None, None, MetadataQuery]
"""Restricts a question for all topics to those that a client may describe. It yields for each topic."""


class Client(NamedTuple):
    """The properties of a client on which decisions of the ACLs depend."""

    principal: Principal
    host: str
    stamp: int
    """Changes when the decisions for the client may change, because of a change of the ACLs."""


class CachedMetadata(NamedTuple):
    """An encoded Metadata response that is kept for later requests. `question` and `version` are those of the Metadata
    request for which it was made."""

    question: MetadataQuery
    version: int
    response: EncodedResponse
    size: int
    """The size of the encoded response in bytes."""

    def is_current(self, question: MetadataQuery) -> bool:
        """Whether this response was made from the same topics and the same cluster that the image of `question` has."""
        image = self.question.image
        return image.topics is question.image.topics and image.cluster is question.image.cluster

    def answers(self, question: MetadataQuery, version: int) -> bool:
        """Whether this response also answers `question` in `version`: the metadata has not changed since."""
        if version != self.version or not self.is_current(question):
            return False
        kept = self.question
        return question == kept._replace(
            image=question.image, nodes=question.nodes, controller_id=question.controller_id
        )


class LargeMetadata:
    """Makes the large Metadata responses of a broker, one at a time in an executor thread."""

    def __init__(self, environment: Environment, topics: TopicCreation, spawn: Spawn) -> None:
        self._environment = environment
        self._topics = topics
        self._spawn = spawn
        self._turn = asyncio.Lock()
        self._kept: list[CachedMetadata] = []
        """The kept responses, the oldest first."""
        self._visible: dict[tuple[Client, int], MetadataQuery] = {}
        self.made_count = 0

    def kept_response(self, question: MetadataQuery, version: int) -> EncodedResponse | None:
        """The kept response to a question; None if there is none."""
        return next((kept.response for kept in self._kept if kept.answers(question, version)), None)

    def visible(self, client: Client, question: MetadataQuery, allowed: FindVisible) -> FindVisible:
        """Find the topics that the client may describe. The result of `allowed` is kept until topics or ACLs change."""
        asked, topics = (client, question.topic_operations), question.image.topics
        known = self._visible.pop(asked, None)
        if known is None or known.image.topics is not topics:
            known = yield from allowed
            self._visible = {each: of for each, of in self._visible.items() if of.image.topics is topics}
        self._visible[asked] = known
        left = KEPT_TOPICS_MAX - sum(len(each.requested or ()) for each in self._visible.values())
        while len(self._visible) > 1 and (len(self._visible) > KEPT_MAX or left < 0):
            left += len(self._visible.pop(next(iter(self._visible))).requested or ())
        return question._replace(requested=known.requested, operations=known.operations)

    def ask(self, context: RequestContext, question: MetadataQuery, make: MakeAnswer) -> Pending[EncodedResponse]:
        return self._in_turn(context, lambda: self._answer(question, context.version, make))

    def describe(self, context: RequestContext, question: MetadataQuery, make: MakeAnswer) -> Pending[MetadataResponse]:
        """Make the response to a part of a Metadata request. It is not encoded yet."""
        return self._in_turn(context, lambda: self._describe(question, make))

    def _in_turn(self, context: RequestContext, answer: Callable[[], Coroutine[object, object, T]]) -> Pending[T]:
        """Make a response after all earlier ones are made. If the client disconnects before, nothing is made."""
        waits = [True]
        reply: Pending[T] = Pending(waits.clear, EXECUTOR)

        async def work() -> None:
            async with self._turn:
                if not waits:
                    return
                response = await answer()
            reply.complete(response)

        self._spawn(close_on_failure(context.connection, work()))
        return reply

    async def _describe(self, question: MetadataQuery, make: MakeAnswer) -> MetadataResponse:
        response, missing = await self._environment.offload(lambda: make(question))
        for name in missing:
            self._topics.create(name)
        return response

    async def _answer(self, question: MetadataQuery, version: int, make: MakeAnswer) -> EncodedResponse:
        return self.kept_response(question, version) or await self._made(question, version, make)

    async def _made(self, question: MetadataQuery, version: int, make: MakeAnswer) -> EncodedResponse:
        response, missing = await self._environment.offload(lambda: encode_metadata(question, version, make))
        self.made_count += 1
        for name in missing:
            self._topics.create(name)
        if not missing:
            self._keep(CachedMetadata(question, version, response, sum(map(len, response.pieces))))
        return response

    def _keep(self, kept: CachedMetadata) -> None:
        current = [each for each in self._kept if each.is_current(kept.question)][1 - KEPT_MAX :]
        while current and sum(each.size for each in current) > KEPT_SIZE_MAX:
            current.pop(0)
        self._kept = [*current, kept]


def encode_metadata(question: MetadataQuery, version: int, make: MakeAnswer) -> tuple[EncodedResponse, list[str]]:
    """Make and encode the response to a Metadata request. Returns it with the names of the topics to create."""
    from moldau.protocol.compiler import encoder_of
    from moldau.protocol.messages.metadata import MetadataResponse

    response, missing = make(question)
    pieces: list[Chunk] = []
    encoder_of(MetadataResponse, version)(response, pieces)
    return EncodedResponse(coalesce(pieces)), missing
