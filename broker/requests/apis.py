"""The table of APIs: what this server speaks, each row one API with the versions it serves and where.

The row names everything else: API `ListOffsets` is declared in `protocol/messages/list_offsets.py` as
`ListOffsetsRequest` and `ListOffsetsResponse`, and answered by `handle` in
`broker/requests/handlers/list_offsets.py`, unless its row names
a handler that several APIs share; both are imported when the first request arrives. ApiVersions and
`docs/protocol-support.md` are computed from this table.
"""

from __future__ import annotations

import importlib
import re
from functools import partial
from typing import Final, NamedTuple

from broker.network.listener_role import ListenerRole
from broker.network.route import Binding, Route


class Api(NamedTuple):
    """One row: versions `first` to `last` are served, and advertised unless the row says otherwise."""

    key: int
    name: str
    first: int
    last: int
    role: ListenerRole = ListenerRole.BROKER
    is_advertised: bool = True
    handler: str = ""
    """The module in `broker/requests/handlers/` where it is not the API's own."""
    controller_handler: str = ""
    """That of controller listeners, where they do it in another way than brokers."""
    frame_hook: str = ""
    """The module in `broker/requests/` whose `ProduceHook` may answer its frames before they are decoded."""
    answers_unknown_versions: bool = False
    """Whether its handler's module has an `unsupported_version` that answers them."""

    def handler_at(self, role: ListenerRole) -> str:
        """The name of the module that answers it behind a listener of this role."""
        if role is ListenerRole.CONTROLLER and self.controller_handler:
            return self.controller_handler
        return self.handler or self.module

    @property
    def module(self) -> str:
        """The name of its modules: `ListOffsets` → `list_offsets`."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", self.name).lower()


APIS: Final = (
    Api(0, "Produce", 3, 13, frame_hook="produce_hook"),
    Api(1, "Fetch", 4, 18, ListenerRole.BOTH, controller_handler="quorum"),
    Api(2, "ListOffsets", 1, 11),
    Api(3, "Metadata", 0, 13),
    Api(8, "OffsetCommit", 2, 10),
    Api(9, "OffsetFetch", 1, 10),
    Api(10, "FindCoordinator", 0, 6),
    Api(11, "JoinGroup", 0, 9),
    Api(12, "Heartbeat", 0, 4),
    Api(13, "LeaveGroup", 0, 5),
    Api(14, "SyncGroup", 0, 5),
    Api(15, "DescribeGroups", 0, 6),
    Api(16, "ListGroups", 0, 5),
    Api(18, "ApiVersions", 0, 4, ListenerRole.BOTH, answers_unknown_versions=True),
    Api(19, "CreateTopics", 2, 7, ListenerRole.BOTH, controller_handler="decision"),
    Api(20, "DeleteTopics", 1, 6, ListenerRole.BOTH, controller_handler="decision"),
    Api(21, "DeleteRecords", 0, 2),
    Api(22, "InitProducerId", 0, 5),
    Api(23, "OffsetForLeaderEpoch", 2, 4),
    Api(29, "DescribeAcls", 1, 3, ListenerRole.BOTH),
    Api(30, "CreateAcls", 1, 3, ListenerRole.BOTH),
    Api(31, "DeleteAcls", 1, 3, ListenerRole.BOTH),
    Api(32, "DescribeConfigs", 1, 4, ListenerRole.BOTH),
    Api(33, "AlterConfigs", 0, 2, ListenerRole.BOTH),
    Api(34, "AlterReplicaLogDirs", 1, 2),
    Api(35, "DescribeLogDirs", 1, 5),
    Api(37, "CreatePartitions", 0, 3, ListenerRole.BOTH, controller_handler="decision"),
    Api(38, "CreateDelegationToken", 1, 3, ListenerRole.BOTH),
    Api(39, "RenewDelegationToken", 1, 2, ListenerRole.BOTH),
    Api(40, "ExpireDelegationToken", 1, 2, ListenerRole.BOTH),
    Api(41, "DescribeDelegationToken", 1, 3),
    Api(42, "DeleteGroups", 0, 2),
    Api(43, "ElectLeaders", 0, 2, ListenerRole.BOTH, handler="forwarded", controller_handler="decision"),
    Api(44, "IncrementalAlterConfigs", 0, 1, ListenerRole.BOTH),
    Api(45, "AlterPartitionReassignments", 0, 1, ListenerRole.BOTH, handler="forwarded", controller_handler="decision"),
    Api(46, "ListPartitionReassignments", 0, 0, ListenerRole.BOTH, handler="forwarded", controller_handler="decision"),
    Api(47, "OffsetDelete", 0, 0),
    Api(48, "DescribeClientQuotas", 0, 1),
    Api(50, "DescribeUserScramCredentials", 0, 0),
    Api(52, "Vote", 0, 2, ListenerRole.CONTROLLER, handler="quorum"),
    Api(53, "BeginQuorumEpoch", 0, 1, ListenerRole.CONTROLLER, handler="quorum"),
    Api(54, "EndQuorumEpoch", 0, 1, ListenerRole.CONTROLLER, handler="quorum"),
    Api(55, "DescribeQuorum", 0, 2, ListenerRole.BOTH, handler="forwarded", controller_handler="quorum"),
    Api(56, "AlterPartition", 2, 3, ListenerRole.CONTROLLER, handler="decision"),
    Api(57, "UpdateFeatures", 0, 2, ListenerRole.BOTH, handler="forwarded", controller_handler="decision"),
    Api(58, "Envelope", 0, 0, ListenerRole.CONTROLLER),
    Api(59, "FetchSnapshot", 0, 1, ListenerRole.CONTROLLER, handler="quorum"),
    Api(60, "DescribeCluster", 0, 2, ListenerRole.BOTH),
    Api(61, "DescribeProducers", 0, 0),
    Api(62, "BrokerRegistration", 0, 4, ListenerRole.CONTROLLER, handler="decision"),
    Api(63, "BrokerHeartbeat", 0, 2, ListenerRole.CONTROLLER, handler="decision"),
    Api(64, "UnregisterBroker", 0, 0, ListenerRole.BOTH, handler="forwarded", controller_handler="decision"),
    Api(67, "AllocateProducerIds", 0, 0, ListenerRole.CONTROLLER, handler="decision"),
    Api(70, "ControllerRegistration", 0, 0, ListenerRole.CONTROLLER, handler="decision"),
    Api(71, "GetTelemetrySubscriptions", 0, 0, is_advertised=False),
    Api(72, "PushTelemetry", 0, 0, is_advertised=False),
    Api(73, "AssignReplicasToDirs", 0, 0, ListenerRole.CONTROLLER, handler="decision"),
    Api(74, "ListConfigResources", 0, 1),
    Api(75, "DescribeTopicPartitions", 0, 0),
    Api(80, "AddRaftVoter", 0, 1, ListenerRole.BOTH, handler="forwarded", controller_handler="quorum"),
    Api(81, "RemoveRaftVoter", 0, 0, ListenerRole.BOTH, handler="forwarded", controller_handler="quorum"),
    Api(82, "UpdateRaftVoter", 0, 0, ListenerRole.CONTROLLER, handler="quorum"),
)

PRODUCE: Final = 0
API_VERSIONS: Final = 18


def routes(role: ListenerRole, services: object) -> dict[int, Route]:
    """The routes that a listener of this role serves, by API key; their handlers work on `services`."""
    return {api.key: route(api, role, services) for api in APIS if api.role & role}


def route(api: Api, role: ListenerRole, services: object) -> Route:
    """A row brought to life; `role` is that of the listener, one of the two."""
    bind = partial(_bind, api, role, services)
    return Route(api.key, api.name, api.first, api.last, bind, is_advertised=api.is_advertised)


def _bind(api: Api, role: ListenerRole, services: object) -> Binding:
    """Import the declaration and the handler of a row."""
    messages = importlib.import_module(f"protocol.messages.{api.module}")
    handler = importlib.import_module(f"broker.requests.handlers.{api.handler_at(role)}")
    hook = importlib.import_module(f"broker.requests.{api.frame_hook}").ProduceHook if api.frame_hook else None
    return Binding(
        getattr(messages, f"{api.name}Request"),
        getattr(messages, f"{api.name}Response"),
        partial(handler.handle, services),
        partial(hook, services) if hook is not None else None,
        handler.unsupported_version if api.answers_unknown_versions else None,
    )
