"""The actions of `moldau elect`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from moldau.broker.cli.daily.client import Client, Partition
from moldau.broker.cli.daily.failures import raise_if_error, raise_joined_failures, refused
from moldau.broker.cli.daily.placement.named import Found, grouped_by_topic, named_partitions
from moldau.broker.cli.daily.session import Session
from moldau.broker.cli.daily.topic_changes import DRY_RUN_NOTE
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions

PREFERRED, UNCLEAN = 0, 1
SHOWN: Final = ("topic", "partition", "leader", "replicas", "in_sync")


def elect_preferred(session: Session) -> int:
    """Elect the preferred leaders of partitions (`elect preferred`)."""
    found = named_partitions(session.client, session.arguments.names)
    wanted = {key: each for key, each in found.items() if each.leader_id != each.replica_nodes[0]}
    if not found:
        session.output.say("there are no topics, or none that the user may describe")
        return 0
    if not wanted:
        session.output.say("each of these partitions is led by its preferred leader")
        return 0
    if session.arguments.dry_run:
        session.output.rows(_rows(wanted), SHOWN)
        session.note("Nothing was changed: it is done without --dry-run.")
        return 0
    return _elect(session, PREFERRED, list(wanted))


def elect_unclean(session: Session) -> int:
    """Elect leaders that may lack records (`elect unclean`), for partitions without a leader. Without `--execute` the
    partitions are only printed.
    """
    found = named_partitions(session.client, session.arguments.names)
    wanted = {key: each for key, each in found.items() if each.leader_id < 0}
    if not wanted:
        session.output.say("each of these partitions has a leader")
        return 0
    if not session.arguments.execute:
        session.output.rows(_rows(wanted), SHOWN)
        session.note(DRY_RUN_NOTE)
        return 0
    return _elect(session, UNCLEAN, list(wanted))


def _elect(session: Session, kind: int, keys: Sequence[Partition]) -> int:
    """Elect leaders, and print the partitions with their leaders. Raises `Failure` at the end if an election failed."""
    client = session.client
    request = ElectLeadersRequest(
        election_type=kind,
        topic_partitions=[
            TopicPartitions(topic=name, partitions=each) for name, each in grouped_by_topic(keys).items()
        ],
        timeout_ms=client.settings.request_timeout_ms,
    )
    reply = client.ask(request, ElectLeadersResponse)
    raise_if_error(reply.error_code, None, "the election")
    failures = [
        refused(each.error_code, each.error_message, f"partition {topic.topic}:{each.partition_id}")
        for topic in reply.replica_election_results
        for each in topic.partition_result
        if each.error_code not in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)
    ]
    session.output.rows(_rows(_named(client, keys)), SHOWN)
    raise_joined_failures(failures)
    return 0


def _named(client: Client, keys: Sequence[Partition]) -> Found:
    return named_partitions(
        client, [f"{name}:{','.join(map(str, each))}" for name, each in grouped_by_topic(keys).items()]
    )


def _rows(partitions: Found) -> list[dict[str, object]]:
    return [
        {
            "topic": name,
            "partition": index,
            "leader": each.leader_id if each.leader_id >= 0 else None,
            "replicas": list(each.replica_nodes),
            "in_sync": list(each.isr_nodes),
        }
        for (name, index), each in partitions.items()
    ]
