"""A node's settings are read, judged and held against one another before it starts."""

from __future__ import annotations

import pytest

from moldau.broker.config import Config, ConfigError, ListenerAddress, with_bound_addresses
from moldau.broker.config.loading import checked_config
from moldau.broker.config.sources import single_node_defaults
from moldau.storage.checkpoints.java_properties import read_properties

# The settings of Apache Kafka 4.3.1's own config/server.properties.
STOCK = """
# The role of this server.
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
#log.flush.interval.messages=10000
log.retention.hours=168
#log.retention.bytes=1073741824
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""
BASE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "controller.listener.names": "CONTROLLER",
    "log.dirs": "/data",
}


def load(*changes: str) -> Config:
    """A node's settings with changes: name=value sets, -name removes."""
    properties = dict(BASE)
    for change in changes:
        name, _, value = change.partition("=")
        if change.startswith("-"):
            del properties[change[1:]]
        else:
            properties[name] = value
    return checked_config(properties)


def problems(*changes: str) -> list[str]:
    with pytest.raises(ConfigError) as refusal:
        load(*changes)
    return refusal.value.problems


def test_the_stock_file_starts_unchanged() -> None:
    config = checked_config(read_properties(STOCK))
    assert config.node_id == 1
    assert config.log_dirs == ("/tmp/kraft-combined-logs",)
    assert config.metadata_log_dir == "/tmp/kraft-combined-logs"
    assert config.broker_listeners == (ListenerAddress("PLAINTEXT", "", 9092, "PLAINTEXT"),)
    assert config.controller_listeners == (ListenerAddress("CONTROLLER", "", 9093, "PLAINTEXT"),)
    assert config.advertised_listeners == (ListenerAddress("PLAINTEXT", "localhost", 9092, "PLAINTEXT"),)
    assert config.advertised_controller_listeners == (ListenerAddress("CONTROLLER", "localhost", 9093, "PLAINTEXT"),)


def test_a_node_without_a_file_starts_without_a_warning() -> None:
    config = checked_config(single_node_defaults("./data"))
    assert config.warnings == ()
    assert config.is_broker and config.is_controller
    assert config.advertised_listeners == (ListenerAddress("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT"),)


def test_a_setting_without_effect_warns_once_with_its_reason() -> None:
    config = load("num.io.threads=16", "num.network.threads=5")
    assert config.warnings == (
        "No effect: num.io.threads=16, num.network.threads=5. "
        "One event loop answers all requests; there is no pool of threads to size.",
    )


def test_a_setting_without_effect_at_its_default_does_not_warn() -> None:
    assert load("num.io.threads=8").warnings == ()


def test_an_unknown_name_warns() -> None:
    (warning,) = load("num.io.thread=8").warnings
    assert warning.startswith("num.io.thread is not a name that Apache Kafka 4.3.1 knows")


def test_a_name_that_was_removed_warns_with_advice() -> None:
    (warning,) = load("inter.broker.protocol.version=3.9").warnings
    assert "moldau format --feature" in warning


def test_every_problem_is_told_at_once() -> None:
    told = problems("num.io.threads=0", "client.quota.callback.class=a.B", "-process.roles")
    assert len(told) == 3
    assert told[0] == (
        "Invalid value 0 for configuration num.io.threads: Value must be at least 1 "
        "(num.io.threads takes int, at least 1)"
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("zookeeper.connect=localhost:2181", ["KRaft", "process.roles=broker,controller", "moldau format"]),
        ("zookeeper.session.timeout.ms=18000", ["KRaft", "moldau format"]),
        ("zookeeper.metadata.migration.enable=true", ["KRaft", "3.9"]),
        ("broker.id.generation.enable=true", ["node.id"]),
        ("control.plane.listener.name=X", ["controller.listener.names"]),
        ("password.encoder.secret=x", ["KRaft"]),
        ("host.name=localhost", ["listeners"]),
    ],
)
def test_zookeeper_settings_are_refused_with_what_to_do(change: str, words: list[str]) -> None:
    (problem,) = problems(change)
    name, _, value = change.partition("=")
    shown = "[hidden]" if "secret" in name else value
    assert problem.startswith(f"{name}={shown} is refused")
    assert all(word in problem for word in words)


