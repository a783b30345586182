"""Detection of controllers of another cluster: their refusals end the start of this node instead of a wait
without end.
"""

from __future__ import annotations

from collections.abc import Sequence

from moldau.protocol.errors import ErrorCode

Address = tuple[str, int]


class ForeignQuorum(ValueError):
    """The configured controllers belong to another cluster; the text has advice."""


class ClusterCheck:
    """Counts the controllers that refuse the cluster id of this node while it starts.

    One of them may itself have the wrong directories, so it takes more than half of those that the configuration names;
    any other answer shows that the cluster is the right one.
    """

    def __init__(self, cluster_id: str, asked: Sequence[str]) -> None:
        """`asked`: the addresses of the other controllers that the configuration names."""
        self._cluster_id = cluster_id
        self._asked = asked
        self._refusing: set[Address] = set()
        self._is_settled = not asked

    def answered(self, address: Address, response: object) -> ForeignQuorum | None:
        """Count a response. Returns why this node cannot start, once that is certain."""
        if self._is_settled:
            return None
        if getattr(response, "error_code", ErrorCode.NONE) != ErrorCode.INCONSISTENT_CLUSTER_ID:
            self._is_settled = True
            return None
        self._refusing.add(address)
        if len(self._refusing) * 2 <= len(self._asked):
            return None
        self._is_settled = True
        return ForeignQuorum(
            f"the controllers ({', '.join(self._asked)}) belong to another cluster than the directories of this node,"
            f" which were formatted for cluster {self._cluster_id}. Name the controllers of that cluster, or format"
            " empty directories for theirs (moldau format --cluster-id)"
        )
