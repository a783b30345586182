"""The actions of `moldau reassign`."""

from __future__ import annotations

import json
import operator
import time
from collections.abc import Mapping, Sequence
from typing import Final

from moldau.broker.cli.daily.client import Client, Partition
from moldau.broker.cli.daily.failures import (
    Failure,
    WrongArguments,
    raise_if_error,
    raise_joined_failures,
    raise_wrong_arguments,
    refused,
    unknown_failure,
)
from moldau.broker.cli.daily.placement.named import grouped_by_topic, named_partitions
from moldau.broker.cli.daily.session import Session
from moldau.broker.cli.daily.topic_changes import DRY_RUN_NOTE
from moldau.broker.cli.invocation import reason_of
from moldau.broker.reasons.words import count_with_noun
from moldau.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from moldau.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
    OngoingPartitionReassignment,
)

SHOWN: Final = ("topic", "partition", "replicas", "new_replicas")
ONGOING: Final = ("topic", "partition", "replicas", "adding", "removing")
LOOK_S: Final = 1.0
"""The time (s) between two requests for the progress of the moves."""
Plan = Mapping[Partition, Sequence[int] | None]
"""The new replicas of each partition, the preferred leader first. None cancels the partition's move."""


def list_moves(session: Session) -> int:
    """List the moves in progress (`reassign list`)."""
    keys = list(named_partitions(session.client, session.arguments.names)) if session.arguments.names else None
    rows = [
        {
            "topic": key[0],
            "partition": key[1],
            "replicas": list(each.replicas),
            "adding": list(each.adding_replicas),
            "removing": list(each.removing_replicas),
        }
        for key, each in sorted(moves_of(session.client, keys).items())
    ]
    session.output.rows(rows, ONGOING, empty="no replica is moving")
    return 0


def moves_of(client: Client, keys: Sequence[Partition] | None) -> dict[Partition, OngoingPartitionReassignment]:
    """The reassignments that are in progress, of the partitions in `keys`, or of all partitions. Raises `Failure`."""
    topics = None
    if keys is not None:
        topics = [
            ListPartitionReassignmentsTopics(name=name, partition_indexes=indexes)
            for name, indexes in grouped_by_topic(keys).items()
        ]
    request = ListPartitionReassignmentsRequest(timeout_ms=client.settings.request_timeout_ms, topics=topics)
    reply = client.ask(request, ListPartitionReassignmentsResponse)
    client.check(reply.error_code, reply.error_message, "the moves")
    return {(topic.name, each.partition_index): each for topic in reply.topics for each in topic.partitions}


def move(session: Session) -> int:
    """Move replicas to other brokers (`reassign move`). Without `--execute` the plan is only printed."""
    given, client = session.arguments, session.client
    plan = None if given.from_file is None else plan_of_file(given.from_file)
    if plan is not None:
        if given.names or given.brokers or given.replication_factor is not None:
            raise_wrong_arguments("--from-file has topics, brokers and replicas: leave out the others")
        found = named_partitions(client, [f"{name}:{index}" for name, index in plan]) if plan else {}
        brokers = list(dict.fromkeys(broker for replicas in plan.values() for broker in replicas))
    else:
        if not given.names or not given.brokers:
            raise_wrong_arguments("name topics and --brokers, or give --from-file")
        brokers = ids_of(given.brokers)
        found = named_partitions(client, given.names)
    for each in brokers:
        if each not in client.brokers:
            raise unknown_failure("broker", str(each), map(str, client.brokers))
    moves = moves_of(client, list(found)) if found else {}
    targets = {
        key: [each for each in now.replica_nodes if key not in moves or each not in moves[key].removing_replicas]
        for key, now in found.items()
    }
    if plan is None:
        plan = spread_replicas(targets, brokers, given.replication_factor)
    changes: Plan = {key: wanted for key, wanted in plan.items() if targets[key] != wanted}
    rows = [
        {
            "topic": name,
            "partition": index,
            "replicas": list(found[name, index].replica_nodes),
            "new_replicas": wanted,
        }
        for (name, index), wanted in sorted(changes.items())
    ]
    failures = _altered(client, changes) if changes and given.execute else []
    under_way = "these moves have begun already: 'moldau reassign list' shows them"
    session.output.rows(rows, SHOWN, empty=under_way if moves else "all replicas are there already")
    raise_joined_failures(failures)
    if changes and not given.execute:
        session.note(DRY_RUN_NOTE)
    elif changes:
        session.output.say(f"{count_with_noun(len(changes), 'partition')}: the move has begun")
        if given.wait:
            _wait(session, list(changes))
    return 0


