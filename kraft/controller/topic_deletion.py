"""Deleting topics by name or by id."""

from __future__ import annotations

from collections import Counter

from kraft.controller.decision import Decision, Refusal
from kraft.controller.settings import ControllerSettings
from kraft.image.metadata_image import MetadataImage
from kraft.image.topics import Topic
from protocol.errors import ErrorCode
from protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from protocol.records.metadata import RemoveTopicRecord
from protocol.schema import ZERO_UUID


def delete_topics(image: MetadataImage, request: DeleteTopicsRequest, settings: ControllerSettings) -> Decision:
    """Versions before 6 say names alone; from 6 on, each topic is a name or an id."""
    wanted = [*request.topics, *(DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in request.topic_names)]
    names = Counter(state.name for state in wanted if state.name is not None)
    ids = Counter(state.topic_id for state in wanted if state.topic_id != ZERO_UUID)
    records: list[object] = []
    results = []
    answered: set[tuple[str | None, bytes]] = set()
    for state in wanted:
        if (state.name, state.topic_id) in answered:
            continue
        answered.add((state.name, state.topic_id))
        found = topic_to_delete(image, state, names, ids, settings)
        if isinstance(found, Refusal):
            results.append(refused(state, found))
            continue
        records.append(RemoveTopicRecord(topic_id=found.id))
        results.append(DeletableTopicResult(name=found.name, topic_id=found.id))
    return Decision(records, DeleteTopicsResponse(responses=results))


def refused(state: DeleteTopicState, refusal: Refusal) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=state.name, topic_id=state.topic_id, error_code=refusal.error, error_message=refusal.message
    )


def topic_to_delete(
    image: MetadataImage,
    state: DeleteTopicState,
    names: Counter[str],
    ids: Counter[bytes],
    settings: ControllerSettings,
) -> Topic | Refusal:
    if not settings.delete_topic_enable:
        return Refusal(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
    has_id = state.topic_id != ZERO_UUID
    if state.name is not None and has_id:
        return Refusal(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
    if state.name is not None:
        return named_topic(image, state.name, names, ids)
    if not has_id:
        return Refusal(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    if ids[state.topic_id] > 1:
        return Refusal(ErrorCode.INVALID_REQUEST, "Duplicate topic id.")
    topic = image.topics.by_id.get(state.topic_id)
    if topic is None:
        return Refusal(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
    if topic.name in names:
        return twice()
    return topic


def named_topic(image: MetadataImage, name: str, names: Counter[str], ids: Counter[bytes]) -> Topic | Refusal:
    if names[name] > 1:
        return Refusal(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    topic = image.topics.by_name(name)
    if topic is None:
        return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
    return twice() if topic.id in ids else topic


def twice() -> Refusal:
    return Refusal(ErrorCode.INVALID_REQUEST, "The provided topic name maps to an ID that was already supplied.")