@pytest.mark.parametrize(
    "change",
    [
        "authorizer.class.name=org.example.Authorizer",
        "remote.log.storage.manager.class.name=a.B",
        "client.quota.callback.class=a.B",
        "create.topic.policy.class.name=a.B",
        "principal.builder.class=a.B",
        "replica.selector.class=com.example.Selector",
        "config.providers=file",
        "cordoned.log.dirs=/data",
    ],
)
def test_what_would_change_semantics_or_security_unseen_is_refused(change: str) -> None:
    (problem,) = problems(change)
    assert "is refused" in problem


def test_a_secret_never_stands_in_a_message() -> None:
    (problem,) = problems("delegation.token.master.key=swordfish", "node.id=x")
    assert "swordfish" not in problem
    assert all("swordfish" not in warning for warning in load("delegation.token.master.key=swordfish").warnings)
    assert all("swordfish" not in warning for warning in load("ssl.key.password=swordfish").warnings)


def test_a_refused_setting_at_its_default_or_empty_is_taken() -> None:
    assert load("authorizer.class.name=", "client.quota.callback.class=", "metric.reporters=").warnings == ()


def test_broker_id_stands_for_node_id() -> None:
    config = load("-node.id", "broker.id=5")
    assert config.node_id == config.integer("broker.id") == 5
    assert problems("broker.id=5") == ["You must set `node.id` to the same value as `broker.id`."]


@pytest.mark.parametrize(
    ("changes", "duration_ms"),
    [
        ([], 604_800_000),
        (["log.retention.hours=1"], 3_600_000),
        (["log.retention.minutes=5", "log.retention.hours=1"], 300_000),
        (["log.retention.ms=7", "log.retention.minutes=5", "log.retention.hours=1"], 7),
        (["log.retention.hours=-1"], -1),
        (["log.retention.minutes=-5"], -1),
    ],
)
def test_the_finer_unit_of_a_duration_wins(changes: list[str], duration_ms: int) -> None:
    assert load(*changes).log_retention_ms == duration_ms


def test_rolling_and_flushing_have_their_own_synonyms() -> None:
    config = load("log.roll.hours=2", "log.roll.jitter.hours=1", "log.flush.scheduler.interval.ms=9")
    assert (config.log_roll_ms, config.log_roll_jitter_ms, config.log_flush_interval_ms) == (7_200_000, 3_600_000, 9)


def test_log_dirs_win_over_log_dir_and_the_first_holds_the_metadata() -> None:
    assert load("-log.dirs", "log.dir=/a,/b").log_dirs == ("/a", "/b")
    assert load("log.dir=/a", "log.dirs=/b, /c,/b").log_dirs == ("/b", "/c")
    assert load("log.dirs=/b,/c").metadata_log_dir == "/b"
    assert load("log.dirs=/b,/c", "metadata.log.dir=/m").metadata_log_dir == "/m"
    assert load("-log.dirs").log_dirs == ("/tmp/kafka-logs",)


