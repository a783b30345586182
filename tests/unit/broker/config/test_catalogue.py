"""The catalogue says of every name what Apache Kafka 4.3.1 itself says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from moldau.broker.config.catalogue import (
    OWN_PREFIX,
    base_name,
    broker_catalogue,
    client_metrics_catalogue,
    dynamic_only_catalogue,
    group_catalogue,
    topic_catalogue,
    unit_synonyms,
)
from moldau.broker.config.reasons import REASONS
from moldau.broker.config.setting import Catalogue, Scope, Setting, Stance, ValueType
from moldau.broker.config.values import InvalidValue, allowed_text, default_value, parse, value_text

FACTS = Path(__file__).with_name("kafka_4_3_1_names.txt")
CATALOGUES = {
    "broker": broker_catalogue(),
    "topic": topic_catalogue(),
    "group": group_catalogue(),
    "client-metrics": client_metrics_catalogue(),
    "dynamic-only": dynamic_only_catalogue(),
}
AUTHORIZERS = {"super.users", "allow.everyone.if.no.acl.found"}
"""Names that Apache Kafka reads, but does not list among those of a broker."""
OWN = {
    "moldau.audit.log.allowed",
    "moldau.audit.log.file",
    "moldau.slow.request.ms",
    "moldau.audit.log.retention.days",
    "moldau.batch.expanded.bytes.max",
    "moldau.broker.silence.fence.ms",
    "moldau.console",
    "moldau.console.hosts",
    "moldau.console.masks",
    "moldau.console.name",
    "moldau.console.schema.registry",
    "moldau.console.writes",
    "moldau.cores",
    "moldau.emulated.release",
    "moldau.erase.enable",
    "moldau.group.heartbeat.wait.max.ms",
    "moldau.group.waiting.heartbeat.interval.ms",
    "moldau.http.listener",
    "moldau.log.format",
    "moldau.oauthbearer.allowed.urls",
    "moldau.metrics.lag.groups",
    "moldau.metrics.lag.partitions.max",
    "moldau.metrics.login",
    "moldau.metadata.loss.accept",
    "moldau.metrics.series.max",
    "moldau.open.files.max",
    "moldau.opentelemetry.endpoint",
    "moldau.opentelemetry.interval.ms",
    "moldau.queued.max.reply.bytes",
    "moldau.replicas.share.rack",
    "moldau.tiered.compaction.bytes.per.pass",
    "moldau.tiered.read.ahead.bytes",
    "moldau.tiered.read.cache.bytes",
    "moldau.tiered.storage",
    "moldau.tiered.storage.endpoint",
    "moldau.tiered.storage.region",
    "moldau.tiered.storage.timeout.ms",
    "moldau.tiered.superseded.retention.ms",
}
"""Names that Apache Kafka does not know."""
LATER_FACTS = Path(__file__).with_name("kafka_4_4_0_names.txt")
"""Settings that Apache Kafka 4.4.0 has and 4.3.1 has not."""
OWN_DEFAULTS = {"socket.send.buffer.bytes": "204800"}
"""The defaults that differ from Apache Kafka's on purpose."""
EVERY_SETTING = [setting for catalogue in CATALOGUES.values() for setting in catalogue.values()]


def facts(domain: str) -> dict[str, list[str]]:
    text = FACTS.read_text() + LATER_FACTS.read_text()
    rows = [line.split("\t") for line in text.splitlines() if not line.startswith("#")]
    return {row[1]: row[2:] + [""] * (5 - len(row[2:])) for row in rows if row[0] == domain}


@pytest.mark.parametrize("domain", CATALOGUES)
def test_names_types_and_flags_are_those_of_apache_kafka(domain: str) -> None:
    ours = {
        name: (setting.type.name, "internal" if setting.is_internal else "")
        for name, setting in CATALOGUES[domain].items()
    }
    theirs = {name: (row[0], row[4]) for name, row in facts(domain).items()}
    assert {name: ours[name] for name in ours if name not in OWN | AUTHORIZERS} == theirs


