"""Members of groups of the kinds that have heartbeats, by the requests themselves; a classic one by confluent-kafka."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from moldau.broker.cli.daily.client import Client
from moldau.broker.cli.daily.settings import ClientProperties
from moldau.protocol.messages import (
    consumer_group_heartbeat,
    share_group_heartbeat,
    streams_group_heartbeat,
)
from moldau.tables.client.settings import parse_address

CONSUMER = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest
SHARE = share_group_heartbeat.ShareGroupHeartbeatRequest
STREAMS = streams_group_heartbeat.StreamsGroupHeartbeatRequest
MEMBER = "AAAAAAAAAAAAAAAAAAAAAQ"


def client_of(bootstrap: str, security: Mapping[str, str] | None = None) -> Client:
    """A client, which logs in with the properties of `security`."""
    properties = {"client.id": "member", **(security or {})}
    return Client(ClientProperties((parse_address(bootstrap),), properties, 30, "a test"))


def joins(kind: str, group: str, topic: str) -> Any:
    """The first heartbeat of a member."""
    if kind == "consumer":
        return CONSUMER(
            group_id=group,
            member_id=MEMBER,
            member_epoch=0,
            rebalance_timeout_ms=45_000,
            subscribed_topic_names=[topic],
            topic_partitions=[],
        )
    if kind == "share":
        return SHARE(group_id=group, member_id=MEMBER, member_epoch=0, subscribed_topic_names=[topic])
    subtopology = streams_group_heartbeat.Subtopology(subtopology_id="0", source_topics=[topic])
    return STREAMS(
        group_id=group,
        member_id=MEMBER,
        member_epoch=0,
        endpoint_information_epoch=0,
        rebalance_timeout_ms=45_000,
        topology=streams_group_heartbeat.Topology(epoch=0, subtopologies=[subtopology]),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        process_id="process",
        client_tags=[],
        shutdown_application=False,
    )


def leaves(kind: str, group: str) -> Any:
    if kind == "streams":
        return STREAMS(
            group_id=group,
            member_id=MEMBER,
            member_epoch=-1,
            endpoint_information_epoch=0,
            shutdown_application=False,
        )
    return {"consumer": CONSUMER, "share": SHARE}[kind](group_id=group, member_id=MEMBER, member_epoch=-1)


@contextmanager
def member(
    bootstrap: str, kind: str, group: str, topic: str, security: Mapping[str, str] | None = None
) -> Iterator[int]:
    """A member of a group, from its first heartbeat to its last. Yields its member epoch."""
    from moldau.protocol.schema import response_class_of

    with client_of(bootstrap, security) as client:

        def beat(request: Any) -> int:
            reply: Any = client.ask_coordinator(group, request, response_class_of(type(request)))
            client.check(reply.error_code, reply.error_message, f"the heartbeat of group {group}")
            return int(reply.member_epoch)

        yield client.retry("the first heartbeat", lambda: beat(joins(kind, group, topic)))
        client.retry("the last heartbeat", lambda: beat(leaves(kind, group)))


@contextmanager
def classic_member(bootstrap: str, group: str, topic: str, count: int) -> Iterator[None]:
    """A member that has read and committed at least `count` records."""
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": "classic",
            "client.id": "member",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    read = 0
    while read < count:
        read += len(consumer.consume(count, timeout=1))
    consumer.commit(asynchronous=False)
    yield
    consumer.close()
