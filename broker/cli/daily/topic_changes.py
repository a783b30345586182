"""The actions of `moldau topic` that create, alter and delete topics, and delete records."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from moldau.broker.cli.daily.client import EARLIEST, LATEST, Client, Partition
from moldau.broker.cli.daily.configs.access import TOPIC, changes_of, check_removed, pairs_of, raise_if_setting_refused
from moldau.broker.cli.daily.configs.access import alter as alter_config
from moldau.broker.cli.daily.failures import (
    Failure,
    WrongArguments,
    no_partition,
    raise_if_error,
    raise_joined_failures,
    raise_wrong_arguments,
    refused,
)
from moldau.broker.cli.daily.session import Session
from moldau.broker.cli.daily.times import is_offset, time_ms
from moldau.broker.reasons.words import count_with_noun
from moldau.protocol.errors import ErrorCode
from moldau.tables.client.cluster import TransientError

if TYPE_CHECKING:
    from moldau.protocol.messages.create_topics import CreatableReplicaAssignment

DELETED: Final = ("topic", "partition", "start", "new_start", "deleted")
DRY_RUN_NOTE: Final = "Nothing was changed: --execute does it."


def create(session: Session) -> int:
    """Create topics (`topic create`), all in one request."""
    from moldau.protocol.messages.create_topics import (
        CreatableTopic,
        CreatableTopicConfig,
        CreateTopicsRequest,
        CreateTopicsResponse,
    )

    given = session.arguments
    settings = pairs_of(given.settings, "--config")
    assignments = _assignments(given.replica_assignment)
    if assignments and (given.partitions is not None or given.replication_factor is not None):
        raise_wrong_arguments(
            "--replica-assignment says how many partitions and replicas there are: leave out the other two"
        )
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=name,
                num_partitions=-1 if given.partitions is None else given.partitions,
                replication_factor=-1 if given.replication_factor is None else given.replication_factor,
                assignments=assignments,
                configs=[CreatableTopicConfig(name=key, value=value) for key, value in settings.items()],
            )
            for name in dict.fromkeys(given.names)
        ],
        timeout_ms=session.client.settings.request_timeout_ms,
        validate_only=given.dry_run,
    )
    reply = session.client.ask(request, CreateTopicsResponse)
    failures: list[Failure] = []
    for each in reply.topics:
        if each.error_code == ErrorCode.TOPIC_ALREADY_EXISTS and given.if_not_exists:
            session.output.say(f"topic {each.name} is there already")
            session.output.object({"topic": each.name, "created": False})
            continue
        try:
            raise_if_setting_refused(each.error_code, each.error_message, f"topic {each.name}")
        except Failure as failed:
            failures.append(failed)
            continue
        row = {
            "topic": each.name,
            "created": not given.dry_run,
            "partitions": each.num_partitions,
            "replicas": each.replication_factor,
        }
        session.output.object(row)
        counts = ""
        if each.num_partitions > 0:
            counts = f": {count_with_noun(each.num_partitions, 'partition')},"
            counts += f" {count_with_noun(each.replication_factor, 'replica')} each"
        verb = "can be made" if given.dry_run else "is made"
        session.output.say(f"topic {each.name} {verb}{counts}")
    raise_joined_failures(failures)
    return 0


def _assignments(text: str | None) -> list[CreatableReplicaAssignment]:
    from moldau.protocol.messages.create_topics import CreatableReplicaAssignment

    try:
        return [
            CreatableReplicaAssignment(partition_index=index, broker_ids=[int(each) for each in part.split(":")])
            for index, part in enumerate(text.split(",") if text else ())
        ]
    except ValueError:
        raise WrongArguments(f"--replica-assignment {text} is not of the form 1:2,2:3,3:1") from None


def alter(session: Session) -> int:
    """Change the number of partitions of topics, then their settings (`topic alter`)."""
    given = session.arguments
    settings = pairs_of(given.settings, "--set")
    if given.partitions is None and not settings and not given.unset:
        raise_wrong_arguments("give --partitions, --set or --unset")
    topics = session.client.known_topics(given.names)
    verb = "can be" if given.dry_run else "is"
    for name in topics:
        done: list[str] = []
        changes = changes_of(settings, given.unset)
        check_removed(session.client, (TOPIC, name), f"topic {name}", changes)
        if given.partitions is not None:
            _add_partitions(session.client, name, given.partitions, validate_only=given.dry_run)
            done.append(count_with_noun(given.partitions, "partition"))
        if changes:
            alter_config(session.client, (TOPIC, name), f"topic {name}", changes, validate_only=given.dry_run)
            done += [f"{key}={value}" for key, value in settings.items()]
            done += [f"{key} as by default" for key in given.unset]
        session.output.say(f"topic {name} {verb} altered: {', '.join(done)}")
        row = {"topic": name, "altered": not given.dry_run, "set": settings, "unset": given.unset}
        session.output.object(row if given.partitions is None else {**row, "partitions": given.partitions})
    return 0


def _add_partitions(client: Client, name: str, count: int, *, validate_only: bool) -> None:
    from moldau.protocol.messages.create_partitions import (
        CreatePartitionsRequest,
        CreatePartitionsResponse,
        CreatePartitionsTopic,
    )

    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=name, count=count, assignments=None)],
        timeout_ms=client.settings.request_timeout_ms,
        validate_only=validate_only,
    )
    for each in client.ask(request, CreatePartitionsResponse).results:
        raise_if_error(each.error_code, each.error_message, f"topic {name}")


def delete(session: Session) -> int:
    """Delete topics (`topic delete`). Without `--execute` it only prints what would be lost."""
    given, client = session.arguments, session.client
    names = list(dict.fromkeys(given.names))
    if given.if_exists:
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        names = [name for name, each in client.topics(names).items() if each.error_code != unknown]
    topics = client.known_topics(names)
    if not given.execute:
        counts = _record_counts(client, [(n, p.partition_index) for n, each in topics.items() for p in each.partitions])
        for name, topic in topics.items():
            records = counts.get(name)
            told = "" if records is None else f" and {count_with_noun(records, 'record')}"
            session.output.say(
                f"topic {name} would be deleted: {count_with_noun(len(topic.partitions), 'partition')}{told}"
            )
            session.output.object(
                {"topic": name, "deleted": False, "partitions": len(topic.partitions), "records": records}
            )
        session.note(DRY_RUN_NOTE)
        return 0
    from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState

    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name, topic_id=bytes(16)) for name in names],
        topic_names=names,
        timeout_ms=client.settings.request_timeout_ms,
    )
    failures: list[Failure] = []
    for each in client.ask(request, DeleteTopicsResponse).responses if names else ():
        if each.error_code:
            failures.append(refused(each.error_code, each.error_message, f"topic {each.name}"))
            continue
        session.output.say(f"topic {each.name} is deleted")
        session.output.object({"topic": each.name, "deleted": True})
    raise_joined_failures(failures)
    return 0


def _record_counts(client: Client, keys: Iterable[Partition]) -> dict[str, int]:
    """The number of records of each topic: the sum of end offset minus log start offset over its partitions. A
    partition without a leader is left out.
    """
    led = [key for key in keys if _has_leader(client, key)]
    starts, ends = (client.offsets(dict.fromkeys(led, which)) for which in (EARLIEST, LATEST))
    counts: dict[str, int] = {}
    for key in led:
        counts[key[0]] = counts.get(key[0], 0) + ends[key] - starts[key]
    return counts


def _has_leader(client: Client, key: Partition) -> bool:
    try:
        client.leader_of(key)
    except TransientError:
        return False
    return True


def delete_records(session: Session) -> int:
    """Delete the records before an offset of each partition (`topic delete-records`). Without `--execute` they are only
    printed.
    """
    client = session.client
    before = _before(session)
    keys = sorted(before)
    starts, ends = (client.offsets(dict.fromkeys(keys, which)) for which in (EARLIEST, LATEST))
    rows: list[dict[str, object]] = []
    for key in keys:
        target = ends[key] if before[key] == LATEST else before[key]
        if target > ends[key]:
            raise Failure(f"{key[0]}-{key[1]}: offset {target} is past the end, which is {ends[key]}")
        reached = max(target, starts[key])
        rows.append(
            {
                "topic": key[0],
                "partition": key[1],
                "start": starts[key],
                "new_start": reached,
                "deleted": reached - starts[key],
            }
        )
    if session.arguments.execute:
        # A request for the end would also delete the records that were written meanwhile.
        targets = {key: before[key] if before[key] != LATEST else ends[key] for key in keys}
        moved = client.retry("delete-records", lambda: _delete_before(client, targets))
        rows = [
            {**row, "new_start": moved[key], "deleted": moved[key] - starts[key]}
            for key, row in zip(keys, rows, strict=True)
        ]
    session.output.rows(rows, DELETED)
    if not session.arguments.execute:
        session.note(DRY_RUN_NOTE)
    return 0


def _before(session: Session) -> dict[Partition, int]:
    """For each partition, the offset before which records are to be deleted."""
    given, client = session.arguments, session.client
    if given.offset_json_file is not None:
        if given.names or given.before or given.partition:
            raise_wrong_arguments("--offset-json-file names the topics, partitions and offsets itself")
        before = offsets_of_file(given.offset_json_file)
        client.known_topics(topic for topic, _ in before)
        return before
    if not given.names or given.before is None:
        raise_wrong_arguments("give the name of a topic and --before, or --offset-json-file")
    keys: list[Partition] = []
    for name, topic in client.known_topics(given.names).items():
        there = sorted(each.partition_index for each in topic.partitions)
        for number in given.partition or ():
            if number not in there:
                raise no_partition(name, number, len(there))
        keys += [(name, number) for number in there if not given.partition or number in given.partition]
    if given.before == "latest":
        return dict.fromkeys(keys, LATEST)
    if is_offset(given.before):
        return dict.fromkeys(keys, int(given.before))
    moment = time_ms(given.before, "--before", session.now_ms(), "an offset, latest or ")
    found = client.offsets(dict.fromkeys(keys, moment))
    return {key: offset if offset >= 0 else LATEST for key, offset in found.items()}


def offsets_of_file(file: str) -> dict[Partition, int]:
    """Read partitions and offsets from a JSON file of kafka-delete-records.sh. Raises `WrongArguments`."""
    try:
        with open(file, encoding="utf-8") as text:
            found = json.load(text)["partitions"]
        return {(str(each["topic"]), int(each["partition"])): int(each["offset"]) for each in found}
    except OSError as problem:
        raise WrongArguments(f"{file} cannot be read: {problem.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise WrongArguments(
            f'{file} is not of the form {{"partitions": [{{"topic": "orders", "partition": 0, "offset": 5}}]}}'
        ) from None


def _delete_before(client: Client, before: dict[Partition, int]) -> dict[Partition, int]:
    """Delete the records before the given offset of each partition, at the leaders. Returns the new log start
    offsets.
    """
    from moldau.protocol.messages.delete_records import (
        DeleteRecordsPartition,
        DeleteRecordsRequest,
        DeleteRecordsResponse,
        DeleteRecordsTopic,
    )

    reached: dict[Partition, int] = {}
    for leader, keys in client.grouped_by_leader(before).items():
        topics: dict[str, list[DeleteRecordsPartition]] = {}
        for key in keys:
            wanted = DeleteRecordsPartition(partition_index=key[1], offset=before[key])
            topics.setdefault(key[0], []).append(wanted)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=name, partitions=each) for name, each in topics.items()],
            timeout_ms=client.settings.request_timeout_ms,
        )
        for answer in client.ask_broker(leader, request, DeleteRecordsResponse).topics:
            for each in answer.partitions:
                client.check(each.error_code, None, f"{answer.name}-{each.partition_index}")
                reached[answer.name, each.partition_index] = each.low_watermark
    return reached
