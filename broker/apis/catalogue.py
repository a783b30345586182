"""The catalogue of the APIs that this server serves. It has one line for each: its module, and the listeners that serve
it.

ApiVersions and `docs/protocol-support.md` are computed from it. `protocol/versions.py` has the keys and versions that
the messages declare. The module and the messages of an API are imported at its first request, so that an idle node does
not hold them. An API that the controller decides has a row in `kraft/controller/apis.py`. It has a line here only if
brokers do more than forward it, or if it needs more than a permission on the cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache, partial
from importlib import import_module
from typing import Any, Final

from moldau.broker.apis.api import AT_BROKERS, Api, Listeners, Wrap, bind, forward
from moldau.broker.apis.lists import at_most
from moldau.broker.apis.needs import needs_cluster
from moldau.broker.apis.parts import OPEN_MAX, ListPath, PartRules
from moldau.broker.apis.services import Services
from moldau.broker.network.route import ListenerRole, Route
from moldau.kraft.controller.apis import CONTROLLER_APIS, ControllerApi
from moldau.protocol.late_tuple import NamedTuple
from moldau.protocol.schema import key_of, response_class_of, spec_of
from moldau.protocol.versions import VERSIONS

BROKER: Final = AT_BROKERS
UNADVERTISED: Final = Listeners(ListenerRole.BROKER, is_advertised=False)
"""Broker listeners serve the API, but ApiVersions does not list it."""
CONTROLLER: Final = Listeners(ListenerRole.CONTROLLER)
BOTH: Final = Listeners(ListenerRole.BOTH)
FORWARDED: Final = Listeners(ListenerRole.BOTH, is_forwardable=True)
"""Both kinds of listeners serve the API. Brokers forward the request in an Envelope, and the controller checks the
ACLs."""

CATALOGUE: Final[Mapping[str, tuple[str, Listeners]]] = {
    # Records
    "Produce": ("records.produce", BROKER),
    "Fetch": ("records.fetch", BOTH),
    "ListOffsets": ("records.list_offsets", BROKER),
    "DeleteRecords": ("records.delete_records", BROKER),
    "OffsetForLeaderEpoch": ("records.offset_for_leader_epoch", BROKER),
    "DescribeProducers": ("records.describe_producers", BROKER),
    # Groups and their offsets
    "FindCoordinator": ("groups.find_coordinator", BROKER),
    "StreamsGroupHeartbeat": ("groups.streams_group_heartbeat", BROKER),
    "StreamsGroupDescribe": ("groups.streams_group_describe", BROKER),
    "StreamsGroupTopologyDescriptionUpdate": ("groups.streams_group_topology_description_update", BROKER),
    "OffsetCommit": ("groups.offset_commit", BROKER),
    "OffsetFetch": ("groups.offset_fetch", BROKER),
    "JoinGroup": ("groups.join_group", BROKER),
    "Heartbeat": ("groups.heartbeat", BROKER),
    "LeaveGroup": ("groups.leave_group", BROKER),
    "SyncGroup": ("groups.sync_group", BROKER),
    "DescribeGroups": ("groups.describe_groups", BROKER),
    "ConsumerGroupHeartbeat": ("groups.consumer_group_heartbeat", BROKER),
    "ConsumerGroupDescribe": ("groups.consumer_group_describe", BROKER),
    "ListGroups": ("groups.list_groups", BROKER),
    "DeleteGroups": ("groups.delete_groups", BROKER),
    "OffsetDelete": ("groups.offset_delete", BROKER),
    # Share groups (KIP-932)
    "ShareGroupHeartbeat": ("share.share_group_heartbeat", BROKER),
    "ShareGroupDescribe": ("share.share_group_describe", BROKER),
    "DescribeShareGroupOffsets": ("share.share_group_offsets", BROKER),
    "AlterShareGroupOffsets": ("share.share_group_offsets", BROKER),
    "DeleteShareGroupOffsets": ("share.share_group_offsets", BROKER),
    "ShareFetch": ("share.share_fetch", BROKER),
    "ShareAcknowledge": ("share.share_acknowledge", BROKER),
    "InitializeShareGroupState": ("share.share_group_state", BROKER),
    "ReadShareGroupState": ("share.share_group_state", BROKER),
    "WriteShareGroupState": ("share.share_group_state", BROKER),
    "DeleteShareGroupState": ("share.share_group_state", BROKER),
    "ReadShareGroupStateSummary": ("share.share_group_state", BROKER),
    # Transactions and idempotent producers
    "InitProducerId": ("transactions.init_producer_id", BROKER),
    "AddPartitionsToTxn": ("transactions.add_partitions_to_txn", BROKER),
    "AddOffsetsToTxn": ("transactions.add_offsets_to_txn", BROKER),
    "EndTxn": ("transactions.end_txn", BROKER),
    "WriteTxnMarkers": ("transactions.write_txn_markers", BROKER),
    "TxnOffsetCommit": ("transactions.txn_offset_commit", BROKER),
    "DescribeTransactions": ("transactions.describe_transactions", BROKER),
    "ListTransactions": ("transactions.list_transactions", BROKER),
    # Topics and their replicas
    "Metadata": ("topics.metadata", BROKER),
    "CreateTopics": ("topics.create_topics", FORWARDED),
    "AlterReplicaLogDirs": ("topics.log_dirs", BROKER),
    "DescribeLogDirs": ("topics.log_dirs", BROKER),
    "CreatePartitions": ("topics.create_partitions", FORWARDED),
    "DescribeTopicPartitions": ("topics.describe_topic_partitions", BROKER),
    "DeleteTopics": ("topics.delete_topics", FORWARDED),
    # The cluster
    "ApiVersions": ("cluster.api_versions", BOTH),
    "DescribeConfigs": ("cluster.describe_configs", BOTH),
    "AlterConfigs": ("cluster.alter_configs", FORWARDED),
    "IncrementalAlterConfigs": ("cluster.alter_configs", FORWARDED),
    "DescribeClientQuotas": ("cluster.describe_client_quotas", BROKER),
    "Vote": ("cluster.quorum", CONTROLLER),
    "BeginQuorumEpoch": ("cluster.quorum", CONTROLLER),
    "EndQuorumEpoch": ("cluster.quorum", CONTROLLER),
    "DescribeQuorum": ("cluster.quorum", FORWARDED),
    "Envelope": ("cluster.envelope", CONTROLLER),
    "FetchSnapshot": ("cluster.quorum", CONTROLLER),
    "DescribeCluster": ("cluster.describe_cluster", BOTH),
    "GetTelemetrySubscriptions": ("cluster.telemetry", UNADVERTISED),
    "PushTelemetry": ("cluster.telemetry", UNADVERTISED),
    "ListConfigResources": ("cluster.list_config_resources", BROKER),
    "AddRaftVoter": ("cluster.quorum", FORWARDED),
    "RemoveRaftVoter": ("cluster.quorum", FORWARDED),
    "UpdateRaftVoter": ("cluster.quorum", CONTROLLER),
    # Logins, tokens, ACLs and credentials
    "SaslHandshake": ("security.sasl", BOTH),
    "DescribeAcls": ("security.describe_acls", BOTH),
    "CreateDelegationToken": ("security.delegation_tokens", FORWARDED),
    "RenewDelegationToken": ("security.delegation_tokens", FORWARDED),
    "ExpireDelegationToken": ("security.delegation_tokens", FORWARDED),
    "DescribeDelegationToken": ("security.delegation_tokens", BROKER),
    "SaslAuthenticate": ("security.sasl", BOTH),
    "DescribeUserScramCredentials": ("security.describe_user_scram_credentials", BROKER),
}


class ApiLine(NamedTuple):
    """An API as a node knows it before its first request. Versions `first` to `last` are served."""

    name: str
    key: int
    first: int
    last: int
    listeners: Listeners
    source: str | ControllerApi
    """The name of the API's module, or the API's row in `kraft/controller/apis.py` if it has no module."""

    @property
    def request(self) -> type[object]:
        """The request class of the API. Imports the module that declares the class."""
        return request_of(self.name) if isinstance(self.source, str) else self.source.request

    def api(self) -> Api[Any]:
        """The declaration of the API. Imports the API's module, if there is one."""
        if not isinstance(self.source, str):
            return controller_decided_api(self.source, self.listeners)
        request = self.request
        assert declared_versions(request) == (self.key, self.first, self.last), f"{self.name}: run docs/compute.py"
        module = import_module(f"{__package__}.{self.source}")
        apis: Iterable[Api[Any]] = module.APIS if hasattr(module, "APIS") else (module.API,)
        (found,) = (each for each in apis if each.request is request)
        return replace(found, listeners=self.listeners)


