"""The explanations of `moldau group explain` on the page of a group: why it lags, rebalances or skips records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from moldau.broker.console.group_members import MemberRow
from moldau.broker.console.groups import ShareStates
from moldau.broker.console.kafka_client import KafkaClient
from moldau.broker.console.lag import PartitionEnds, PartitionLag
from moldau.broker.console.remembered import history_of
from moldau.broker.reasons.explain import Finding, explain_group
from moldau.broker.reasons.facts import GroupFacts, MemberFacts, PartitionFacts, redelivered_records

SHARE: Final = "share"


async def explain_lag(
    client: KafkaClient,
    group: tuple[str, str, str],
    coordinator: int,
    members: Sequence[MemberRow],
    lags: Sequence[PartitionLag],
    ends: PartitionEnds,
    states: ShareStates,
) -> list[Finding]:
    """Explain why a group lags, rebalances or skips records. `group` is its id, type and state."""
    history = await history_of(client, group[0], coordinator)
    commits = {} if history is None else history.commits_ms or {}
    readers: dict[tuple[str, int], str] = {}
    if group[1] != SHARE:  # Several members read a partition of a share group.
        for member in members:
            readers.update(((topic, number), member.id) for topic, of in member.assigned.items() for number in of)
    partitions = [
        PartitionFacts(
            each.topic,
            each.partition,
            each.committed,
            ends.first.get((each.topic, each.partition)),
            each.end,
            None,
            each.behind_ms,
            commits.get((each.topic, each.partition)),
            readers.get((each.topic, each.partition)),
            redelivered_records(states.get((each.topic, each.partition)) or ()),
            each.records if group[1] == SHARE else None,
            each.end is None,
        )
        for each in lags
    ]
    facts = [MemberFacts(each.id, each.client_id, each.host, each.instance_id) for each in members]
    return explain_group(GroupFacts(*group, facts, partitions, history))
