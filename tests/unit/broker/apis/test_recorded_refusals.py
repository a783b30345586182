"""Every answer that refuses a request is, byte for byte, what it was when five mechanisms made them.

`recorded_refusals.txt` has a line for each API and each occasion, with a digest of the answers in each version to the
sampled requests. It was written by those mechanisms, before `protocol/refusals.py` took their place. The lines that
begin with `now` are of answers that are other ones since; `CHANGED` says why.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

from moldau.broker.apis.api import Api
from moldau.broker.apis.lists import bounded_handler
from moldau.broker.apis.topics.create_topics import too_many_topics
from moldau.broker.faults.fault import Scope
from moldau.broker.faults.requests import refused_named
from moldau.broker.network.route import ListenerRole
from moldau.kraft.controller.apis import CONTROLLER_APIS
from moldau.protocol.compiler import encode
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.refusals import refused, refused_with_text
from moldau.security.principal import ANONYMOUS
from tests.support.apis import APIS
from tests.support.transcripts import REWRITE
from tests.unit.broker.apis.needs.test_matrix import TABLE, Stage
from tests.unit.protocol.facts.sampling import sample

RECORD: Final = Path(__file__).with_name("recorded_refusals.txt")
NOW: Final = "now "
STARTS: Final = (0, 13, 26, 39)
"""From where the sampled requests begin to count."""
ALONE: Final = "the error for the whole stands alone, as in Apache Kafka; it was repeated for each element"
NAMES: Final = "elements repeat only what names them; they repeated other fields of the request too"
AS_ELSEWHERE: Final = "the same exception as on other occasions"
FAULT_TEXT: Final = (
    "a fault's error has no text; it was that of an authorization. All elements are told, in their order"
)
NULL_TEXT: Final = "no text is null; it was an empty one"
CHANGED: Final = {
    **{
        (api, "login"): ALONE
        for api in (
            *("LeaveGroup", "OffsetDelete", "OffsetFetch", "AddPartitionsToTxn", "UpdateFeatures", "AlterPartition"),
            *("Vote", "BeginQuorumEpoch", "EndQuorumEpoch", "DescribeQuorum", "FetchSnapshot", "AssignReplicasToDirs"),
            *("ShareFetch", "ShareAcknowledge", "AlterShareGroupOffsets", "DeleteShareGroupOffsets"),
            "DescribeShareGroupOffsets",
        )
    },
    **{
        (api, "login"): NAMES
        for api in (
            "Fetch",
            "ListOffsets",
            "OffsetForLeaderEpoch",
            "ReadShareGroupStateSummary",
            "DescribeTransactions",
        )
    },
    ("AddPartitionsToTxn", "forbidden-BROKER"): "what the request repeats is repeated, as Apache Kafka does",
    ("Metadata", "login"): "a name that the version cannot leave out is empty; the answer could not be encoded",
    **{
        (api, "login"): AS_ELSEWHERE
        for api in (*("AlterClientQuotas", "DescribeClientQuotas", "DescribeUserScramCredentials"),)
    },
    **{
        (api, "too-long"): NULL_TEXT
        for api in (
            *("AlterClientQuotas", "DescribeClientQuotas", "DescribeQuorum", "UpdateFeatures", "AddRaftVoter"),
            "ControllerRegistration",
        )
    },
    ("JoinGroup", "too-long"): AS_ELSEWHERE,
    **{
        (api, "undecided-INVALID_REQUEST"): NULL_TEXT
        for api in (
            *("ListPartitionReassignments", "DescribeQuorum", "UpdateFeatures", "ControllerRegistration"),
            *("AddRaftVoter", "RemoveRaftVoter", "UnregisterBroker", "UnregisterController"),
        )
    },
    ("AlterClientQuotas", "undecided-INVALID_REQUEST"): "an entity that may be what is too long is left out",
    **{
        (api, "fault-CONTROLLER"): FAULT_TEXT
        for api in (
            *(
                "CreateTopics",
                "DeleteTopics",
                "DescribeAcls",
                "CreateAcls",
            ),
            *(
                "DeleteAcls",
                "DescribeConfigs",
                "AlterConfigs",
                "ElectLeaders",
            ),
            *(
                "IncrementalAlterConfigs",
                "ListPartitionReassignments",
                "AlterClientQuotas",
            ),
            *(
                "AlterUserScramCredentials",
                "DescribeQuorum",
                "UpdateFeatures",
                "DescribeCluster",
            ),
            *(
                "UnregisterBroker",
                "UnregisterController",
                "ControllerRegistration",
                "AddRaftVoter",
            ),
            *("RemoveRaftVoter",),
        )
    },
    **{
        (api, "fault-BROKER"): FAULT_TEXT
        for api in (
            *(
                "FindCoordinator",
                "AddPartitionsToTxn",
                "DescribeAcls",
                "DescribeConfigs",
            ),
            *(
                "DescribeProducers",
                "InitializeShareGroupState",
                "ReadShareGroupState",
                "WriteShareGroupState",
            ),
            *(
                "DeleteShareGroupState",
                "ReadShareGroupStateSummary",
            ),
        )
    },
    **{
        ("Fetch", occasion): "each partition is refused too before version 13, with empty records and not null"
        for occasion in ("forbidden-CONTROLLER", "fault-CONTROLLER")
    },
    **{
        ("AlterPartitionReassignments", occasion): "a field of the request was repeated; Apache Kafka does not"
        for occasion in (
            *("too-long", "forbidden-CONTROLLER", "fault-CONTROLLER"),
            *("undecided-NOT_CONTROLLER", "undecided-REQUEST_TIMED_OUT", "undecided-INVALID_REQUEST"),
        )
    },
}
"""Why answers on an occasion are not what they were."""
Refuse = Callable[[object, int], object]
"""Makes the answer to a request in a version."""


def occasions(api: Api[Any]) -> Iterator[tuple[str, Refuse]]:
    """The occasions on which requests of an API are refused."""
    yield "login", refused_in_login
    if api.request in CONTROLLER_APIS or api.listeners.is_forwardable:
        for error in (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.INVALID_REQUEST):
            yield f"undecided-{error.name}", partial(undecided, error)
    if api.bounds:
        yield "too-long", partial(refused_for_length, api)
    for role in (ListenerRole.BROKER, ListenerRole.CONTROLLER):
        if (api.name, role) in TABLE and not TABLE[api.name, role].is_listing:
            yield f"forbidden-{role.name}", partial(forbidden, api, role)
            yield f"fault-{role.name}", partial(faulty, api, role)


def undecided(error: ErrorCode, request: object, version: int) -> object:
    return refused_with_text(request, version, error)


def refused_in_login(request: object, version: int) -> object:
    return refused(request, version, ErrorCode.ILLEGAL_SASL_STATE, "text")


def refused_for_length(api: Api[Any], request: object, version: int) -> object:
    handle = bounded_handler({next(iter(api.bounds)): -1}, cast("Any", None))
    return handle(cast("Any", SimpleNamespace(version=version)), request)


def forbidden(api: Api[Any], role: ListenerRole, request: object, version: int) -> object:
    return Stage(api, role).ask(ANONYMOUS, request, version)


def faulty(api: Api[Any], role: ListenerRole, request: object, version: int) -> object:
    stage = Stage(api, role)
    context = stage.context(ANONYMOUS, version)
    return refused_named(Scope(), ErrorCode.KAFKA_STORAGE_ERROR, stage.answer, context, request, lambda topic_id: None)


def requests(api: Api[Any], version: int) -> Iterator[object]:
    for start in STARTS:
        request = sample(api.request, version, start)
        if api.name == "SyncGroup" and version >= 5:
            cast("Any", request).protocol_type = cast("Any", request).protocol_name = "p"
        if api.name == "FindCoordinator":
            cast("Any", request).key_type = start % 2
        yield request


def encoded(answer: object, version: int) -> bytes:
    try:
        return bytes(encode(answer, version))
    except (AttributeError, TypeError):
        return b"fails"


def digest(api: Api[Any], refuse: Refuse, version: int) -> str:
    """A digest of the answers in a version; of None if the connection ends in place of an answer."""
    told = sha256()
    for request in requests(api, version):
        answer = refuse(request, version)
        told.update(b"none" if answer is None else encoded(answer, version))
    return told.hexdigest()[:8]


def lines() -> Iterator[str]:
    for api in APIS:
        for occasion, refuse in occasions(api):
            told = [digest(api, refuse, version) for version in range(api.first, api.last + 1)]
            yield f"{api.name} {occasion} {api.first}- {' '.join(told)}"


def key_of(line: str) -> tuple[str, str]:
    api, occasion, *_ = line.removeprefix(NOW).split()
    return api, occasion


def test_every_refusal_is_what_it_was() -> None:
    recorded = RECORD.read_text().splitlines()
    was = {key_of(line): line for line in recorded if not line.startswith(NOW)}
    now = {key_of(line): line.removeprefix(NOW) for line in recorded if line.startswith(NOW)}
    made = {key_of(line): line for line in lines()}
    if os.environ.get(REWRITE) == "1":
        kept = [was.get(key, line) for key, line in made.items()]
        changed = [NOW + line for key, line in made.items() if was.get(key, line) != line]
        RECORD.write_text("\n".join(kept + changed) + "\n")
        return
    assert made == {**was, **now}
    assert now.keys() == CHANGED.keys()


def test_more_topics_than_one_request_may_create_are_refused_with_apache_kafkas_words() -> None:
    topics = [CreatableTopic(name=f"t{n}", num_partitions=1, replication_factor=1) for n in range(10_001)]
    request = CreateTopicsRequest(topics=topics, timeout_ms=1)
    refuse = too_many_topics(request)
    assert refuse is not None
    request.topics = topics[:2]
    answer = refuse(cast("Any", SimpleNamespace(version=7)), request)
    assert [(each.name, each.error_code, each.error_message) for each in cast("Any", answer).topics] == [
        (name, ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")
        for name in ("t0", "t1")
    ]