def test_our_own_names_are_these_and_say_so() -> None:
    assert {name for name in broker_catalogue() if name.startswith(OWN_PREFIX)} == OWN
    assert not OWN & facts("broker").keys()


@pytest.mark.parametrize("domain", CATALOGUES)
def test_defaults_are_those_of_apache_kafka(domain: str) -> None:
    for name, row in facts(domain).items():
        setting = CATALOGUES[domain][name]
        if row[1] == "<<NONE>>":
            assert setting.is_required, name
            continue
        assert not setting.is_required, name
        shown = value_text(default_value(setting))
        if setting.type is ValueType.LIST and shown is not None:
            shown = f"[{shown.replace(',', ', ')}]"
        assert ("null" if shown is None else shown) == OWN_DEFAULTS.get(name, row[1]), name


@pytest.mark.parametrize("domain", CATALOGUES)
def test_scopes_and_synonyms_are_those_of_apache_kafka(domain: str) -> None:
    for name, row in facts(domain).items():
        setting = CATALOGUES[domain][name]
        if domain in ("broker", "dynamic-only"):
            assert setting.scope.value == row[3], name
        else:
            assert (",".join(setting.defaults_from) or "-") == row[3], name


def bounds_of(setting: Setting) -> str:
    """A rule as Apache Kafka's validator prints it."""
    rule, _, choices = setting.allowed.partition(":")
    listed = f"[{choices.replace(',', ', ')}]"
    if ".." in rule:
        bounds, _, extra = rule.partition("|")
        low, _, high = bounds.partition("..")
        return f"[{low},...,{high}] or {extra}" if extra else f"[{low},...,{high}]" if high else f"[{low},...]"
    words = {
        "one-of": listed,
        "any-case": f"(case insensitive) {listed}",
        "list": listed if choices else "-",
        "non-empty-list": listed if choices else "-",
        "non-empty": "non-empty string",
        "non-null": "non-null string",
        "voters": "non-empty list",
        "host-ports": "non-empty list",
        "replicas": "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
        "offset-reset": "[latest, earliest, by_duration:PnDTnHnMn.nS]",
    }
    return words.get(rule, "-")


@pytest.mark.parametrize("domain", CATALOGUES)
def test_bounds_are_those_of_apache_kafka(domain: str) -> None:
    assert {
        name: bounds_of(setting) for name, setting in CATALOGUES[domain].items() if name not in OWN | AUTHORIZERS
    } == {name: row[2] for name, row in facts(domain).items()}


def test_every_setting_that_is_not_honoured_says_why() -> None:
    for setting in EVERY_SETTING:
        assert (setting.reason_key in REASONS) == (setting.stance is not Stance.HONOURED), setting.name
    assert {setting.reason_key for setting in EVERY_SETTING} - {""} == set(REASONS) - {"listener"}


def test_every_setting_has_a_sentence_about_it() -> None:
    for setting in EVERY_SETTING:
        assert re.fullmatch(r"[A-Z].{10,}[.:]", setting.documentation), setting.name


def test_every_default_passes_its_own_check() -> None:
    for setting in EVERY_SETTING:
        if setting.default_text is not None and setting.allowed not in ("voters", "host-ports"):
            assert parse(setting, setting.default_text) == default_value(setting), setting.name


def test_what_is_allowed_can_be_said_of_every_setting() -> None:
    for setting in EVERY_SETTING:
        assert allowed_text(setting), setting.name


def test_a_class_is_never_honoured() -> None:
    """The two handlers of OAUTHBEARER are names that select what this broker does; the rules refuse every other."""
    classes = {s.name for s in EVERY_SETTING if s.type is ValueType.CLASS and s.stance is not Stance.REFUSED}
    assert classes == {"sasl.server.callback.handler.class", "sasl.login.callback.handler.class"}


