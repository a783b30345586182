"""The action `group explain`: gathers facts about a group, and prints why it lags, rebalances or skips records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Final

from moldau.broker.cli.daily.client import LATEST, Client, Partition
from moldau.broker.cli.daily.configs.access import GROUP
from moldau.broker.cli.daily.groups.listing import SHARE, Group, all_groups, at_coordinator, unknown_group
from moldau.broker.cli.daily.groups.members import describe_group
from moldau.broker.cli.daily.groups.views import lag_rows
from moldau.broker.cli.daily.output import Row
from moldau.broker.cli.daily.records.fetching import first_timestamps
from moldau.broker.cli.daily.session import Session
from moldau.broker.reasons.explain import Finding, explain_group
from moldau.broker.reasons.facts import (
    DEAD_GROUP_STATE,
    GROUP_HISTORY_SETTING,
    GroupFacts,
    History,
    MemberFacts,
    PartitionFacts,
    RedeliveredRecords,
    redelivered_records,
)
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from moldau.protocol.messages.read_share_group_state import (
    PartitionData,
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadStateData,
)
from moldau.storage.checkpoints.partition_metadata import uuid_text

SHARE_COORDINATOR: Final = 2
"""The key type in FindCoordinator for share partitions."""
NO_EPOCH: Final = -1
"""The leader epoch in the request. -1, because this command does not lead the share partition."""
DEAD_LETTERS: Final = "errors.deadletterqueue.topic.name"
"""The setting of a share group that names its dead letter topic."""
ISOLATION: Final = "share.isolation.level"
"""The setting of a share group that says whether it gets records of open and aborted transactions."""
SharePartition = tuple[bytes, int]
"""The topic id and the index of a share partition."""


def explain_groups(session: Session) -> int:
    """Print the explanations for each group (`group explain`): as sentences, or as one JSON line for each."""
    output = session.output
    groups = all_groups(session.client)
    names = sorted(set(session.arguments.names))
    gone = {name: facts_of_deleted_group(session.client, name, groups) for name in names if name not in groups}
    for number, name in enumerate(names):
        facts = gone.get(name) or gather_facts(session, groups[name])
        sentences = explain_group(facts)
        if output.is_json:
            for each in sentences:
                output.object({"group": name, **asdict(each)})
            continue
        if number:
            output.say("")
        output.say(f"{name} ({', '.join(filter(None, (facts.kind, facts.state)))})", "bold")
        for each in sentences:
            _say(session, each)
    return 0


def _say(session: Session, sentence: Finding) -> None:
    session.output.say(f"  {sentence.text}.", "yellow" if sentence.is_problem else "")
    if sentence.advice:
        session.output.say(f"      next: {sentence.advice}")


def facts_of_deleted_group(client: Client, name: str, groups: Mapping[str, Group]) -> GroupFacts:
    """The facts about a group that no longer exists: its history. Raises `Failure` if the coordinator keeps no history
    of it.
    """
    history = at_coordinator(client, name, lambda: _history(client, name))
    if history is None or not history.events:
        raise unknown_group(client, name, groups)
    return GroupFacts(name, "", DEAD_GROUP_STATE, (), (), history)


def gather_facts(session: Session, group: Group) -> GroupFacts:
    """Gather the facts about a group from the cluster. Raises `Failure`."""
    client = session.client
    described = describe_group(client, group)
    rows = lag_rows(session, group, described)
    history = at_coordinator(client, group.name, lambda: _history(client, group.name))
    there = [(str(row["topic"]), int(str(row["partition"]))) for row in rows if row["end"] is not None]
    stable: Mapping[Partition, int] = {}
    if group.kind != SHARE or _reads_committed(client, group.name):
        stable = client.offsets(dict.fromkeys(there, LATEST), is_committed=True)
    commits = {} if history is None else history.commits_ms or {}
    rows_of_members = (each.row for each in described.members)
    members = [
        MemberFacts(str(row["member"]), str(row["client"]), str(row["host"]), _text(row["instance"]))
        for row in rows_of_members
    ]
    partitions = [_partition(row, commits, stable) for row in rows]
    dead_letters = ""
    if group.kind == SHARE:
        partitions = _with_ages(session, partitions)
        partitions = _redelivered(client, group.name, partitions)
        dead_letters = at_coordinator(client, group.name, lambda: _setting(client, group.name, DEAD_LETTERS)) or ""
    return GroupFacts(group.name, group.kind, described.state, members, partitions, history, dead_letters)


def _reads_committed(client: Client, group: str) -> bool:
    """Whether a share group gets only records of committed transactions. Readers of other groups say it themselves."""
    return at_coordinator(client, group, lambda: _setting(client, group, ISOLATION)) == "read_committed"


def _with_ages(session: Session, partitions: list[PartitionFacts]) -> list[PartitionFacts]:
    """The partitions of a share group, with the age of the record at the last stable offset if the records after it are
    all that is unfinished. Else the age is that of the record at the start offset.
    """
    held = {
        (each.topic, each.partition): each.last_stable_offset
        for each in partitions
        if each.last_stable_offset is not None
        and each.high_watermark is not None
        and 0 < each.lag <= each.high_watermark - each.last_stable_offset
    }
    timestamps, now_ms = first_timestamps(session.client, held), session.now_ms()
    ages = {key: max(0, now_ms - time_ms) for key, time_ms in timestamps.items()}
    return [each._replace(lag_ms=ages.get((each.topic, each.partition), each.lag_ms)) for each in partitions]


def _partition(row: Row, commits: Mapping[Partition, int], stable: Mapping[Partition, int]) -> PartitionFacts:
    key = (str(row["topic"]), int(str(row["partition"])))
    return PartitionFacts(
        *key,
        _number(row["committed"]),
        _number(row["start"]),
        _number(row["end"]),
        stable.get(key),
        _number(row["behind_ms"]),
        commits.get(key),
        _text(row.get("member")),
        unacknowledged_count=None if "member" in row else _number(row["lag"]),
        is_offline=row["end"] is None,
    )


def _redelivered(client: Client, group: str, partitions: Sequence[PartitionFacts]) -> list[PartitionFacts]:
    """Add to the partitions of a share group the records that were delivered more than once, as their share
    coordinators know them. If the user has no CLUSTER_ACTION, nothing is added.
    """
    there = {
        (client.topic_id(each.topic), each.partition): each for each in partitions if each.high_watermark is not None
    }
    keys = {f"{group}:{uuid_text(topic_id)}:{index}": (topic_id, index) for topic_id, index in there}

    def ask() -> dict[SharePartition, list[RedeliveredRecords]]:
        request = FindCoordinatorRequest(key_type=SHARE_COORDINATOR, coordinator_keys=list(keys))
        by_node: dict[int, list[SharePartition]] = {}
        for each in client.ask(request, FindCoordinatorResponse).coordinators:
            if each.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                return {}
            client.check(each.error_code, each.error_message, f"the share coordinator of {each.key}")
            by_node.setdefault(each.node_id, []).append(keys[each.key])
        return {key: batches for each in by_node.items() for key, batches in _states(client, group, *each).items()}

    found = client.retry("the share coordinators", ask) if there else {}
    return [
        each
        if each.high_watermark is None
        else each._replace(redelivered=found.get((client.topic_id(each.topic), each.partition), ()))
        for each in partitions
    ]


def _states(
    client: Client, group: str, node_id: int, keys: Sequence[SharePartition]
) -> dict[SharePartition, list[RedeliveredRecords]]:
    """Ask one share coordinator for the records of share partitions that were delivered more than once."""
    topics: dict[bytes, list[PartitionData]] = {}
    for topic_id, index in keys:
        topics.setdefault(topic_id, []).append(PartitionData(partition=index, leader_epoch=NO_EPOCH))
    wanted = [ReadStateData(topic_id=topic_id, partitions=each) for topic_id, each in topics.items()]
    request = ReadShareGroupStateRequest(group_id=group, topics=wanted)
    reply = client.ask_broker(node_id, request, ReadShareGroupStateResponse)
    return {
        (bytes(topic.topic_id), each.partition): redelivered_records(each.state_batches)
        for topic in reply.results
        for each in topic.partitions
    }


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _history(client: Client, group: str) -> History | None:
    """The history of a group that its coordinator keeps. None if it keeps none, or if the user may not describe the
    group's settings.
    """
    value = _setting(client, group, GROUP_HISTORY_SETTING)
    return None if value is None else History.from_json(value)


def _setting(client: Client, group: str, name: str) -> str | None:
    """The value of a group's setting; None if the broker has no setting of this name, or if the user may not describe
    the group's settings.
    """
    resource = DescribeConfigsResource(resource_type=GROUP, resource_name=group, configuration_keys=[name])
    reply = client.ask_coordinator(group, DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse)
    (result,) = reply.results
    if result.error_code in (ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.INVALID_REQUEST):
        return None
    client.check(result.error_code, result.error_message, f"group {group}")
    return next((each.value for each in result.configs if each.name == name), None)