def controller_decided_api(row: ControllerApi, listeners: Listeners) -> Api[Any]:
    """Make the declaration of an API that the controller decides. Brokers forward requests of clients (KIP-590).
    Brokers also send registrations and heartbeats of their own (KIP-631), and tools may connect to controllers
    (KIP-919)."""
    cuts = (
        [PartRules(tuple(ListPath(*paths) for paths in row.lists_decided_in_parts), open_max=OPEN_MAX)]
        if row.lists_decided_in_parts
        else []
    )
    return Api(
        row.request,
        broker=forward if row.is_for_clients else None,
        controller=forward,
        needs=needs_cluster(row.operation),
        lists=[*cuts, *(at_most(most, path) for path, most in row.list_size_limits.items())],
        listeners=listeners,
    )


def request_of(name: str) -> type[object]:
    """Import the request class of an API: that of `JoinGroup` is declared in `protocol/messages/join_group.py`."""
    module = "".join(f"_{each.lower()}" if each.isupper() else each for each in name).removeprefix("_")
    found: type[object] = getattr(import_module(f"moldau.protocol.messages.{module}"), f"{name}Request")
    return found


def declared_versions(request: type[object]) -> tuple[int, int, int]:
    """The API key, the first version and the last version that a request class declares."""
    return key_of(request), *spec_of(request).versions


