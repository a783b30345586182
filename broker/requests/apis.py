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
from collections.abc import Callable, Iterable
from enum import Flag, auto
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from protocol.compiler import Decoder, Encoder, encoder_of, request_decoder_of
from protocol.schema import NEVER, VERSION_MAX, spec_of

if TYPE_CHECKING:
    from broker.network.connection import RequestContext
    from broker.node.node import Broker
    from broker.runtime.pending import Pending

Handler = Callable[["Broker", "RequestContext", object], "object | Pending[object] | None"]
NEVER_SAMPLED: Final = 1 << 63


class Meter(Protocol):
    """Measures the requests of an API, where somebody looks at metrics."""

    def timed(self, route: Route, handle: Handler) -> Handler:
        """The handler of a request that is measured; it says in `route.sample_at` which is the next."""

    def counted(self, route: Route, response_class: type[object], encode: Encoder[object]) -> Encoder[object]:
        """An encoder that also counts errors."""


class Role(Flag):
    """The kind of listener that serves an API."""

    BROKER = auto()
    CONTROLLER = auto()
    BOTH = BROKER | CONTROLLER


class Api(NamedTuple):
    """One row: versions `first` to `last` are served, and advertised unless the row says otherwise."""

    key: int
    name: str
    first: int
    last: int
    role: Role = Role.BROKER
    is_advertised: bool = True
    handler: str = ""
    """The module in `broker/requests/handlers/` where it is not the API's own."""
    controller_handler: str = ""
    """That of controller listeners, where they do it in another way than brokers."""

    def handler_at(self, role: Role) -> str:
        """The name of the module that answers it behind a listener of this role."""
        if role is Role.CONTROLLER and self.controller_handler:
            return self.controller_handler
        return self.handler or self.module

    @property
    def module(self) -> str:
        """The name of its modules: `ListOffsets` → `list_offsets`."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", self.name).lower()


APIS: Final = (
    Api(0, "Produce", 3, 13),
    Api(1, "Fetch", 4, 18, Role.BOTH, controller_handler="quorum"),
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
    Api(18, "ApiVersions", 0, 4, Role.BOTH),
    Api(19, "CreateTopics", 2, 7, Role.BOTH, controller_handler="decision"),
    Api(20, "DeleteTopics", 1, 6, Role.BOTH, controller_handler="decision"),
    Api(21, "DeleteRecords", 0, 2),
    Api(22, "InitProducerId", 0, 5),
    Api(23, "OffsetForLeaderEpoch", 2, 4),
    Api(32, "DescribeConfigs", 1, 4, Role.BOTH),
    Api(33, "AlterConfigs", 0, 2, Role.BOTH),
    Api(35, "DescribeLogDirs", 1, 5),
    Api(37, "CreatePartitions", 0, 3, Role.BOTH, controller_handler="decision"),
    Api(42, "DeleteGroups", 0, 2),
    Api(43, "ElectLeaders", 0, 2, Role.BOTH, handler="forwarded", controller_handler="decision"),
    Api(44, "IncrementalAlterConfigs", 0, 1, Role.BOTH),
    Api(45, "AlterPartitionReassignments", 0, 1, Role.BOTH, handler="forwarded", controller_handler="decision"),
    Api(46, "ListPartitionReassignments", 0, 0, Role.BOTH, handler="forwarded", controller_handler="decision"),
    Api(47, "OffsetDelete", 0, 0),
    Api(52, "Vote", 0, 2, Role.CONTROLLER, handler="quorum"),
    Api(53, "BeginQuorumEpoch", 0, 1, Role.CONTROLLER, handler="quorum"),
    Api(54, "EndQuorumEpoch", 0, 1, Role.CONTROLLER, handler="quorum"),
    Api(55, "DescribeQuorum", 0, 2, Role.BOTH, handler="forwarded", controller_handler="quorum"),
    Api(56, "AlterPartition", 2, 3, Role.CONTROLLER, handler="decision"),
    Api(57, "UpdateFeatures", 0, 2, Role.BOTH, handler="forwarded", controller_handler="decision"),
    Api(58, "Envelope", 0, 0, Role.CONTROLLER),
    Api(59, "FetchSnapshot", 0, 1, Role.CONTROLLER, handler="quorum"),
    Api(60, "DescribeCluster", 0, 2, Role.BOTH),
    Api(61, "DescribeProducers", 0, 0),
    Api(62, "BrokerRegistration", 0, 4, Role.CONTROLLER, handler="decision"),
    Api(63, "BrokerHeartbeat", 0, 2, Role.CONTROLLER, handler="decision"),
    Api(64, "UnregisterBroker", 0, 0, Role.BOTH, handler="forwarded", controller_handler="decision"),
    Api(67, "AllocateProducerIds", 0, 0, Role.CONTROLLER, handler="decision"),
    Api(70, "ControllerRegistration", 0, 0, Role.CONTROLLER, handler="decision"),
    Api(71, "GetTelemetrySubscriptions", 0, 0, is_advertised=False),
    Api(72, "PushTelemetry", 0, 0, is_advertised=False),
    Api(73, "AssignReplicasToDirs", 0, 0, Role.CONTROLLER, handler="decision"),
    Api(74, "ListConfigResources", 0, 1),
    Api(75, "DescribeTopicPartitions", 0, 0),
    Api(80, "AddRaftVoter", 0, 1, Role.BOTH, handler="forwarded", controller_handler="quorum"),
    Api(81, "RemoveRaftVoter", 0, 0, Role.BOTH, handler="forwarded", controller_handler="quorum"),
    Api(82, "UpdateRaftVoter", 0, 0, Role.CONTROLLER, handler="quorum"),
)

PRODUCE: Final = 0
API_VERSIONS: Final = 18


class Route:
    """A row brought to life: codecs by version and the handler, imported and compiled on first use."""

    __slots__ = (
        "_request",
        "_response",
        "api",
        "decoders",
        "encoders",
        "errors",
        "flexible_from",
        "handle",
        "meter",
        "requests",
        "role",
        "sample_at",
        "sampled",
    )

    def __init__(self, api: Api, role: Role = Role.BROKER) -> None:
        """`role`: of the listener, one of the two."""
        self.api = api
        self.role = role
        self.requests = 0
        """Requests served, for the metrics."""
        self.decoders: dict[int, Decoder[object]] = {}
        self.encoders: dict[int, Encoder[object]] = {}
        self.flexible_from = 0
        self.handle: Handler | None = None
        self.errors: dict[int, int] = {}
        """Refusals by their code, where they are counted."""
        self.meter: Meter | None = None
        self.sample_at = NEVER_SAMPLED
        """The request that is measured next, counted as `requests` counts."""
        self.sampled: Handler | None = None
        self._request: type[object] = object
        self._response: type[object] = object

    def load(self, version: int) -> Decoder[object] | None:
        """The decoder of a version met for the first time, None where it is not served."""
        if not self.api.first <= version <= self.api.last:
            return None
        if self.handle is None:
            messages = importlib.import_module(f"protocol.messages.{self.api.module}")
            self._request = getattr(messages, f"{self.api.name}Request")
            self._response = getattr(messages, f"{self.api.name}Response")
            flexible = spec_of(self._request).flexible
            self.flexible_from = VERSION_MAX if flexible == NEVER else flexible.first
            self.handle = importlib.import_module(f"broker.requests.handlers.{self.api.handler_at(self.role)}").handle
            assert self.handle is not None
            self.sampled = self.handle if self.meter is None else self.meter.timed(self, self.handle)
        decoder = self.decoders[version] = request_decoder_of(self._request, version)
        encoder = encoder_of(self._response, version)
        self.encoders[version] = encoder if self.meter is None else self.meter.counted(self, self._response, encoder)
        return decoder

    def refused(self, codes: Iterable[int]) -> None:
        """Count errors that a reply tells."""
        for code in codes:
            self.errors[code] = self.errors.get(code, 0) + 1


def routes(role: Role) -> dict[int, Route]:
    """The routes that a listener of this role serves, by API key."""
    return {api.key: Route(api, role) for api in APIS if api.role & role}
