"""Requests between members of the quorum, at controller listeners: votes, changes of epoch, fetches of the metadata log
and its snapshots. The Raft machine answers them.

KIP-595: Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch, DescribeQuorum. KIP-630: FetchSnapshot. KIP-853: voters are
added, removed and updated. KIP-996: a candidate asks for pre-votes first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from moldau.broker.runtime.pending import Pending

if TYPE_CHECKING:
    from moldau.broker.network.route import RequestContext
    from moldau.broker.requests.services import Services
    from moldau.kraft.raft.events import QuorumRequest


def handle(services: Services, context: RequestContext, request: QuorumRequest) -> Pending[object]:
    """Pass the request to the Raft machine, which answers at once or later."""
    return services.quorum.receive(request, context.version, context.listener.name)
