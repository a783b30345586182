"""IncrementalAlterConfigs of what a node decides itself: answers as Apache Kafka 4.3.1 was seen to give them."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from moldau.broker.config.log_levels import LOGGERS
from moldau.protocol.messages import alter_configs as altering
from moldau.protocol.messages import describe_configs as describing
from moldau.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.support.node import Client, Node, serve_and

SET, DELETE, APPEND, SUBTRACT = range(4)
TOPIC, BROKER, LOGGER = 2, 4, 8
QUORUM = "moldau.quorum"
LONG = "9" * 5_000
THROTTLED = "leader.replication.throttled.replicas"
LEVELS = "Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN"


class Asked(NamedTuple):
    kind: int
    name: str
    changes: list[tuple[str, int, str | None]]


@pytest.fixture(autouse=True)
def levels_are_put_back() -> Iterator[None]:
    before = {name: logging.getLogger(name).level for name in LOGGERS}
    yield
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


async def alter(client: Client, *asked: Asked, validate_only: bool = False) -> list[tuple[int, str | None]]:
    resources = [
        AlterConfigsResource(
            resource_type=each.kind,
            resource_name=each.name,
            configs=[AlterableConfig(name=name, config_operation=op, value=value) for name, op, value in each.changes],
        )
        for each in asked
    ]
    reply = await client.ask(IncrementalAlterConfigsRequest(resources=resources, validate_only=validate_only), 1)
    assert [(each.resource_type, each.resource_name) for each in reply.responses] == [each[:2] for each in asked]
    return [(each.error_code, each.error_message) for each in reply.responses]


async def level_of(client: Client, name: str) -> str | None:
    resource = describing.DescribeConfigsResource(resource_type=LOGGER, resource_name="1", configuration_keys=[name])
    reply = await client.ask(describing.DescribeConfigsRequest(resources=[resource], include_synonyms=True), 4)
    (config,) = reply.results[0].configs
    assert (config.config_source, config.config_type, config.synonyms) == (6, 0, [])
    value: str | None = config.value
    return value


def test_a_level_is_set_shown_and_given_up() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        assert await alter(client, Asked(LOGGER, "1", [("root", SET, "WARN")])) == [(0, None)]
        for word in ("TRACE", "DEBUG", "INFO", "ERROR", "FATAL"):
            assert await alter(client, Asked(LOGGER, "1", [(QUORUM, SET, word)])) == [(0, None)]
            assert await level_of(client, QUORUM) == word
        assert await alter(client, Asked(LOGGER, "+01", [(QUORUM, DELETE, None)])) == [(0, None)]
        assert await level_of(client, QUORUM) == "WARN"
        assert await alter(client, Asked(LOGGER, "1", [(QUORUM, SET, "DEBUG")]), validate_only=True) == [(0, None)]
        assert await level_of(client, QUORUM) == "WARN"

    serve_and(story)


@pytest.mark.parametrize(
    ("name", "changes", "error", "message"),
    [
        ("1", [("no.such", SET, "INFO")], 40, "Logger no.such does not exist!"),
        ("1", [(QUORUM, SET, "DEBUG"), ("no.such", DELETE, None)], 40, "Logger no.such does not exist!"),
        (
            "1",
            [(QUORUM, SET, "debug")],
            40,
            f"Cannot set the log level of {QUORUM} to debug as it is not a supported log level. {LEVELS}",
        ),
        ("1", [(QUORUM, SET, None)], 42, f"Null value not supported for : {QUORUM}"),
        ("1", [(QUORUM, SET, "INFO"), (QUORUM, SET, "WARN")], 42, "Error due to duplicate config keys"),
        ("1", [(QUORUM, APPEND, "INFO")], 42, "APPEND operation is not allowed for the BROKER_LOGGER resource"),
        ("1", [(QUORUM, SUBTRACT, "INFO")], 42, "SUBTRACT operation is not allowed for the BROKER_LOGGER resource"),
        ("1", [(QUORUM, 7, "INFO")], -1, None),
        ("1", [("root", DELETE, None)], 42, "Removing the log level of the root logger is not allowed"),
        ("", [(QUORUM, SET, "INFO")], 42, "Node id must be an integer, but it is: "),
        ("x", [(QUORUM, SET, "INFO")], 42, "Node id must be an integer, but it is: x"),
        ("9", [(QUORUM, SET, "INFO")], 42, "Unexpected node id. Expected 1, but received 9"),
        ("9" * 10, [(QUORUM, SET, "INFO")], 42, f"Node id must be an integer, but it is: {'9' * 10}"),
        ("9" * 5_000, [(QUORUM, SET, "INFO")], 42, f"Node id must be an integer, but it is: {'9' * 5_000}"),
    ],
)
def test_what_is_refused_changes_nothing(
    name: str, changes: list[tuple[str, int, str | None]], error: int, message: str | None
) -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        before = await level_of(client, QUORUM)
        assert await alter(client, Asked(LOGGER, name, changes)) == [(error, message)]
        assert await level_of(client, QUORUM) == before

    serve_and(story)


def test_answers_of_node_and_controller_keep_the_order_of_the_request() -> None:
    async def story(node: Node) -> None:
        client = await node.connect()
        assert await alter(
            client,
            Asked(BROKER, "1", [("log.retention.ms", SET, "60000")]),
            Asked(LOGGER, "1", [(QUORUM, SET, "ERROR")]),
            Asked(TOPIC, "nope", [("retention.ms", SET, "1")]),
            Asked(BROKER, "9", [("log.retention.ms", SET, "60000")]),
            Asked(BROKER, "x", [("log.retention.ms", SET, None)]),
        ) == [
            (0, None),
            (0, None),
            (3, "The topic 'nope' does not exist."),
            (42, "Unexpected broker id, expected 1, but received 9"),
            (42, "Null value not supported for : log.retention.ms"),
        ]
        assert await level_of(client, QUORUM) == "ERROR"

    serve_and(story)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("retention.bytes", LONG, f"Invalid value {LONG} for configuration retention.bytes: Not a number of type LONG"),
        (
            THROTTLED,
            f"{LONG}:1",
            f"Invalid value [{LONG}:1] for configuration {THROTTLED}: {THROTTLED} must be the literal '*' or a list of "
            "replicas in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],...",
        ),
    ],
)
def test_a_number_that_is_too_long_is_an_invalid_value(name: str, value: str, message: str) -> None:
    """Python refuses to convert it, so that no broker could apply it."""

    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t")
        assert await alter(client, Asked(TOPIC, "t", [(name, SET, value)])) == [(40, message)]

    serve_and(story)


def test_a_resource_named_twice_is_refused_twice() -> None:
    twice = (42, "Each resource must appear at most once.")

    async def story(node: Node) -> None:
        client = await node.connect()
        once = Asked(LOGGER, "1", [(QUORUM, SET, "ERROR")])
        assert await alter(client, once, once) == [twice] * 2
        for name in "tu":
            await client.create(name)
        t, u = (Asked(TOPIC, name, [("retention.ms", SET, "70000")]) for name in "tu")
        assert await alter(client, t, u, t) == [twice, (0, None), twice]
        other_broker = Asked(BROKER, "9", [("log.retention.ms", SET, "70000")])
        assert await alter(client, other_broker, other_broker) == [twice] * 2
        # Apache Kafka 4.3.1 differs.
        replaced = [
            altering.AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=[])
            for name in ("t", "u", "t")
        ]
        reply = await client.ask(altering.AlterConfigsRequest(resources=replaced, validate_only=False), 2)
        assert [(each.error_code, each.error_message) for each in reply.responses] == [twice, (0, None), twice]

    serve_and(story)


def test_every_logger_of_the_code_can_be_set() -> None:

    root = Path(__file__).parents[5]
    named = {
        name
        for path in (root / "broker").rglob("*.py")
        for name in re.findall(r'getLogger\("([a-z.]+)"\)', path.read_text("utf-8"))
    }
    assert named <= set(LOGGERS)


def test_an_assignment_interval_of_consumer_groups_changes_at_run_time() -> None:
    name = "group.consumer.assignment.interval.ms"

    async def story(node: Node) -> None:
        client = await node.connect()
        groups = node.broker.coordinators.groups
        assert groups.config.consumer.assignment_interval_ms == 1_000
        assert await alter(client, Asked(BROKER, "", [(name, SET, "2000")])) == [(0, None)]
        assert groups.config.consumer.assignment_interval_ms == 2_000
        assert await alter(client, Asked(BROKER, "1", [(name, SET, "3000")])) == [(0, None)]
        assert groups.config.consumer.assignment_interval_ms == 3_000

    serve_and(story)
