"""The actions of `moldau group` that print the groups of a cluster, or the lag and the members of some groups."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Final

from moldau.broker.cli.daily.client import EARLIEST, LATEST, Client, Partition
from moldau.broker.cli.daily.groups.listing import (
    SHARE,
    Group,
    all_groups,
    committed_offsets,
    known_groups,
    share_lags,
    unknown_group,
)
from moldau.broker.cli.daily.groups.members import DescribedGroup, describe_group
from moldau.broker.cli.daily.output import Row
from moldau.broker.cli.daily.records.fetching import first_timestamps
from moldau.broker.cli.daily.session import Session
from moldau.broker.reasons.words import count_with_noun, duration_text

LISTED: Final = ("group", "type", "state", "protocol", "coordinator")
LAGS: Final = ("topic", "partition", "committed", "end", "lag", "behind_ms", "client", "host")
MEMBERS: Final = ("member", "client", "host", "epoch", "assigned", "subscribed")


def list_groups(session: Session) -> int:
    """Print the groups by name (`group list`)."""
    given = session.arguments
    groups = all_groups(session.client)
    for name in given.names:
        if not any(fnmatchcase(each, name) for each in groups):
            raise unknown_group(session.client, name, groups)
    rows = [
        {
            "group": group.name,
            "type": group.kind,
            "state": group.state,
            "protocol": group.protocol_type,
            "coordinator": group.coordinator,
        }
        for name, group in sorted(groups.items())
        if (not given.names or any(fnmatchcase(name, each) for each in given.names))
        and (not given.type or group.kind in given.type)
        and (not given.state or group.state.lower() in [each.lower() for each in given.state])
    ]
    nothing = f"there are no groups{session.that_are_seen}"
    session.output.rows(rows, LISTED, empty="there is no such group" if groups else nothing)
    return 0


def describe(session: Session) -> int:
    """Show the lag and the members of groups (`group describe`)."""
    given, output = session.arguments, session.output
    for number, group in enumerate(known_groups(session.client, given.names)):
        described = describe_group(session.client, group)
        lags = [] if given.members else lag_rows(session, group, described)
        members = [each.row for each in described.members]
        total = sum(row["lag"] for row in lags if isinstance(row["lag"], int))
        ages = [row["behind_ms"] for row in lags if isinstance(row["behind_ms"], int)]
        oldest = max(ages, default=None)
        if output.is_json:
            row: dict[str, object] = {
                "group": group.name,
                "type": group.kind,
                "state": described.state,
                "coordinator": group.coordinator,
                "assignor": described.assignor,
                "members": members,
            }
            output.object(row if given.members else {**row, "lag": total, "behind_ms": oldest, "offsets": lags})
            continue
        if number:
            output.say("")
        output.say(group.name, "bold")
        summary = _summary(group, described)
        if not given.members and lags:
            late = f", {duration_text(oldest)} behind" if oldest else ""
            summary.append(("lag", f"{count_with_noun(total, 'record')}{late}"))
        output.pairs(summary)
        output.say("")
        if given.members:
            output.rows(members, MEMBERS, empty="it has no members")
        else:
            output.rows(lags, LAGS, empty="it has committed no offsets")
    return 0


def _summary(group: Group, described: DescribedGroup) -> list[tuple[str, str]]:
    pairs = [
        ("type", group.kind),
        ("state", f"{described.state}, {count_with_noun(len(described.members), 'member')}"),
        ("coordinator", f"broker {group.coordinator}"),
    ]
    if described.assignor:
        pairs.append(("assignor", described.assignor))
    return pairs


def lag_rows(session: Session, group: Group, described: DescribedGroup) -> list[Row]:
    """One row for each partition that is assigned to a member or has a committed offset: the offset, the end, the lag
    and the member. Raises `Failure`.
    """
    client = session.client
    committed = committed_offsets(client, group)
    told = share_lags(client, group.name) if group.kind == SHARE else {}
    readers = {key: each for each in described.members for key in each.assigned}
    there = _that_are_led(client, {*committed, *readers})
    starts, ends = (client.offsets(dict.fromkeys(there, which)) for which in (EARLIEST, LATEST))
    behind = {key: max(committed[key], starts[key]) for key in there if key in committed}
    lags = {key: min(max(0, ends[key] - offset), told.get(key, ends[key])) for key, offset in behind.items()}
    late = {key: offset for key, offset in behind.items() if lags[key]}
    timestamps = first_timestamps(client, late)
    now_ms = session.now_ms()
    rows: list[Row] = []
    for key in sorted({*committed, *readers}):
        offset, end, reader = committed.get(key), ends.get(key), readers.get(key)
        age: int | None = None
        if key in behind:
            age = max(0, now_ms - timestamps[key]) if key in timestamps else 0 if key not in late else None
        rows.append(
            {
                "topic": key[0],
                "partition": key[1],
                "committed": offset,
                "start": starts.get(key),
                "end": end,
                "lag": lags.get(key),
                "behind_ms": age,
                "member": None if reader is None else reader.row["member"],
                "client": None if reader is None else reader.row["client"],
                "host": None if reader is None else reader.row["host"],
            }
        )
    if group.kind == SHARE:
        # A partition of a share group is read by several members.
        rows = [
            {name: value for name, value in row.items() if name not in ("member", "client", "host")} for row in rows
        ]
    return rows


def _that_are_led(client: Client, keys: set[Partition]) -> list[Partition]:
    """The partitions among `keys` that still exist and have a leader, which is asked for their offsets."""
    topics = client.topics(sorted({topic for topic, _ in keys})) if keys else {}
    return [
        (name, each.partition_index)
        for name, topic in sorted(topics.items())
        for each in sorted(topic.partitions, key=lambda partition: partition.partition_index)
        if each.leader_id >= 0 and (name, each.partition_index) in keys
    ]
