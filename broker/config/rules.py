"""Rules for settings that depend on each other: Apache Kafka 4.3.1's, and rules against features that this version
lacks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Final

from moldau.broker.config.config import Config
from moldau.broker.config.console import broken_console_rules
from moldau.broker.config.group_rules import broken_group_rules
from moldau.broker.config.listeners import read_http_address
from moldau.broker.config.oauthbearer import broken_oauth_rules
from moldau.broker.config.sasl import broken_sasl_rules
from moldau.broker.config.tiering import broken_tiering_rules
from moldau.broker.config.tls import broken_tls_rules

RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
"""The replica selector with which a consumer reads from an in-sync replica in its own rack."""
LEADER: Final = "org.apache.kafka.common.replica.LeaderSelector"
"""The replica selector with which a consumer reads from the leader."""
STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def broken_rules(config: Config) -> Iterator[str]:
    """The rules that a configuration breaks, with Apache Kafka's messages if there are any."""
    yield from _roles_and_quorum(config)
    yield from _listeners(config)
    yield from _durations(config)
    yield from _sizes(config)
    yield from broken_group_rules(config.settings)
    yield from _beyond_this_version(config)
    yield from broken_tiering_rules(config)
    yield from broken_tls_rules(config)
    yield from broken_sasl_rules(config)
    yield from broken_oauth_rules(config)
    yield from _authorizer(config)
    yield from broken_console_rules(config)
    yield from _own(config)


def _authorizer(config: Config) -> Iterator[str]:
    name = config.text("authorizer.class.name")
    if name not in ("", STANDARD_AUTHORIZER):
        yield (
            f"authorizer.class.name={name} is refused: {STANDARD_AUTHORIZER} is the authorizer of this broker, and Java"
            " classes are not loaded"
        )
    if not config.text("super.users"):
        return
    from moldau.security.acl.authorizer import parse_super_users

    try:
        parse_super_users(config.text("super.users"))
    except ValueError as error:
        yield f"super.users: {error}"


def _own(config: Config) -> Iterator[str]:
    address = config.text_or_none("moldau.http.listener")
    if address and read_http_address(address) is None:
        yield f"moldau.http.listener must be http://host:port, such as http://127.0.0.1:9464, and not {address}"
    collector = config.text_or_none("moldau.opentelemetry.endpoint")
    if collector and not collector.startswith(("http://", "https://")):
        yield f"moldau.opentelemetry.endpoint must begin with http:// or https://, and is {collector}"
    elif collector and find_spec("opentelemetry") is None:
        yield "moldau.opentelemetry.endpoint needs the extra 'opentelemetry': pip install 'moldau[opentelemetry]'"


def _roles_and_quorum(config: Config) -> Iterator[str]:
    voters = [voter.node_id for voter in config.controller_quorum_voters]
    if not voters and not config.controller_quorum_bootstrap_servers:
        yield (
            "If using process.roles, either controller.quorum.bootstrap.servers must contain the set of bootstrap "
            "controllers or controller.quorum.voters must contain a parseable set of controllers."
        )
    if voters and config.is_controller and config.node_id not in voters:
        yield (
            f"If process.roles contains the 'controller' role, the node id {config.node_id} must be included in the "
            f"set of voters controller.quorum.voters={voters}"
        )
    if voters and not config.is_controller and config.node_id in voters:
        yield (
            f"If process.roles contains just the 'broker' role, the node id {config.node_id} must not be included in "
            f"the set of voters controller.quorum.voters={voters}"
        )
    if config.flag("controller.quorum.auto.join.enable") and not config.is_controller:
        yield (
            "controller.quorum.auto.join.enable is only supported when process.roles contains the 'controller' role."
        )


