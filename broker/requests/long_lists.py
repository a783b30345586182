"""The table of the lists in requests: how a long list of each API is cut into parts, or what bounds it."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from copy import copy
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from moldau.broker.metadata.refusals import refused
from moldau.broker.requests.long_fetch import FetchParts
from moldau.broker.requests.parts import ListPath, Parts, Pause, RequestPart
from moldau.broker.requests.topic_pages import TopicPages
from moldau.kraft.controller.topics.new_partitions import NEW_PARTITIONS_MAX
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    ResponseEntryData,
)
from moldau.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from moldau.protocol.messages.metadata import MetadataRequest
from moldau.protocol.schema import fields_of

if TYPE_CHECKING:
    from moldau.broker.network.route import Handler, RequestContext

SAME: Final = ListPath("topics.partitions", "topics.partitions")
OPEN_MAX: Final = 8
"""The most parts of a request that wait for the controller, so that it answers other requests between them."""
RECORDS_SIZE: Final = 256
"""Elements of a part whose handler writes records: that many are one batch."""


def _cut(request: str, response: str) -> Parts:
    return Parts((ListPath(request, response),))


def _decided(*lists: tuple[str, str]) -> Parts:
    """Parts on which the controller decides."""
    return Parts(tuple(ListPath(*each) for each in lists), open_max=OPEN_MAX)


def _too_many_topics(request: object) -> Handler | None:
    """DIVERGES: Apache Kafka asks the ACLs before it refuses more than 10,000 topics; here all are refused at once."""
    assert isinstance(request, CreateTopicsRequest)
    if len(request.topics) <= NEW_PARTITIONS_MAX:
        return None

    def refuse(context: RequestContext, part: object) -> CreateTopicsResponse:
        assert isinstance(part, CreateTopicsRequest)
        error, message = ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation."
        return CreateTopicsResponse(
            topics=[
                CreatableTopicResult(name=each.name, error_code=error, error_message=message) for each in part.topics
            ]
        )

    return refuse


class MetadataParts(Parts):
    """How requests for the metadata of topics are cut."""

    __slots__ = ()

    def of(self, request: object) -> Generator[RequestPart | Pause | None, object, None]:
        """A request for more topics than one request may create creates none, as in Apache Kafka. DIVERGES: topics that
        exist count here.
        """
        assert isinstance(request, MetadataRequest)
        if len(request.topics or ()) > NEW_PARTITIONS_MAX:
            request = copy(request)
            request.allow_auto_topic_creation = False
        return Parts.of(self, request)


PARTS: Final[Mapping[str, Parts]] = MappingProxyType(
    {
        "AddPartitionsToTxn": Parts(
            (
                ListPath("transactions.topics.partitions", "results_by_transaction.topic_results.results_by_partition"),
                ListPath("v3_and_below_topics.partitions", "results_by_topic_v3_and_below.results_by_partition"),
            ),
            size=64,
        ),
        "AlterClientQuotas": _decided(("entries", "entries")),
        "AlterConfigs": _decided(("resources", "responses")),
        "AlterPartition": _decided(("topics.partitions", "topics.partitions")),
        "AlterPartitionReassignments": _decided(("topics.partitions", "responses.partitions")),
        "AlterReplicaLogDirs": _cut("dirs.topics.partitions", "results.partitions"),
        "AlterUserScramCredentials": _decided(("deletions", "results"), ("upsertions", "results")),
        "AssignReplicasToDirs": _decided(("directories.topics.partitions", "directories.topics.partitions")),
        "CreateAcls": _decided(("creations", "results")),
        "CreatePartitions": _decided(("topics", "results")),
        "CreateTopics": Parts((ListPath("topics", "topics"),), open_max=OPEN_MAX, refuses=_too_many_topics),
        "DeleteAcls": _decided(("filters", "filter_results")),
        "DeleteGroups": _cut("groups_names", "results"),
        "DeleteRecords": Parts((SAME,)),
        "DeleteTopics": _decided(("topics", "responses"), ("topic_names", "responses")),
        "DescribeConfigs": Parts((ListPath("resources", "results"),), size=4, is_distinct=True),
        "DescribeDelegationToken": Parts((ListPath("owners", "tokens"),), is_distinct=True),
        "DescribeGroups": Parts((ListPath("groups", "groups"),), is_distinct=True),
        "DescribeLogDirs": Parts((ListPath("topics.partitions", "results.topics.partitions"),), groups_results=True),
        "DescribeProducers": _cut("topics.partition_indexes", "topics.partitions"),
        "DescribeTopicPartitions": TopicPages(),
        "DescribeTransactions": Parts((ListPath("transactional_ids", "transaction_states"),), is_distinct=True),
        "DescribeUserScramCredentials": _cut("users", "results"),
        "ElectLeaders": _decided(("topic_partitions.partitions", "replica_election_results.partition_result")),
        "Fetch": FetchParts(),
        "FindCoordinator": _cut("coordinator_keys", "coordinators"),
        "IncrementalAlterConfigs": _decided(("resources", "responses")),
        "LeaveGroup": _cut("members", "members"),
        "ListOffsets": Parts((SAME,)),
        "ListPartitionReassignments": _decided(("topics.partition_indexes", "topics.partitions")),
        "Metadata": MetadataParts((ListPath("topics", "topics"),), is_distinct=True),
        "OffsetCommit": Parts((SAME,), size=RECORDS_SIZE),
        "OffsetDelete": Parts((SAME,), size=RECORDS_SIZE),
        "OffsetFetch": Parts(
            (
                ListPath("groups.topics.partition_indexes", "groups.topics.partitions"),
                ListPath("topics.partition_indexes", "topics.partitions"),
            )
        ),
        "OffsetForLeaderEpoch": Parts((SAME,)),
        "Produce": Parts((ListPath("topic_data.partition_data", "responses.partition_responses"),), size=RECORDS_SIZE),
        "TxnOffsetCommit": Parts((SAME,), size=RECORDS_SIZE),
        "WriteTxnMarkers": _cut("markers.topics.partition_indexes", "markers.topics.partitions"),
    }
)
"""How the lists of an API are cut, by its name."""

ENTRIES_MAX: Final = 1_000
"""The most elements of most lists that are handled whole. What they name is limited: settings, brokers, directories."""

BOUNDS: Final[Mapping[str, Mapping[str, int]]] = MappingProxyType(
    {
        "AddRaftVoter": {"listeners": ENTRIES_MAX},
        "AlterClientQuotas": {"entries.entity": ENTRIES_MAX // 10, "entries.ops": ENTRIES_MAX},
        "AlterConfigs": {"resources.configs": ENTRIES_MAX},
        "AlterPartition": {
            "topics.partitions.new_isr": ENTRIES_MAX,
            "topics.partitions.new_isr_with_epochs": ENTRIES_MAX,
        },
        "AlterPartitionReassignments": {"topics.partitions.replicas": ENTRIES_MAX},
        "BeginQuorumEpoch": {
            "topics": ENTRIES_MAX,
            "topics.partitions": ENTRIES_MAX,
            "leader_endpoints": ENTRIES_MAX,
        },
        "BrokerHeartbeat": {"offline_log_dirs": ENTRIES_MAX, "cordoned_log_dirs": ENTRIES_MAX},
        "BrokerRegistration": {"listeners": ENTRIES_MAX, "features": ENTRIES_MAX, "log_dirs": ENTRIES_MAX},
        "ControllerRegistration": {"listeners": ENTRIES_MAX, "features": ENTRIES_MAX},
        "CreateDelegationToken": {"renewers": ENTRIES_MAX},
        "CreatePartitions": {
            "topics.assignments": NEW_PARTITIONS_MAX,
            "topics.assignments.broker_ids": ENTRIES_MAX,
        },
        "CreateTopics": {
            "topics.assignments": NEW_PARTITIONS_MAX,
            "topics.assignments.broker_ids": ENTRIES_MAX,
            "topics.configs": ENTRIES_MAX,
        },
        "DescribeClientQuotas": {"components": ENTRIES_MAX},
        "DescribeQuorum": {"topics": ENTRIES_MAX, "topics.partitions": ENTRIES_MAX},
        "EndQuorumEpoch": {
            "topics": ENTRIES_MAX,
            "topics.partitions": ENTRIES_MAX,
            "topics.partitions.preferred_successors": ENTRIES_MAX,
            "topics.partitions.preferred_candidates": ENTRIES_MAX,
            "leader_endpoints": ENTRIES_MAX,
        },
        "FetchSnapshot": {"topics": ENTRIES_MAX, "topics.partitions": ENTRIES_MAX},
        "IncrementalAlterConfigs": {"resources.configs": ENTRIES_MAX},
        "JoinGroup": {"protocols": ENTRIES_MAX},
        "ListConfigResources": {"resource_types": ENTRIES_MAX},
        "ListGroups": {"states_filter": ENTRIES_MAX, "types_filter": ENTRIES_MAX},
        "ListTransactions": {"state_filters": ENTRIES_MAX},
        "UpdateFeatures": {"feature_updates": ENTRIES_MAX},
        "UpdateRaftVoter": {"listeners": ENTRIES_MAX},
        "Vote": {"topics": ENTRIES_MAX, "topics.partitions": ENTRIES_MAX},
    }
)
"""The most elements of lists that are handled whole, by API and path, the outer list first. DIVERGES: a request with
more is refused with INVALID_REQUEST; Apache Kafka has no such limits.
"""

ONE_PASS: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "DescribeConfigs": {"resources.configuration_keys": "the names become a set"},
        "ListTransactions": {"producer_id_filters": "the ids become a set"},
        "SyncGroup": {
            "assignments": "the assignments become those of the members, of which group.max.size bounds the number"
        },
    }
)
"""Lists that are handled whole in one short pass: 100,000 elements take less than 20 ms."""


class ListOfRequest(NamedTuple):
    """A list in the requests of an API, and what keeps the event loop free where it is long."""

    api: str
    path: str
    treatment: str
    """Empty where the tables above do not name the list."""


def lists_of_requests() -> Iterator[ListOfRequest]:
    """Every list in the declaration of every request that a listener serves."""
    from moldau.broker.requests.table import APIS

    for row in APIS:
        for path in list_paths(row.request):
            yield ListOfRequest(row.name, path, _treatment(row.name, path))


def list_paths(cls: type[object], prefix: str = "") -> Iterator[str]:
    """The paths of all lists in a message, the outer ones first."""
    for field in fields_of(cls):
        if field.is_array:
            yield prefix + field.name
        if field.struct is not None:
            yield from list_paths(field.struct, f"{prefix}{field.name}.")


def _treatment(api: str, path: str) -> str:
    bound, pass_text = BOUNDS.get(api, {}).get(path), ONE_PASS.get(api, {}).get(path)
    plan = PARTS.get(api)
    is_cut = plan is not None and any(f"{each.request}.".startswith(f"{path}.") for each in plan.lists)
    texts = []
    if is_cut:
        assert plan is not None
        from_text = f", for more than {plan.long_from}" if plan.long_from else ""
        texts.append(f"parts of {plan.size}{from_text}")
    if bound is not None:
        texts.append(f"at most {bound}")
    if pass_text is not None:
        texts.append(f"one pass: {pass_text}")
    assert len(texts) <= 1, f"{api}.{path} has several treatments"
    return "".join(texts)


def bounded(limits: Mapping[str, int], answer: Handler) -> Handler:
    """A handler that refuses a request in which a list has too many elements."""
    paths = [(path.split("."), most) for path, most in limits.items()]

    def handle(context: RequestContext, request: object) -> object:
        for path, most in paths:
            if _exceeds(request, path, most):
                return _refused(request)
        return answer(context, request)

    return handle


def _refused(request: object) -> object:
    if isinstance(request, AlterClientQuotasRequest):
        # The entities are left out, because they may be what is too long.
        return AlterClientQuotasResponse(
            entries=[ResponseEntryData(error_code=ErrorCode.INVALID_REQUEST, entity=[]) for _ in request.entries]
        )
    return refused(request, ErrorCode.INVALID_REQUEST)


def _exceeds(holder: object, path: Sequence[str], most: int) -> bool:
    elements = getattr(holder, path[0]) or ()
    if len(path) == 1:
        return len(elements) > most
    return any(_exceeds(each, path[1:], most) for each in elements)