def api_lines(catalogue: Mapping[str, tuple[str, Listeners]], rows: Iterable[ControllerApi]) -> dict[str, ApiLine]:
    """Make an `ApiLine` for each API, by name, sorted by API key. An entry of `catalogue` takes precedence over a row
    of the controller. The request class of an API that `VERSIONS` does not have is imported."""
    lines = {each.name: each for each in map(line_of_controller_api, rows)}
    for name, (module, listeners) in catalogue.items():
        lines[name] = ApiLine(name, *(VERSIONS.get(name) or declared_versions(request_of(name))), listeners, module)
    return dict(sorted(lines.items(), key=lambda item: item[1].key))


def line_of_controller_api(row: ControllerApi) -> ApiLine:
    """Make the `ApiLine` of an API that the controller decides. Brokers forward it if clients may send it."""
    listeners = Listeners((BOTH if row.is_for_clients else CONTROLLER).role, is_forwardable=row.is_forwardable)
    return ApiLine(row.request.__name__.removesuffix("Request"), *declared_versions(row.request), listeners, row)


LINES: Final = api_lines(CATALOGUE, CONTROLLER_APIS.values())


@cache
def apis() -> tuple[Api[Any], ...]:
    """All APIs in the order of their keys; imports all their modules."""
    return tuple(line.api() for line in LINES.values())


def routes(
    role: ListenerRole,
    services: Services,
    lines: Iterable[ApiLine] = LINES.values(),
    *,
    is_guarded: bool = False,
    wrap: Wrap | None = None,
) -> dict[int, Route]:
    """The routes of listeners with this role, by API key. If `is_guarded`, an authorizer decides what clients may do.
    `wrap` wraps each handler; then no hook answers frames."""
    return {
        line.key: route(line, role, services, is_guarded=is_guarded, wrap=wrap)
        for line in lines
        if line.listeners.role & role
    }


def route(
    line: ApiLine, role: ListenerRole, services: Services, *, is_guarded: bool = False, wrap: Wrap | None = None
) -> Route:
    """The route by which listeners of this role serve an API."""
    return Route(
        line.key,
        line.name,
        line.first,
        line.last,
        partial(bind, line.api, role, services, is_guarded=is_guarded, wrap=wrap),
        is_advertised=line.listeners.is_advertised,
        is_forwardable=line.listeners.is_forwardable,
    )


def responses() -> dict[str, type[object]]:
    """The response class of each API, by the name of the API."""
    return {line.name: response_class_of(line.request) for line in LINES.values()}