def test_what_topics_take_from_the_broker_exists_there() -> None:
    catalogue: Catalogue = broker_catalogue()
    for setting in [*topic_catalogue().values(), *group_catalogue().values()]:
        assert all(name in catalogue for name in setting.defaults_from), setting.name
        if len(setting.defaults_from) > 1:
            assert unit_synonyms(setting.defaults_from[0]) == setting.defaults_from


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("num.io.threads", "num.io.threads"),
        ("listener.name.external.max.connections", "max.connections"),
        ("listener.name.external.plain.sasl.jaas.config", "sasl.jaas.config"),
        ("listener.name.external.nothing.known", "listener.name.external.nothing.known"),
    ],
)
def test_a_listener_prefix_hides_a_known_name(name: str, base: str) -> None:
    assert base_name(name) == base


def test_a_password_is_sensitive_and_its_scope_is_kept() -> None:
    assert broker_catalogue()["sasl.jaas.config"].is_sensitive
    assert broker_catalogue()["sasl.jaas.config"].scope is Scope.PER_BROKER


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("num.io.threads", "0", "Invalid value 0 for configuration num.io.threads: Value must be at least 1"),
        ("num.io.threads", "1_0", "Invalid value 1_0 for configuration num.io.threads: Not a number of type INT"),
        (
            "log.roll.hours",
            "9999999999",
            "Invalid value 9999999999 for configuration log.roll.hours: Not a number of type INT",
        ),
        (
            "log.cleaner.min.cleanable.ratio",
            "2",
            "Invalid value 2.0 for configuration log.cleaner.min.cleanable.ratio: Value must be no more than 1",
        ),
        (
            "auto.create.topics.enable",
            " yes",
            "Invalid value  yes for configuration auto.create.topics.enable: Expected value to be either true or false",
        ),
        (
            "compression.gzip.level",
            "0",
            "Invalid value 0 for configuration compression.gzip.level: Value must be between 1 and 9 or equal to -1",
        ),
        (
            "log.cleanup.policy",
            "foo",
            "Invalid value foo for configuration log.cleanup.policy: String must be one of: compact, delete",
        ),
        ("log.dirs", "/a,,/b", "Configuration 'log.dirs' values must not be empty."),
        (
            "listeners",
            "",
            "Configuration 'listeners' must not be empty. Valid values include: any non-empty value",
        ),
        (
            "controller.quorum.bootstrap.servers",
            "a:1,b",
            "Failed to parse host name from b for the configuration controller.quorum.bootstrap.servers. "
            'Each entry should be in the form "{host}:{port}"',
        ),
        (
            "group.consumer.migration.policy",
            "foo",
            "Invalid value foo for configuration group.consumer.migration.policy: "
            "String must be one of (case insensitive): DISABLED, DOWNGRADE, UPGRADE, BIDIRECTIONAL",
        ),
        (
            "num.partitions",
            "9" * 5_000,
            f"Invalid value {'9' * 5_000} for configuration num.partitions: Not a number of type INT",
        ),
    ],
)
def test_refusals_are_apache_kafkas_own_words(name: str, text: str, message: str) -> None:
    with pytest.raises(InvalidValue) as refusal:
        parse(broker_catalogue()[name], text)
    assert str(refusal.value) == message


@pytest.mark.parametrize(
    ("name", "text", "shown"),
    [
        ("log.cleaner.io.buffer.load.factor", "12345678", "1.2345678E7"),
        ("log.cleaner.io.buffer.load.factor", "0.0001", "1.0E-4"),
        ("log.cleaner.io.buffer.load.factor", "1e3d", "1000.0"),
        ("log.cleaner.io.buffer.load.factor", "NaN", "NaN"),
        ("log.dirs", " /a , /b,/a ", "/a,/b"),
        ("auto.create.topics.enable", "TRUE", "true"),
        ("num.partitions", " +5 ", "5"),
        ("log.cleanup.policy", "", ""),
    ],
)
def test_values_are_shown_as_apache_kafka_shows_them(name: str, text: str, shown: str) -> None:
    assert value_text(parse(broker_catalogue()[name], text)) == shown
