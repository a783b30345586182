"""Requests between members of the quorum, at controller listeners: votes, changes of epoch, fetches of the metadata log
and its snapshots. The Raft machine answers them.

KIP-595: Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch, DescribeQuorum. KIP-630: FetchSnapshot. KIP-853: voters are
added, removed and updated. KIP-996: a candidate asks for pre-votes first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from moldau.broker.apis.api import Api
from moldau.broker.apis.decided import forward
from moldau.broker.apis.lists import at_most
from moldau.broker.apis.needs import needs_cluster
from moldau.broker.runtime.pending import Pending
from moldau.kraft.controller.apis import ENTRIES_MAX
from moldau.protocol.messages.add_raft_voter import AddRaftVoterRequest
from moldau.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from moldau.protocol.messages.describe_quorum import DescribeQuorumRequest
from moldau.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest
from moldau.protocol.messages.fetch_snapshot import FetchSnapshotRequest
from moldau.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from moldau.protocol.messages.update_raft_voter import UpdateRaftVoterRequest
from moldau.protocol.messages.vote import VoteRequest
from moldau.security.access import AclOperation

if TYPE_CHECKING:
    from moldau.broker.apis.services import Services
    from moldau.broker.network.route import RequestContext
    from moldau.kraft.raft.events import QuorumRequest


def handle(services: Services, context: RequestContext, request: QuorumRequest) -> Pending[object]:
    """Pass the request to the Raft machine, which answers at once or later."""
    return services.quorum.receive(request, context.version, context.listener.name)


APIS: Final = (
    Api(
        VoteRequest,
        controller=handle,
        needs=needs_cluster(AclOperation.CLUSTER_ACTION),
        lists=[at_most(ENTRIES_MAX)],
    ),
    Api(
        BeginQuorumEpochRequest,
        controller=handle,
        needs=needs_cluster(AclOperation.CLUSTER_ACTION),
        lists=[at_most(ENTRIES_MAX)],
    ),
    Api(
        EndQuorumEpochRequest,
        controller=handle,
        needs=needs_cluster(AclOperation.CLUSTER_ACTION),
        lists=[at_most(ENTRIES_MAX)],
    ),
    Api(
        DescribeQuorumRequest,
        broker=forward,
        controller=handle,
        needs=needs_cluster(AclOperation.DESCRIBE),
        lists=[at_most(ENTRIES_MAX)],
    ),
    Api(
        FetchSnapshotRequest,
        controller=handle,
        needs=needs_cluster(AclOperation.CLUSTER_ACTION),
        lists=[at_most(ENTRIES_MAX)],
    ),
    Api(
        AddRaftVoterRequest,
        broker=forward,
        controller=handle,
        needs=needs_cluster(AclOperation.ALTER),
        lists=[at_most(ENTRIES_MAX)],
    ),
    Api(
        RemoveRaftVoterRequest,
        broker=forward,
        controller=handle,
        needs=needs_cluster(AclOperation.ALTER),
    ),
    Api(
        UpdateRaftVoterRequest,
        controller=handle,
        needs=needs_cluster(AclOperation.CLUSTER_ACTION),
        lists=[at_most(ENTRIES_MAX)],
    ),
)
