"""Which topics the response to a Metadata request shows to a client, and the operations that it may do on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from moldau.broker.requests.authorization.rule import cluster, topic
from moldau.broker.requests.authorized_operations import TOPIC_OPERATIONS, permitted
from moldau.kraft.image.topics import TopicsImage
from moldau.protocol.access import AclOperation
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.metadata import MetadataRequestTopic, MetadataResponseTopic
from moldau.protocol.schema import ZERO_UUID
from moldau.security.access import Access, ResourceKind


class VisibleTopics(NamedTuple):
    """The topics of a request that the ACLs allow, and the refusals of the others."""

    wishes: Sequence[MetadataRequestTopic]
    denied: Sequence[MetadataResponseTopic]
    """Refusals of the topics that were named. The id of a topic is told with its name to no client that may not
    describe it.
    """


def visible_topics(
    access: Access, topics: TopicsImage, wishes: Sequence[MetadataRequestTopic] | None, *, creates: bool
) -> VisibleTopics:
    """DESCRIBE on each topic; a request for all topics gets the allowed ones. `creates`: a topic that does not exist
    would be created, which needs CREATE on the cluster or on the topic. For an unknown topic id the answer is the usual
    error, because it reveals no topic.
    """
    if wishes is None:
        shown = [
            MetadataRequestTopic(name=name)
            for name in topics.ids
            if topic(AclOperation.DESCRIBE, name).is_met_quietly(access)
        ]
        return VisibleTopics(shown, [])
    allowed: list[MetadataRequestTopic] = []
    denied: list[MetadataResponseTopic] = []
    for wish in wishes:
        is_by_id = _is_by_id(wish)
        known = topics.by_id.get(wish.topic_id) if is_by_id else topics.by_name(wish.name or "")
        name = wish.name if not is_by_id else None if known is None else known.name
        if name is None:
            allowed.append(wish)
        elif not topic(AclOperation.DESCRIBE, name).is_met(access):
            denied.append(_denied(None if is_by_id else name, wish.topic_id if is_by_id else ZERO_UUID))
        elif known is None and creates and not _may_create(access, name):
            denied.append(_denied(name, ZERO_UUID))
        else:
            allowed.append(wish)
    return VisibleTopics(allowed, denied)


def operations_on(
    access: Access, topics: TopicsImage, wishes: Sequence[MetadataRequestTopic] | None
) -> dict[bytes | str, int]:
    """The operations that the client may do on each topic of the response: by topic id, or by name if it is missing."""
    operations: dict[bytes | str, int] = {}
    for wish in wishes or ():
        known = topics.by_id.get(wish.topic_id) if _is_by_id(wish) else topics.by_name(wish.name or "")
        if known is not None:
            operations[known.id] = permitted(access, TOPIC_OPERATIONS, ResourceKind.TOPIC, known.name)
        elif wish.name is not None:
            operations[wish.name] = permitted(access, TOPIC_OPERATIONS, ResourceKind.TOPIC, wish.name)
    return operations


def _is_by_id(wish: MetadataRequestTopic) -> bool:
    """Whether a requested topic is given by its id, as the handler reads it: where a client sends a name and an id, the
    id counts.
    """
    return wish.name is None or wish.topic_id != ZERO_UUID


def _may_create(access: Access, name: str) -> bool:
    return cluster(AclOperation.CREATE).is_met_quietly(access) or topic(AclOperation.CREATE, name).is_met(access)


def _denied(name: str | None, topic_id: bytes) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name, topic_id=topic_id)
