"""The requests of the quorum, at controller listeners. The Raft state machine answers them; brokers forward those of
clients.

Vote (API key 52, versions 0-2; KIP-595, KIP-853, KIP-996): a candidate asks for a vote.
1: directory ids of voters (KIP-853) · 2: pre-votes (KIP-996).
BeginQuorumEpoch (API key 53, versions 0-1; KIP-595, KIP-853): a leader tells its epoch.
1: directory ids and endpoints (KIP-853).
EndQuorumEpoch (API key 54, versions 0-1; KIP-595, KIP-853): a leader resigns, and names its successors.
1: directory ids and endpoints (KIP-853).
DescribeQuorum (API key 55, versions 0-2; KIP-595, KIP-836, KIP-853): the voters and observers with their offsets.
1: when each has fetched and was caught up (KIP-836) · 2: messages, directory ids and endpoints (KIP-853).
FetchSnapshot (API key 59, versions 0-1; KIP-630, KIP-853): a piece of a snapshot of the metadata log.
1: the directory id of the replica (KIP-853).
AddRaftVoter (API key 80, versions 0-1; KIP-853, KIP-1186): a node becomes a voter.
1: the client says whether the answer waits for the commit (KIP-1186).
RemoveRaftVoter (API key 81, version 0; KIP-853): a voter leaves the set.
UpdateRaftVoter (API key 82, version 0; KIP-853): a voter tells its endpoints and versions.
"""

from __future__ import annotations

from typing import Any, Final

from moldau.broker.apis.api import Api, forward
from moldau.broker.apis.lists import at_most
from moldau.broker.apis.needs import needs_cluster
from moldau.broker.apis.services import Services
from moldau.broker.network.route import RequestContext
from moldau.broker.runtime.pending import Pending
from moldau.kraft.controller.apis import ENTRIES_MAX
from moldau.kraft.raft.events import QuorumRequest
from moldau.protocol.messages.add_raft_voter import AddRaftVoterRequest
from moldau.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from moldau.protocol.messages.describe_quorum import DescribeQuorumRequest
from moldau.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest
from moldau.protocol.messages.fetch_snapshot import FetchSnapshotRequest
from moldau.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from moldau.protocol.messages.update_raft_voter import UpdateRaftVoterRequest
from moldau.protocol.messages.vote import VoteRequest
from moldau.security.access import AclOperation


def handle(services: Services, context: RequestContext, request: QuorumRequest) -> Pending[object]:
    """Pass a request to the Raft state machine, which answers at once or later."""
    return services.quorum.receive(request, context.version, context.listener.name)


def quorum_member_api(request: type[Any]) -> Api[Any]:
    """Declare an API that is used only between members of the quorum."""
    needed = needs_cluster(AclOperation.CLUSTER_ACTION)
    return Api(request, controller=handle, needs=needed, lists=[at_most(ENTRIES_MAX)])


def quorum_client_api(request: type[Any], operation: AclOperation) -> Api[Any]:
    needed = needs_cluster(operation)
    return Api(request, broker=forward, controller=handle, needs=needed, lists=[at_most(ENTRIES_MAX)])


APIS: Final = (
    quorum_member_api(VoteRequest),
    quorum_member_api(BeginQuorumEpochRequest),
    quorum_member_api(EndQuorumEpochRequest),
    quorum_client_api(DescribeQuorumRequest, AclOperation.DESCRIBE),
    quorum_member_api(FetchSnapshotRequest),
    quorum_client_api(AddRaftVoterRequest, AclOperation.ALTER),
    quorum_client_api(RemoveRaftVoterRequest, AclOperation.ALTER),
    quorum_member_api(UpdateRaftVoterRequest),
)
