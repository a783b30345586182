"""Long requests while permissions and topics change between their slices.

A slow processor makes virtual time pass at each callback of the node, so that the requests of an administrator are
handled between two slices of a long request. The rules: each element is answered exactly once, an answer is one that
was right at some moment of the request, and the audit log has one line for all slices, which counts what was denied.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from random import Random
from typing import Any, Final, NamedTuple

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from moldau.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from moldau.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.protocol.schema import ZERO_UUID
from moldau.security.access import AclOperation as Op
from moldau.security.access import ResourceKind as Kind
from moldau.security.acl.bindings import PatternType
from moldau.testing.simulation.life import BlockingTimeMeter
from tests.simulation.test_access import ALICE, AUTHORIZER, acl, connect_as, permit, remove_all
from tests.support.node import Client, Node, serve_and

CALLBACK_NS: Final = 1_000_000
PAUSE_S: Final = 0.02
"""At most, between two changes: of the order of a long request."""
REQUESTS_MAX: Final = 40
TOPICS: Final = 12
PREFIXES: Final = ("kept-", "moved-", "never-")
"""Topics that the client may always describe and read, those whose permission comes and goes, and those of others."""
ELEMENTS: Final = 3_000
"""In each request: more than five slices of the most parts."""
TOPIC_TYPE: Final = 2
DENIED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
UNKNOWN: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
NONE: Final = ErrorCode.NONE


class SlowProcessor:
    """Blocks the host for `CALLBACK_NS` after each of its callbacks, besides what the disk takes."""

    def __init__(self, disk: BlockingTimeMeter) -> None:
        self._disk = disk

    @property
    def cost_ns(self) -> int:
        return self._disk.cost_ns + CALLBACK_NS

    def take_cost_ns(self) -> int:
        return self._disk.take_cost_ns() + CALLBACK_NS


class Api(NamedTuple):
    """A request about many topics, and what its response says of each."""

    request: Callable[[list[str]], object]
    version: int
    answers: Callable[[Any], Iterable[tuple[str, int]]]


def metadata(names: list[str]) -> object:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False)


def list_offsets(names: list[str]) -> object:
    return ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsTopic(name=name, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
            for name in names
        ],
    )


def describe_configs(names: list[str]) -> object:
    asked = [
        DescribeConfigsResource(
            resource_type=TOPIC_TYPE, resource_name=name, configuration_keys=[f"key-{place}", "retention.ms"]
        )
        for place, name in enumerate(names)
    ]
    return DescribeConfigsRequest(resources=asked)


def offsets_of(reply: Any) -> Iterator[tuple[str, int]]:
    for topic in reply.topics:
        for partition in topic.partitions:
            yield topic.name, partition.error_code


APIS: Final = {
    "Metadata": Api(metadata, 12, lambda reply: [(each.name, each.error_code) for each in reply.topics]),
    "ListOffsets": Api(list_offsets, 7, offsets_of),
    "DescribeConfigs": Api(
        describe_configs, 4, lambda reply: [(each.resource_name, each.error_code) for each in reply.results]
    ),
}


class Permissions:
    """What the client may do with the topics whose permission moves, and with those that come and go."""

    def __init__(self) -> None:
        self._seen: list[set[ErrorCode]] = []
        """For each request under way: the answers that were right at some moment of it."""
        self._now = {DENIED}

    def begin(self) -> set[ErrorCode]:
        self._seen.append(set(self._now))
        return self._seen[-1]

    def may_be(self, *answers: ErrorCode) -> None:
        """From now on one of these is right, for example while a change is under way."""
        self._now = set(answers)
        for each in self._seen:
            each |= self._now


async def administrate(admin: Client, permissions: Permissions, random: Random) -> None:
    """Grant and withdraw the permission, and delete and create the topics, for ever."""
    everything = acl(Op.ALL, Kind.TOPIC, PREFIXES[1], pattern=PatternType.PREFIXED)
    while True:
        permissions.may_be(NONE, DENIED)
        await permit(admin, everything)
        permissions.may_be(NONE)
        await asyncio.sleep(random.random() * PAUSE_S)
        if random.random() < 0.3:
            permissions.may_be(NONE, UNKNOWN)
            name = f"{PREFIXES[1]}{random.randrange(TOPICS)}"
            await admin.ask(
                DeleteTopicsRequest(topics=[DeleteTopicState(name=name, topic_id=ZERO_UUID)], timeout_ms=1000), 6
            )
            await admin.create(name)
            permissions.may_be(NONE)
        permissions.may_be(NONE, DENIED)
        await remove_all(admin, PREFIXES[1])
        permissions.may_be(DENIED)
        await asyncio.sleep(random.random() * PAUSE_S)


def wrong(answers: Iterable[tuple[str, int]], moved: set[ErrorCode]) -> Iterator[str]:
    """The answers that were right at no moment of the request."""
    allowed = {PREFIXES[0]: {NONE}, PREFIXES[1]: moved, PREFIXES[2]: {DENIED}}
    for name, code in answers:
        prefix, _, index = name.partition("-")
        right = allowed[f"{prefix}-"]
        if int(index) >= TOPICS:
            right = {UNKNOWN if each is NONE else each for each in right}
        if code not in right:
            yield f"{name}: {ErrorCode(code).name}"


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", APIS)
def test_each_element_is_answered_once_and_as_it_was_at_some_moment(
    name: str, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    api, random = APIS[name], Random(f"{seed}/{name}")
    mixed: Counter[bool] = Counter()

    async def story(node: Node) -> None:
        admin, other = await node.connect(), await node.connect()
        for prefix in PREFIXES:
            for index in range(TOPICS):
                await admin.create(f"{prefix}{index}")
        await permit(other, acl(Op.ALL, Kind.TOPIC, PREFIXES[0], pattern=PatternType.PREFIXED))
        alice, permissions = await connect_as(node, ALICE), Permissions()
        assert node.host.life is not None
        node.host.life.meter = SlowProcessor(node.host.life.meter)
        changing = asyncio.get_running_loop().create_task(administrate(admin, permissions, random))
        asked = [f"{prefix}{index}" for prefix in PREFIXES for index in range(ELEMENTS // len(PREFIXES))]
        for _ in range(REQUESTS_MAX):
            random.shuffle(asked)
            moved = permissions.begin()
            caplog.clear()
            answers = [*api.answers(await alice.ask(api.request(asked), api.version))]
            assert [*wrong(answers, moved)] == []
            assert Counter(name for name, _ in answers) == Counter(asked)
            (line,) = (json.loads(each.message) for each in caplog.records)
            assert line["count"] == sum(code == DENIED for _, code in answers)
            told = {code for name, code in answers if name.startswith(PREFIXES[1])} - {UNKNOWN}
            mixed[len(told) > 1] += 1
            if mixed[True] > 1 and mixed.total() > 4:
                break
        assert not changing.done()
        changing.cancel()

    with caplog.at_level(logging.INFO, "moldau.audit"):
        serve_and(story, seed=seed, **AUTHORIZER)
    assert mixed[True] > 1, "no request saw a change between two of its slices"
