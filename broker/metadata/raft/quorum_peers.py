"""Sends the requests of the Raft machine to other members of the quorum, and reports the responses.

If the controllers belong to another cluster, their refusals end the start of this node (`ForeignQuorum`), because it
would otherwise wait without end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from moldau.broker.metadata.raft.controller_terms import FormerLeader
from moldau.broker.metadata.raft.log_writer import Feed
from moldau.broker.network.peer_channel import NoResponseReason, PeerChannels
from moldau.kraft.raft import events
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.fetch import FetchRequest
from moldau.protocol.messages.fetch_snapshot import FetchSnapshotRequest

Address = tuple[str, int]


class QuorumPeers:
    """Sends each request of a `Send` effect, and feeds the machine exactly one `ResponseReceived` for it, also if there
    is no response.
    """

    def __init__(
        self,
        channels: PeerChannels,
        former_leader: FormerLeader,
        disconnected: Callable[[int], None],
        feed: Feed,
        answered: Callable[[Address, object], None],
    ) -> None:
        """`disconnected`: called with the id of a node whose connection broke or was refused.

        `answered`: called with the address of a peer and its response, before the Raft machine gets the response.
        """
        self._channels = channels
        self._former_leader = former_leader
        self._disconnected = disconnected
        self._feed = feed
        self._tell_answered = answered

    def send(self, send: events.Send) -> None:
        """Send a request of the Raft machine to a peer.

        A Fetch may wait at the leader for long. So fetches have a connection of their own, and no vote waits behind
        them.
        """
        is_fetch = isinstance(send.request, FetchRequest | FetchSnapshotRequest)
        channel = self._channels.to("quorum fetch" if is_fetch else "quorum", send.to.host, send.to.port)
        channel.ask(send.request, lambda response: self._answered(send, response), send.timeout_ms)

    def _answered(self, send: events.Send, response: object) -> None:
        is_gone = response is NoResponseReason.DISCONNECTED
        if send.to.node_id == self._former_leader.node_id:
            self._note_leader(response)
        if is_gone:
            self._disconnected(send.to.node_id)
        if isinstance(response, NoResponseReason):
            self._feed(events.ResponseReceived(send.to, send.request, None, is_refused=is_gone))
        else:
            self._tell_answered((send.to.host, send.to.port), response)
            self._feed(events.ResponseReceived(send.to, send.request, response))  # type: ignore[arg-type]

    def _note_leader(self, response: object) -> None:
        if response is NoResponseReason.DISCONNECTED:
            self._former_leader.note_disconnected()
        elif not isinstance(response, NoResponseReason):
            self._former_leader.note_answer()


class ForeignQuorum(ValueError):
    """The configured controllers belong to another cluster; the text has advice."""


class ClusterCheck:
    """Decides whether the start of this node fails because the controllers refuse its cluster id.

    A controller that refuses may have wrong directories itself. So the start fails only if more than half of the other
    controllers in the configuration refuse. Any other response shows that the cluster is the right one.
    """

    def __init__(self, cluster_id: str, asked: Sequence[str]) -> None:
        """`asked`: the addresses of the other controllers that the configuration names."""
        self._cluster_id = cluster_id
        self._asked = asked
        self._refusing: set[Address] = set()
        self._is_settled = not asked

    def count_response(self, address: Address, response: object) -> ForeignQuorum | None:
        """Count a response from an address. Returns the error with which the start ends, once enough controllers have
        refused; otherwise None.
        """
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