def cancel(session: Session) -> int:
    """Cancel moves (`reassign cancel`). Without `--execute` they are only printed."""
    given, client = session.arguments, session.client
    keys = list(named_partitions(client, given.names)) if given.names else None
    moves = moves_of(client, keys)
    rows = [
        {
            "topic": name,
            "partition": index,
            "replicas": list(each.replicas),
            "new_replicas": [broker for broker in each.replicas if broker not in each.adding_replicas],
        }
        for (name, index), each in sorted(moves.items())
    ]
    failures = _altered(client, dict.fromkeys(moves)) if moves and given.execute else []
    session.output.rows(rows, SHOWN, empty="no replica is moving")
    raise_joined_failures(failures)
    if moves and not given.execute:
        session.note(DRY_RUN_NOTE)
    return 0


def _altered(client: Client, plan: Plan) -> list[Failure]:
    """Begin or cancel the moves of a plan. Returns a failure for each partition that the cluster refuses. Raises
    `Failure` if it refuses the request.
    """
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=client.settings.request_timeout_ms,
        topics=[
            ReassignableTopic(
                name=name,
                partitions=[_reassigned(index, plan[name, index]) for index in indexes],
            )
            for name, indexes in grouped_by_topic(sorted(plan)).items()
        ],
    )
    reply = client.ask(request, AlterPartitionReassignmentsResponse)
    raise_if_error(reply.error_code, reply.error_message, "the move")
    return [
        refused(each.error_code, each.error_message, f"partition {topic.name}:{each.partition_index}")
        for topic in reply.responses
        for each in topic.partitions
        if each.error_code
    ]


def _reassigned(index: int, replicas: Sequence[int] | None) -> ReassignablePartition:
    return ReassignablePartition(partition_index=index, replicas=None if replicas is None else list(replicas))


def _wait(session: Session, keys: Sequence[Partition]) -> None:
    """Wait until all moves are done, and print the progress. Ctrl-C ends the waiting, but not the moves."""
    client, told = session.client, -1
    try:
        while True:
            done = len(keys) - len(client.retry("the moves", lambda: moves_of(client, keys)))
            if done != told:
                session.note(f"{done:,} of {count_with_noun(len(keys), 'partition')} moved")
                told = done
            if done == len(keys):
                return
            time.sleep(LOOK_S)
    except KeyboardInterrupt:
        session.note("the moves go on: 'moldau reassign list' shows them")
        raise


def ids_of(text: str) -> list[int]:
    """The ids of brokers in a text such as 1,2,3. Raises `WrongArguments`."""
    try:
        return list(dict.fromkeys(int(each) for each in text.split(",")))
    except ValueError:
        raise WrongArguments(f"--brokers {text} are not ids such as 1,2,3") from None


def spread_replicas(
    replicas: Mapping[Partition, Sequence[int]], brokers: Sequence[int], factor: int | None
) -> dict[Partition, list[int]]:
    """Assign the replicas of each partition to `brokers`: `factor` replicas, or as many as it has now if that is None.
    Returns the new replicas by partition, the preferred leader first. Raises `WrongArguments`.

    Replicas that are on one of these brokers stay there; the others go to the brokers with the fewest replicas. The
    preferred leader is the broker that is preferred leader of the fewest partitions.
    """
    counts = dict.fromkeys(brokers, 0)
    leaders = dict.fromkeys(brokers, 0)
    plan = {}
    for key, now in replicas.items():
        wanted = len(now) if factor is None else factor
        if not 0 < wanted <= len(brokers):
            raise WrongArguments(
                f"{key[0]}:{key[1]} cannot have {wanted} replicas on {count_with_noun(len(brokers), 'broker')}"
            )
        kept = sorted((each for each in now if each in counts), key=counts.__getitem__)[:wanted]
        rest = sorted((each for each in brokers if each not in kept), key=counts.__getitem__)
        chosen = [*kept, *rest[: wanted - len(kept)]]
        chosen.sort(key=lambda broker: now.index(broker) if broker in now else len(now))
        first = min(chosen, key=lambda broker: leaders[broker])
        if now and now[0] in chosen and leaders[now[0]] == leaders[first]:
            first = now[0]
        chosen.remove(first)
        plan[key] = [first, *chosen]
        leaders[first] += 1
        for each in plan[key]:
            counts[each] += 1
    return plan


def plan_of_file(path: str) -> dict[Partition, list[int]]:
    """Read a plan from a JSON file of kafka-reassign-partitions.sh. Raises `WrongArguments`."""
    try:
        with open(path, encoding="utf-8") as file:
            told = json.load(file)
        plan = {
            (str(each["topic"]), operator.index(each["partition"])): [*map(operator.index, each["replicas"])]
            for each in told["partitions"]
        }
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise WrongArguments(
            f"--from-file {path} is not a plan of kafka-reassign-partitions.sh: {reason_of(problem)}"
        ) from None
    if len(plan) < len(told["partitions"]):
        raise WrongArguments(f"--from-file {path} names a partition twice")
    for (topic, partition), replicas in plan.items():
        if not replicas or len(set(replicas)) < len(replicas):
            reason = "names a broker twice" if replicas else "has no replicas"
            raise WrongArguments(f"--from-file {path}: {topic}:{partition} {reason}")
    return plan
