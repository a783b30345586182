"""What a client may see, as handlers themselves ask the ACLs: the topics of Metadata, the partitions of Fetch, and
the bit fields of authorized operations in responses. Without an authorizer: all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from moldau.broker.apis.needs import on_cluster, on_topic
from moldau.kraft.image.topics import TopicsImage
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.metadata import MetadataRequestTopic, MetadataResponseTopic
from moldau.protocol.schema import ZERO_UUID
from moldau.replication.fetch_plan import PlannedRead, without_records
from moldau.security.access import CLUSTER_NAME, Access, AclOperation, ResourceKind

if TYPE_CHECKING:
    from moldau.broker.metadata.cluster_view import ClusterView
    from moldau.protocol.messages.fetch import FetchPartition
    from moldau.replication.follower_fetch import PartitionKey

NOT_ASKED: Final = -(1 << 31)


def _bits(*operations: AclOperation) -> int:
    return sum(1 << operation for operation in operations)


TOPIC_OPERATIONS: Final = _bits(
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.CREATE,
    AclOperation.DELETE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)
GROUP_OPERATIONS: Final = _bits(
    AclOperation.READ,
    AclOperation.DELETE,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)
CLUSTER_OPERATIONS: Final = _bits(
    AclOperation.CREATE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.CLUSTER_ACTION,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
    AclOperation.IDEMPOTENT_WRITE,
)


def permitted(access: Access, operations: int, kind: ResourceKind, name: str) -> int:
    """The operations, out of the given ones, that the client may do on one resource. The decisions are not logged."""
    if access.is_unrestricted:
        return operations
    return _bits(
        *(
            operation
            for operation in AclOperation
            if operations >> operation & 1
            and access.allows(operation, kind, name, logs_allowed=False, logs_denied=False)
        )
    )


def permitted_on_cluster(access: Access) -> int:
    """The operations on the cluster; none for a client that may not describe it."""
    if not access.is_unrestricted and not access.allows(AclOperation.DESCRIBE, ResourceKind.CLUSTER, CLUSTER_NAME):
        return 0
    return permitted(access, CLUSTER_OPERATIONS, ResourceKind.CLUSTER, CLUSTER_NAME)


class VisibleTopics(NamedTuple):
    """The topics of a request that the ACLs allow, and the refusals of the others."""

    requested: Sequence[MetadataRequestTopic]
    denied: Sequence[MetadataResponseTopic]
    """Refusals of the topics that were named. The id of a topic is told with its name to no client that may not
    describe it.
    """


def visible_topics(
    access: Access, topics: TopicsImage, requested: Sequence[MetadataRequestTopic] | None, *, creates: bool
) -> VisibleTopics:
    """DESCRIBE on each topic; a request for all topics gets the allowed ones. `creates`: a topic that does not exist
    would be created, which needs CREATE on the cluster or on the topic. For an unknown topic id the answer is the usual
    error, because it reveals no topic.
    """
    if requested is None:
        shown = [
            MetadataRequestTopic(name=name)
            for name in topics.ids
            if on_topic(AclOperation.DESCRIBE, name).is_met_quietly(access)
        ]
        return VisibleTopics(shown, [])
    allowed: list[MetadataRequestTopic] = []
    denied: list[MetadataResponseTopic] = []
    for each in requested:
        is_by_id = _is_by_id(each)
        known = topics.by_id.get(each.topic_id) if is_by_id else topics.by_name(each.name or "")
        name = each.name if not is_by_id else None if known is None else known.name
        if name is None:
            allowed.append(each)
        elif not on_topic(AclOperation.DESCRIBE, name).is_met(access):
            denied.append(_denied(None if is_by_id else name, each.topic_id if is_by_id else ZERO_UUID))
        elif known is None and creates and not _may_create(access, name):
            denied.append(_denied(name, ZERO_UUID))
        else:
            allowed.append(each)
    return VisibleTopics(allowed, denied)


def operations_on(
    access: Access, topics: TopicsImage, requested: Sequence[MetadataRequestTopic] | None
) -> dict[bytes | str, int]:
    """The operations that the client may do on each topic of the response: by topic id, or by name if it is missing."""
    operations: dict[bytes | str, int] = {}
    for each in requested or ():
        known = topics.by_id.get(each.topic_id) if _is_by_id(each) else topics.by_name(each.name or "")
        if known is not None:
            operations[known.id] = permitted(access, TOPIC_OPERATIONS, ResourceKind.TOPIC, known.name)
        elif each.name is not None:
            operations[each.name] = permitted(access, TOPIC_OPERATIONS, ResourceKind.TOPIC, each.name)
    return operations


def _is_by_id(requested: MetadataRequestTopic) -> bool:
    """Whether a requested topic is given by its id, as the handler reads it: if a client sends a name and an id, the
    id counts.
    """
    return requested.name is None or requested.topic_id != ZERO_UUID


def _may_create(access: Access, name: str) -> bool:
    return on_cluster(AclOperation.CREATE).is_met_quietly(access) or on_topic(AclOperation.CREATE, name).is_met(access)


def _denied(name: str | None, topic_id: bytes) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name, topic_id=topic_id)


Wish = tuple["PartitionKey", "FetchPartition"]


class FetchPermissions:
    """The decisions for the partitions of one request, each made once.

    A follower needs CLUSTER_ACTION. A client that names a replica id without this permission reads nothing, and moves
    no high watermark (CVE-2018-1288). A consumer needs READ on each topic. For an unknown topic id the answer is the
    usual error, because it reveals no topic.
    """

    def __init__(self, access: Access, cluster_view: ClusterView, *, is_follower: bool) -> None:
        self._access = access
        self._topics = cluster_view.image.topics
        self._by_topic: dict[str | bytes, bool] = {}
        self.replicates = is_follower and on_cluster(AclOperation.CLUSTER_ACTION).is_met(access)
        """Whether the client is a follower that may fetch."""
        self._reads_nothing = is_follower and not self.replicates

    def divided(self, wanted: Iterable[Wish]) -> tuple[list[Wish], list[PlannedRead]]:
        """The partitions that may be read, and the error responses of the others."""
        allowed: list[Wish] = []
        refusals: list[PlannedRead] = []
        for key, requested in wanted:
            if self._may_read(key[0]):
                allowed.append((key, requested))
            else:
                data = without_records(key[1], ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                refusals.append(PlannedRead(key, data, None))
        return allowed, refusals

    def _may_read(self, key: str | bytes) -> bool:
        if self.replicates or self._reads_nothing:
            return self.replicates
        may_read = self._by_topic.get(key)
        if may_read is None:
            name: str | None
            if isinstance(key, str):
                name = key
            else:
                known = self._topics.by_id.get(key)
                name = None if known is None else known.name
            may_read = self._by_topic[key] = name is None or on_topic(AclOperation.READ, name).is_met(self._access)
        return may_read