# What Apache Kafka 4.3.1 says of the same settings.
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["-controller.listener.names"], 'Missing required configuration "controller.listener.names" which has no'),
        (["process.roles="], "Configuration 'process.roles' must not be empty. Valid values include: [broker, contr"),
        (["process.roles=foo"], "Invalid value foo for configuration process.roles: String must be one of: broker, co"),
        (["node.id=-1"], "Invalid value -1 for configuration node.id: Value must be at least 0"),
        (["-node.id", "broker.id=-1"], "Invalid value -1 for configuration node.id: Value must be at least 0"),
        (["-controller.quorum.bootstrap.servers"], "If using process.roles, either controller.quorum.bootstrap.serv"),
        (["controller.quorum.voters=2@h:1"], "If process.roles contains the 'controller' role, the node id 1 must be"),
        (["controller.quorum.voters=x"], "Invalid configuration value for controller.quorum.voters. Each entry"),
        (
            [
                "controller.listener.names=FOO",
                "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            ],
            "controller.listener.names must contain at least one value appearing in the 'listeners' configuration",
        ),
        (["controller.listener.names=CONTROLLER,FOO"], "controller.listener.names must only contain values appearing"),
        (["listeners=CONTROLLER://:9093"], "There must be at least one broker advertised listener. Perhaps all list"),
        (["listeners=PLAINTEXT://0.0.0.0:1,CONTROLLER://:2"], "advertised.listeners cannot use the nonroutable meta"),
        (["advertised.listeners=PLAINTEXT://0.0.0.0:1"], "advertised.listeners cannot use the nonroutable meta-addre"),
        (
            ["advertised.listeners=PLAINTEXT://h:1,SSL://h:2"],
            "advertised.listeners listener names must be equal to or a subset of the ones defined in listeners. Found "
            "PLAINTEXT,SSL. The valid options based on the current configuration are PLAINTEXT,CONTROLLER",
        ),
        (
            ["inter.broker.listener.name=CONTROLLER"],
            "inter.broker.listener.name must be a listener name defined in advertised.listeners. The valid options "
            "based on currently configured listeners are PLAINTEXT",
        ),
        (
            ["inter.broker.listener.name=PLAINTEXT", "security.inter.broker.protocol=PLAINTEXT"],
            "Only one of inter.broker.listener.name and security.inter.broker.protocol should be set.",
        ),
        (
            ["inter.broker.listener.name=FOO"],
            "Listener with name FOO defined in inter.broker.listener.name not found in listener.security.protocol.map.",
        ),
        (["max.connections.per.ip.overrides=a"], "Error parsing configuration property 'max.connections.per.ip.overri"),
        (["log.retention.ms=0"], "log.retention.ms must be unlimited (-1) or, greater than or equal to 1"),
        (["log.retention.hours=0"], "log.retention.ms must be unlimited (-1) or, greater than or equal to 1"),
        (["log.roll.ms=0"], "log.roll.ms must be greater than or equal to 1"),
        (["log.roll.jitter.ms=-1"], "log.roll.jitter.ms must be greater than or equal to 0"),
        (["early.start.listeners=FOO"], "early.start.listeners contains listener FOO, but this is not contained in"),
        (["queued.max.request.bytes=5"], "queued.max.request.bytes must be larger or equal to socket.request.max.by"),
        (["offsets.topic.compression.codec=9"], "Unknown compression type id: 9"),
        (["max.connections.per.ip=0"], "max.connections.per.ip can be set to zero only if max.connections.per.ip.ov"),
        (["replica.fetch.wait.max.ms=40000"], "replica.socket.timeout.ms should always be at least replica.fetch"),
        (
            ["group.consumer.heartbeat.interval.ms=1"],
            "group.consumer.heartbeat.interval.ms must be greater than or equal to group.consumer.min.heartbeat",
        ),
        (
            ["group.streams.max.session.timeout.ms=1"],
            "group.streams.max.session.timeout.ms must be greater than or equal to group.streams.min.session.timeout",
        ),
        (
            [
                f"group.share.{name}=15000"
                for name in ("min.session.timeout.ms", "session.timeout.ms", "heartbeat.interval.ms")
            ],
            "group.share.heartbeat.interval.ms must be less than group.share.session.timeout.ms",
        ),
        (
            ["group.share.delivery.count.limit=3", "group.share.min.delivery.count.limit=4"],
            "group.share.delivery.count.limit must be greater than or equal to group.share.min.delivery.count.limit",
        ),
        (
            ["group.share.record.lock.duration.ms=60001"],
            "group.share.max.record.lock.duration.ms must be greater than or equal to group.share.record.lock.duration",
        ),
        (
            ["group.share.assignors=simple,org.apache.kafka.coordinator.group.assignor.SimpleAssignor"],
            "group.share.assignors must contain exactly one assignor, but found 2",
        ),
        (
            ["group.consumer.assignors=range,com.example.Mine"],
            "group.consumer.assignors=com.example.Mine is refused: Ja",
        ),
        (
            ["group.streams.num.standby.replicas=3"],
            "group.streams.num.standby.replicas must be less than or equal to group.streams.max.standby.replicas",
        ),
        (["group.coordinator.rebalance.protocols=consumer"], "Disabling the 'classic' protocol is not supported."),
    ],
)
def test_settings_that_do_not_go_together_are_refused_as_by_apache_kafka(changes: list[str], message: str) -> None:
    assert problems(*changes)[0].startswith(message)


