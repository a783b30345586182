"""`group explain`: gathers what is known about a group, and says why it lags, rebalances or skips."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from moldau.broker.cli.daily.client import LATEST, Client, Partition
from moldau.broker.cli.daily.configs.access import GROUP
from moldau.broker.cli.daily.groups.listing import SHARE, Group, at_coordinator, known_groups
from moldau.broker.cli.daily.groups.members import describe_group
from moldau.broker.cli.daily.groups.views import lag_rows
from moldau.broker.cli.daily.output import Row
from moldau.broker.cli.daily.session import Session
from moldau.broker.reasons.explain import Sentence, explain
from moldau.broker.reasons.facts import HISTORY_SETTING, GroupFacts, History, MemberFacts, PartitionFacts
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)


def explain_groups(session: Session) -> int:
    """`group explain`: the sentences about each group, or one JSON line for each sentence."""
    output = session.output
    for number, group in enumerate(known_groups(session.client, session.arguments.names)):
        facts = facts_of(session, group)
        sentences = explain(facts)
        if output.is_json:
            for each in sentences:
                output.object({"group": group.name, **asdict(each)})
            continue
        if number:
            output.say("")
        output.say(f"{group.name} ({group.kind}, {facts.state})", "bold")
        for each in sentences:
            _say(session, each)
    return 0


def _say(session: Session, sentence: Sentence) -> None:
    session.output.say(f"  {sentence.text}.", "yellow" if sentence.is_problem else "")
    if sentence.advice:
        session.output.say(f"      next: {sentence.advice}")


def facts_of(session: Session, group: Group) -> GroupFacts:
    """What the cluster tells of a group. Raises `Failure`."""
    client = session.client
    described = describe_group(client, group)
    rows = lag_rows(session, group, described)
    history = at_coordinator(client, group.name, lambda: _history(client, group.name))
    there = [(str(row["topic"]), int(str(row["partition"]))) for row in rows if row["end"] is not None]
    stable = client.offsets(dict.fromkeys(there, LATEST), is_committed=True) if group.kind != SHARE else {}
    commits = {} if history is None else history.commits_ms or {}
    rows_of_members = (each.row for each in described.members)
    members = [
        MemberFacts(str(row["member"]), str(row["client"]), str(row["host"]), _text(row["instance"]))
        for row in rows_of_members
    ]
    partitions = [_partition(row, commits, stable) for row in rows]
    return GroupFacts(group.name, group.kind, described.state, members, partitions, history)


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
    )


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _history(client: Client, group: str) -> History | None:
    """What the coordinator remembers; None: it keeps nothing, or the user may not describe the group's settings."""
    resource = DescribeConfigsResource(resource_type=GROUP, resource_name=group, configuration_keys=[HISTORY_SETTING])
    reply = client.ask_coordinator(group, DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse)
    (result,) = reply.results
    if result.error_code in (ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.INVALID_REQUEST):
        return None
    client.check(result.error_code, result.error_message, f"group {group}")
    value = next((each.value for each in result.configs if each.name == HISTORY_SETTING), None)
    return None if value is None else History.from_json(value)
