"""The actions of `moldau group` that reset or delete offsets, or delete groups."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from typing import Final

from moldau.broker.cli.daily.client import EARLIEST, LATEST, Client, Partition, raise_if_transient
from moldau.broker.cli.daily.failures import (
    EXIT_DENIED,
    EXIT_UNKNOWN,
    Failure,
    WrongArguments,
    check_can_write,
    raise_joined_failures,
    raise_wrong_arguments,
    refused,
)
from moldau.broker.cli.daily.groups.listing import (
    CLASSIC,
    SHARE,
    Group,
    all_groups,
    at_coordinator,
    committed_offsets,
    known_groups,
    unknown_group,
)
from moldau.broker.cli.daily.placement.named import named_partitions
from moldau.broker.cli.daily.session import Session
from moldau.broker.cli.daily.times import is_offset, time_ms
from moldau.broker.cli.daily.topic_changes import DRY_RUN_NOTE
from moldau.broker.reasons.words import count_with_noun

RESET: Final = ("topic", "partition", "offset", "new_offset", "change")
EMPTY_STATES: Final = ("Empty", "Dead")
"""The states in which a group has no members."""


def reset(session: Session) -> int:
    """Reset the committed offsets of a group (`group reset`). Without `--execute` the new offsets are only printed."""
    given, client = session.arguments, session.client
    if given.to_file is not None:
        check_can_write("--to-file", given.to_file)
    groups = all_groups(client)
    group = groups.get(given.name)
    if group is None:
        missing = unknown_group(client, given.name, groups)
        if missing.status == EXIT_DENIED or (not given.topic and given.from_file is None):
            raise missing
        group = Group(given.name, CLASSIC, "Dead", "", -1)
        session.note(f"there is no group {given.name}: its offsets make it")
    if group.state not in EMPTY_STATES:
        raise Failure(f"group {group.name} is {group.state}: only a group without members is reset; stop them first")
    current = committed_offsets(client, group) if group.coordinator >= 0 else {}
    wanted = _wanted(session, current)
    starts, ends = (client.offsets(dict.fromkeys(wanted, which)) for which in (EARLIEST, LATEST))
    rows: list[dict[str, object]] = []
    target: dict[Partition, int] = {}
    for key, offset in sorted(wanted.items()):
        exact = starts[key] if offset == EARLIEST else ends[key] if offset == LATEST else offset
        target[key] = min(max(exact, starts[key]), ends[key])
        if target[key] != exact:
            session.note(f"{key[0]}-{key[1]}: offset {exact} is outside of {starts[key]} to {ends[key]}", "yellow")
        before = current.get(key)
        change = None if before is None else target[key] - before
        rows.append(
            {
                "group": group.name,
                "topic": key[0],
                "partition": key[1],
                "offset": before,
                "new_offset": target[key],
                "change": change,
            }
        )
    if given.execute:
        write = _alter_share if group.kind == SHARE else _commit
        at_coordinator(client, group.name, lambda: write(client, group.name, target))
    session.output.rows(rows, RESET)
    if given.to_file is not None:
        _write_file(given.to_file, target)
    if not given.execute:
        session.note(DRY_RUN_NOTE)
    return 0


def _wanted(session: Session, current: Mapping[Partition, int]) -> dict[Partition, int]:
    """The offset to which each partition is to be reset. `EARLIEST` and `LATEST` stand for the start and the end of a
    partition.
    """
    given, client = session.arguments, session.client
    if given.from_file is not None:
        if given.topic:
            raise_wrong_arguments("--from-file names the topics itself")
        read = _read_file(given.from_file)
        client.known_topics(topic for topic, _ in read)
        return read
    keys = sorted(named_partitions(client, given.topic) if given.topic else current)
    if not keys:
        raise Failure(f"group {given.name} has no offsets: --topic names what it gets", status=EXIT_UNKNOWN)
    if not given.topic:
        client.known_topics(topic for topic, _ in keys)
    if given.by is not None or given.to == "current":
        lacking = [key for key in keys if key not in current]
        if lacking:
            raise Failure(f"group {given.name} has no offset for {lacking[0][0]}-{lacking[0][1]}", status=EXIT_UNKNOWN)
        return {key: max(0, current[key] + (given.by or 0)) for key in keys}
    where: str = given.to
    if where in ("earliest", "latest"):
        return dict.fromkeys(keys, EARLIEST if where == "earliest" else LATEST)
    if is_offset(where):
        return dict.fromkeys(keys, int(where))
    moment = time_ms(where, "--to", session.now_ms(), "earliest, latest, current, an offset or ")
    found = client.offsets(dict.fromkeys(keys, moment))
    return {key: offset if offset >= 0 else LATEST for key, offset in found.items()}


def _read_file(file: str) -> dict[Partition, int]:
    """Read offsets from a file with lines of topic,partition,offset, as kafka-consumer-groups.sh takes them."""
    found: dict[Partition, int] = {}
    try:
        with open(file, encoding="utf-8", newline="") as text:
            for number, row in enumerate(csv.reader(text), 1):
                if not row:
                    continue
                try:
                    topic, partition, offset = row[-3:]
                    found[topic.strip(), int(partition)] = int(offset)
                except ValueError:
                    raise WrongArguments(
                        f"{file}, line {number}: it is not of the form topic,partition,offset"
                    ) from None
    except (OSError, UnicodeDecodeError) as problem:
        raise WrongArguments(f"{file} cannot be read: {getattr(problem, 'strerror', None) or problem}") from None
    if not found:
        raise WrongArguments(f"{file} has no line of the form topic,partition,offset")
    return found


def _write_file(file: str, offsets: Mapping[Partition, int]) -> None:
    try:
        with open(file, "w", encoding="utf-8", newline="") as text:
            csv.writer(text, lineterminator="\n").writerows(
                (topic, partition, offset) for (topic, partition), offset in sorted(offsets.items())
            )
    except OSError as problem:
        raise Failure(f"{file} cannot be written: {problem.strerror}") from None


def commit(client: Client, group: str, offsets: Mapping[Partition, int]) -> None:
    """Commit offsets for a group without members. Raises `Failure`."""
    at_coordinator(client, group, lambda: _commit(client, group, offsets))


def _commit(client: Client, group: str, offsets: Mapping[Partition, int]) -> None:
    from moldau.protocol.messages.offset_commit import (
        OffsetCommitRequest,
        OffsetCommitRequestPartition,
        OffsetCommitRequestTopic,
        OffsetCommitResponse,
    )

    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, partition), offset in offsets.items():
        wanted = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
        topics.setdefault(topic, []).append(wanted)
    request = OffsetCommitRequest(
        group_id=group,
        member_id="",
        topics=[OffsetCommitRequestTopic(name=name, partitions=each) for name, each in topics.items()],
    )
    for answer in client.ask_coordinator(group, request, OffsetCommitResponse, version=9).topics:
        for each in answer.partitions:
            client.check(each.error_code, None, f"group {group}, {answer.name}-{each.partition_index}")


def _alter_share(client: Client, group: str, offsets: Mapping[Partition, int]) -> None:
    from moldau.protocol.messages.alter_share_group_offsets import (
        AlterShareGroupOffsetsRequest,
        AlterShareGroupOffsetsRequestPartition,
        AlterShareGroupOffsetsRequestTopic,
        AlterShareGroupOffsetsResponse,
    )

    topics: dict[str, list[AlterShareGroupOffsetsRequestPartition]] = {}
    for (topic, partition), offset in offsets.items():
        wanted = AlterShareGroupOffsetsRequestPartition(partition_index=partition, start_offset=offset)
        topics.setdefault(topic, []).append(wanted)
    request = AlterShareGroupOffsetsRequest(
        group_id=group,
        topics=[AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=each) for name, each in topics.items()],
    )
    reply = client.ask_coordinator(group, request, AlterShareGroupOffsetsResponse)
    client.check(reply.error_code, reply.error_message, f"group {group}")
    for answer in reply.responses:
        for each in answer.partitions:
            what = f"group {group}, {answer.topic_name}-{each.partition_index}"
            client.check(each.error_code, each.error_message, what)


def delete(session: Session) -> int:
    """Delete groups (`group delete`). Without `--execute` they are only printed."""
    from moldau.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse

    client, output = session.client, session.output
    failures: list[Failure] = []
    for group in known_groups(client, session.arguments.names):
        if not session.arguments.execute:
            offsets = committed_offsets(client, group)
            told = count_with_noun(len(offsets), "partition")
            output.say(f"group {group.name} would be deleted: {group.kind}, {group.state}, offsets of {told}")
            output.object({"group": group.name, "deleted": False, "partitions": len(offsets), "state": group.state})
            continue

        def ask(name: str = group.name) -> DeleteGroupsResponse:
            reply = client.ask_coordinator(name, DeleteGroupsRequest(groups_names=[name]), DeleteGroupsResponse)
            raise_if_transient(reply.results[0].error_code, f"group {name}")
            return reply

        (result,) = at_coordinator(client, group.name, ask).results
        if result.error_code:
            failures.append(refused(result.error_code, result.error_message, f"group {group.name}"))
            continue
        output.say(f"group {group.name} is deleted")
        output.object({"group": group.name, "deleted": True})
    if not session.arguments.execute:
        session.note(DRY_RUN_NOTE)
    raise_joined_failures(failures)
    return 0


def delete_offsets(session: Session) -> int:
    """Delete committed offsets of a group (`group delete-offsets`). Without `--execute` they are only printed."""
    given, client = session.arguments, session.client
    (group,) = known_groups(client, [given.name])
    committed = committed_offsets(client, group)
    names = {each.partition(":")[0] for each in given.topic}
    chosen = named_partitions(client, given.topic)
    keys = [key for key in sorted(committed) if key in chosen]
    if not keys:
        raise Failure(f"group {group.name} has no offsets for {', '.join(sorted(names))}", status=EXIT_UNKNOWN)
    if group.kind == SHARE and any(":" in each for each in given.topic):
        raise_wrong_arguments("a share group loses its offsets by topic, not by partition")
    if given.execute:
        forget = _delete_share if group.kind == SHARE else _delete
        at_coordinator(client, group.name, lambda: forget(client, group.name, keys))
    rows = [
        {"group": group.name, "topic": key[0], "partition": key[1], "offset": committed[key], "deleted": given.execute}
        for key in keys
    ]
    session.output.rows(rows, ("topic", "partition", "offset", "deleted"))
    if not given.execute:
        session.note(DRY_RUN_NOTE)
    return 0


def _delete(client: Client, group: str, keys: list[Partition]) -> None:
    from moldau.protocol.messages.offset_delete import (
        OffsetDeleteRequest,
        OffsetDeleteRequestPartition,
        OffsetDeleteRequestTopic,
        OffsetDeleteResponse,
    )

    topics: dict[str, list[OffsetDeleteRequestPartition]] = {}
    for topic, partition in keys:
        topics.setdefault(topic, []).append(OffsetDeleteRequestPartition(partition_index=partition))
    request = OffsetDeleteRequest(
        group_id=group, topics=[OffsetDeleteRequestTopic(name=name, partitions=each) for name, each in topics.items()]
    )
    reply = client.ask_coordinator(group, request, OffsetDeleteResponse)
    client.check(reply.error_code, None, f"group {group}")
    for answer in reply.topics:
        for each in answer.partitions:
            client.check(each.error_code, None, f"group {group}, {answer.name}-{each.partition_index}")


def _delete_share(client: Client, group: str, keys: list[Partition]) -> None:
    from moldau.protocol.messages.delete_share_group_offsets import (
        DeleteShareGroupOffsetsRequest,
        DeleteShareGroupOffsetsRequestTopic,
        DeleteShareGroupOffsetsResponse,
    )

    names = sorted({topic for topic, _ in keys})
    request = DeleteShareGroupOffsetsRequest(
        group_id=group, topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in names]
    )
    reply = client.ask_coordinator(group, request, DeleteShareGroupOffsetsResponse)
    client.check(reply.error_code, reply.error_message, f"group {group}")
    for each in reply.responses:
        client.check(each.error_code, each.error_message, f"group {group}, topic {each.topic_name}")