def _listeners(config: Config) -> Iterator[str]:
    names = {each.name for each in config.listeners}
    controller_names = config.controller_listener_names
    if config.is_controller:
        if not names.intersection(controller_names):
            yield (
                "controller.listener.names must contain at least one value appearing in the 'listeners' configuration "
                "when running the KRaft controller role"
            )
        elif not names.issuperset(controller_names):
            yield (
                "controller.listener.names must only contain values appearing in the 'listeners' configuration when "
                "running the KRaft controller role"
            )
    if not config.is_broker and config.broker_listeners:
        yield (
            "The listeners config must only contain KRaft controller listeners from controller.listener.names when "
            "process.roles=controller"
        )
    if config.is_broker and not config.is_controller and names.intersection(controller_names):
        yield (
            "controller.listener.names must not contain a value appearing in the 'listeners' configuration when "
            "running KRaft with just the broker role"
        )
    if config.is_broker:
        yield from _advertised_listeners(config)
    told = [*config.advertised_listeners, *config.advertised_controller_listeners]
    if any(each.host == "0.0.0.0" for each in told):
        yield "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0. Use a routable IP address."
    early = config.entries("early.start.listeners")
    for name in early:
        if name not in names and name not in controller_names:
            yield (
                f"early.start.listeners contains listener {name}, but this is not contained in listeners or "
                "controller.listener.names"
            )


def _advertised_listeners(config: Config) -> Iterator[str]:
    told = [each.name for each in config.advertised_listeners]
    names = [each.name for each in config.listeners]
    if not told:
        yield (
            "There must be at least one broker advertised listener. Perhaps all listeners appear in "
            "controller.listener.names?"
        )
        return
    if not set(told) <= set(names):
        yield (
            "advertised.listeners listener names must be equal to or a subset of the ones defined in listeners. Found "
            f"{','.join(told)}. The valid options based on the current configuration are {','.join(names)}"
        )
    if config.settings.is_set("inter.broker.listener.name") and config.settings.is_set(
        "security.inter.broker.protocol"
    ):
        yield "Only one of inter.broker.listener.name and security.inter.broker.protocol should be set."
    if config.inter_broker_listener_name not in config.listener_protocols:
        yield (
            f"Listener with name {config.inter_broker_listener_name} defined in inter.broker.listener.name not found "
            "in listener.security.protocol.map."
        )
    elif config.inter_broker_listener_name not in told:
        yield (
            "inter.broker.listener.name must be a listener name defined in advertised.listeners. The valid options "
            f"based on currently configured listeners are {','.join(told)}"
        )


def _durations(config: Config) -> Iterator[str]:
    if config.log_roll_ms < 1:
        yield "log.roll.ms must be greater than or equal to 1"
    if config.log_roll_jitter_ms < 0:
        yield "log.roll.jitter.ms must be greater than or equal to 0"
    if config.log_retention_ms == 0:
        yield "log.retention.ms must be unlimited (-1) or, greater than or equal to 1"
    if config.integer("replica.fetch.wait.max.ms") > config.integer("replica.socket.timeout.ms"):
        yield (
            "replica.socket.timeout.ms should always be at least replica.fetch.wait.max.ms to prevent unnecessary "
            "socket timeouts"
        )


def _sizes(config: Config) -> Iterator[str]:
    if 0 < config.integer("queued.max.request.bytes") < config.integer("socket.request.max.bytes"):
        yield "queued.max.request.bytes must be larger or equal to socket.request.max.bytes"
    if config.integer("replica.fetch.min.bytes") > config.integer("replica.fetch.response.max.bytes"):
        yield "replica.fetch.min.bytes must not be larger than replica.fetch.response.max.bytes"
    codec = config.integer("offsets.topic.compression.codec")
    if codec not in range(5):
        yield f"Unknown compression type id: {codec} (offsets.topic.compression.codec takes 0 to 4)"
    if config.integer("max.connections.per.ip") == 0 and not config.text("max.connections.per.ip.overrides"):
        yield "max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides property is set."
    for entry in filter(None, config.text("max.connections.per.ip.overrides").split(",")):
        host, _, count = entry.strip().rpartition(":")
        if not host or not re.fullmatch(r"[0-9]{1,10}", count.strip()):
            yield f"Error parsing configuration property 'max.connections.per.ip.overrides': {entry} is not host:count"


def _beyond_this_version(config: Config) -> Iterator[str]:
    selector = config.text_or_none("replica.selector.class")
    if selector not in (None, RACK_AWARE, LEADER):
        yield f"replica.selector.class {selector} is refused: there are {RACK_AWARE} and {LEADER}, and none is loaded."
