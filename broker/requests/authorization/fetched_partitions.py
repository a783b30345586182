"""Which partitions of a fetch a client may read. The partitions of its fetch session are checked again at each
request.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from moldau.broker.requests.authorization.rule import cluster, topic
from moldau.protocol.access import AclOperation
from moldau.protocol.errors import ErrorCode
from moldau.replication.fetch_plan import PlannedRead, without_records
from moldau.security.access import Access

if TYPE_CHECKING:
    from moldau.broker.metadata.cluster_view import ClusterView
    from moldau.protocol.messages.fetch import FetchPartition
    from moldau.replication.updated_partitions import PartitionKey

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
        self.replicates = is_follower and cluster(AclOperation.CLUSTER_ACTION).is_met(access)
        """Whether the client is a follower that may fetch."""
        self._reads_nothing = is_follower and not self.replicates

    def divided(self, wanted: Iterable[Wish]) -> tuple[list[Wish], list[PlannedRead]]:
        """The partitions that may be read, and the error responses of the others."""
        allowed: list[Wish] = []
        refusals: list[PlannedRead] = []
        for key, wish in wanted:
            if self._may_read(key[0]):
                allowed.append((key, wish))
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
            may_read = self._by_topic[key] = name is None or topic(AclOperation.READ, name).is_met(self._access)
        return may_read