@pytest.mark.parametrize(
    ("listeners", "message"),
    [
        ("PLAINTEXT://:1,CONTROLLER://:1", "Each listener must have a different port, listeners: [PLAINTEXT://:1, CON"),
        ("PLAINTEXT://:1,PLAINTEXT://:2", "Each listener must have a different name, listeners: [PLAINTEXT://:1, PL"),
        ("PLAINTEXT://127.0.0.1:1,CONTROLLER://127.0.0.2:1", "If you have two listeners on the same port then one n"),
        ("PLAINTEXT://h:1,CONTROLLER://[::1]:1", "Each listener must have a different port unless exactly one listen"),
        ("FOO://:1,CONTROLLER://:2", "No security protocol defined for listener FOO"),
        ("PLAINTEXT//:1,CONTROLLER://:2", "Unable to parse PLAINTEXT//:1 to a broker endpoint"),
        ("PLAINTEXT://:99999,CONTROLLER://:2", "Port 99999 of listener PLAINTEXT is larger than 65535"),
    ],
)
def test_listeners_that_cannot_be_opened_are_refused(listeners: str, message: str) -> None:
    (problem,) = problems(f"listeners={listeners}")
    start = f"Error creating broker listeners from '[{listeners.replace(',', ', ')}]': "
    assert problem.startswith(start + message)


def test_two_listeners_may_share_a_port_on_two_families_of_addresses() -> None:
    config = load("listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://[::1]:9092")
    assert [each.host for each in config.listeners] == ["127.0.0.1", "::1"]


def test_a_controller_listener_is_plaintext_where_nothing_else_is_said() -> None:
    assert load().controller_listeners[0].security_protocol == "PLAINTEXT"
    (problem,) = problems("listeners=PLAINTEXT://:1,SSL://:2,CONTROLLER://:3")
    assert "No security protocol defined for listener CONTROLLER" in problem


def test_a_node_may_have_one_role() -> None:
    broker = load("process.roles=broker", "listeners=PLAINTEXT://:9092")
    assert (broker.is_broker, broker.is_controller, broker.controller_listeners) == (True, False, ())
    controller = load("process.roles=controller", "listeners=CONTROLLER://:9093")
    assert (controller.is_broker, controller.is_controller, controller.broker_listeners) == (False, True, ())


def test_static_voters_say_where_the_controller_is() -> None:
    config = load("controller.quorum.voters=1@example:7", "-controller.quorum.bootstrap.servers")
    assert config.advertised_controller_listeners == (ListenerAddress("CONTROLLER", "example", 7, "PLAINTEXT"),)


def test_clients_are_told_this_machines_name_and_the_ports_that_were_bound() -> None:
    config = load("listeners=PLAINTEXT://:0,CONTROLLER://:9093")
    assert with_bound_addresses(config.advertised_listeners, "me", {"PLAINTEXT": 1234}) == (
        ListenerAddress("PLAINTEXT", "me", 1234, "PLAINTEXT"),
    )


def test_a_setting_of_one_listener_has_no_effect_and_says_so() -> None:
    (warning,) = load("listener.name.plaintext.socket.listen.backlog.size=7").warnings
    assert "listener.name.plaintext.socket.listen.backlog.size=7" in warning
