"""DeleteTopics, by name or by id."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from moldau.kraft.controller.context import THROTTLING_ERROR, DecisionContext
from moldau.kraft.controller.decision import ApiError, Decision
from moldau.kraft.controller.settings import ControllerSettings
from moldau.kraft.image.metadata_image import MetadataImage
from moldau.kraft.image.topics import Topic
from moldau.protocol.errors import ErrorCode
from moldau.protocol.late_tuple import NamedTuple
from moldau.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from moldau.protocol.records.metadata import RemoveTopicRecord
from moldau.protocol.schema import ZERO_UUID


class NamedTopics(NamedTuple):
    """The topics that a request names, with the number of occurrences of each name and each id."""

    states: list[DeleteTopicState]
    names: Counter[str]
    ids: Counter[bytes]

    @classmethod
    def from_request(cls, request: DeleteTopicsRequest) -> NamedTopics:
        """Read the topics of a request.

        Versions before 6 have names alone; from version 6 on, each topic is a name or an id.
        """
        by_name = (DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in request.topic_names)
        states = [*request.topics, *by_name]
        return cls(
            states,
            Counter(state.name for state in states if state.name is not None),
            Counter(state.topic_id for state in states if state.topic_id != ZERO_UUID),
        )

    def distinct(self) -> Iterator[DeleteTopicState]:
        """Yield the topics without repetitions, because a topic that is named twice has one result."""
        seen: set[tuple[str | None, bytes]] = set()
        for state in self.states:
            if (state.name, state.topic_id) not in seen:
                seen.add((state.name, state.topic_id))
                yield state


def delete_topics(context: DecisionContext, request: DeleteTopicsRequest) -> Decision:
    image = context.image
    wanted = NamedTopics.from_request(request)
    named_ids = {topic.id for name in wanted.names if (topic := image.topics.by_name(name)) is not None}
    records: list[object] = []
    results = []
    for state in wanted.distinct():
        if state.name is None and state.topic_id in named_ids:
            continue  # the result for its name stands for both
        found = topic_to_delete(image, state, wanted, context.settings)
        if isinstance(found, Topic) and not context.mutations.spend(len(found.partitions)):
            found = THROTTLING_ERROR
        if isinstance(found, ApiError):
            results.append(refused(image, state, found))
            continue
        records.append(RemoveTopicRecord(topic_id=found.id))
        results.append(DeletableTopicResult(name=found.name, topic_id=found.id))
    return Decision(records, DeleteTopicsResponse(responses=results))


DUPLICATE_TOPIC_ID = ApiError(
    ErrorCode.INVALID_REQUEST, "The provided topic name maps to an ID that was already supplied."
)


def refused(image: MetadataImage, state: DeleteTopicState, refusal: ApiError) -> DeletableTopicResult:
    topic = image.topics.by_name(state.name) if refusal is DUPLICATE_TOPIC_ID and state.name is not None else None
    return DeletableTopicResult(
        name=state.name,
        topic_id=state.topic_id if topic is None else topic.id,
        error_code=refusal.error,
        error_message=refusal.message,
    )


def topic_to_delete(
    image: MetadataImage, state: DeleteTopicState, wanted: NamedTopics, settings: ControllerSettings
) -> Topic | ApiError:
    if not settings.delete_topic_enable:
        return ApiError(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
    has_id = state.topic_id != ZERO_UUID
    if state.name is not None and has_id:
        return ApiError(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
    if state.name is not None:
        return named_topic(image, state.name, wanted)
    if not has_id:
        return ApiError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    if wanted.ids[state.topic_id] > 1:
        return ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic id.")
    topic = image.topics.by_id.get(state.topic_id)
    if topic is None:
        return ApiError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
    return topic


def named_topic(image: MetadataImage, name: str, wanted: NamedTopics) -> Topic | ApiError:
    if wanted.names[name] > 1:
        return ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    topic = image.topics.by_name(name)
    if topic is None:
        return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
    return DUPLICATE_TOPIC_ID if topic.id in wanted.ids else topic
