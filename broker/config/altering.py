"""Checks whether a broker's dynamic settings may be changed at run time, with Apache Kafka's messages."""

from __future__ import annotations

from collections.abc import Mapping

from moldau.broker.config.change_rules import broken_change_rules
from moldau.broker.config.config import Config, ConfigError
from moldau.broker.config.group_rules import ASSIGNMENT_INTERVALS, interval_refusal
from moldau.broker.config.layers import BrokerLayers, is_dynamic, known_setting, needs_restart
from moldau.broker.config.loading import config_and_broken_rules
from moldau.broker.config.reasons import REASONS
from moldau.broker.config.setting import HIDDEN, Stance
from moldau.broker.config.values import InvalidValue, default_value, parse

# Security settings that Apache Kafka changes at run time only for a single listener, by its prefix.
_ONLY_PER_LISTENER = frozenset(
    f"ssl.{name}"
    for name in (
        "keystore.type",
        "keystore.location",
        "keystore.password",
        "keystore.key",
        "keystore.certificate.chain",
        "key.password",
        "truststore.type",
        "truststore.location",
        "truststore.password",
        "truststore.certificates",
    )
)


def broker_change_refusal(layers: BrokerLayers, changed: Mapping[str, str], *, at_default_level: bool) -> str | None:
    """Check a change of a broker's dynamic settings. Returns why it is refused (INVALID_REQUEST); None if it is
    accepted.

    `layers` are the settings before the change. `changed` has all settings of one level after the change: the level of
    all brokers (`at_default_level`), or that of one broker. Unknown names are accepted, as in Apache Kafka.
    """
    previous = layers.dynamic_default if at_default_level else layers.dynamic_broker
    fresh = {name: text for name, text in changed.items() if previous.get(name) != text}
    message = _scope_problem(fresh, at_default_level=False)
    message = message or _value_problem(fresh)
    message = message or (_scope_problem(fresh, at_default_level=True) if at_default_level else None)
    message = message or _stance_problem(fresh)
    if message is None and not set(ASSIGNMENT_INTERVALS).isdisjoint(fresh):
        values = {name: parse(setting, fresh[name]) for name in fresh if (setting := known_setting(name)) is not None}
        message = interval_refusal(effective_config(layers).settings, values)
    if message is None:
        message = _rule_problem(
            BrokerLayers(
                layers.static,
                changed if at_default_level else layers.dynamic_default,
                layers.dynamic_broker if at_default_level else changed,
            ),
            layers,
        )
    return message


def _scope_problem(changed: Mapping[str, str], *, at_default_level: bool) -> str | None:
    known = {name: setting for name in changed if (setting := known_setting(name)) is not None}
    blocked = [name for name in known if not is_dynamic(name, known[name], at_default_level=at_default_level)]
    if blocked and at_default_level:
        return (
            f"Cannot update these configs at default cluster level, broker id must be specified: [{', '.join(blocked)}]"
        )
    if blocked:
        return f"Cannot update these configs dynamically: [{', '.join(blocked)}]"
    bare = [name for name in known if name in _ONLY_PER_LISTENER]
    if bare:
        return (
            "These security configs can be dynamically updated only per-listener using the listener prefix: "
            f"[{', '.join(bare)}]"
        )
    return None


def _value_problem(changed: Mapping[str, str]) -> str | None:
    for name, text in changed.items():
        setting = known_setting(name)
        if setting is not None:
            try:
                parse(setting, text)
            except InvalidValue as problem:
                return str(problem)
    return None


def _stance_problem(changed: Mapping[str, str]) -> str | None:
    """Why a changed setting is refused because it cannot take effect in this version; None if there is no such setting.

    DIVERGES: Apache Kafka applies these at run time; here a change without an effect is refused.
    """
    for name, text in changed.items():
        setting = known_setting(name)
        if setting is None:
            continue
        if needs_restart(name):
            return f"{name} cannot be changed at run time in this version; change it in the file and start again."
        if setting.stance is Stance.REFUSED and parse(setting, text) not in (default_value(setting), (), ""):
            shown = HIDDEN if setting.is_sensitive else text
            return f"{name}={shown} is refused: {REASONS[setting.reason_key]}"
    return None


def _rule_problem(after: BrokerLayers, before: BrokerLayers) -> str | None:
    try:
        current, broken_before = config_and_broken_rules(before)
    except ConfigError:
        current, broken_before = None, []
    try:
        changed, broken_after = config_and_broken_rules(after)
    except ConfigError as problem:
        return problem.problems[0]
    broken = [f"requirement failed: {rule}" for rule in broken_after if rule not in broken_before]
    if current is not None:
        broken += broken_change_rules(current, changed)
    return broken[0] if broken else None


def effective_config(layers: BrokerLayers) -> Config:
    """The configuration in force, merged from the layers.

    A dynamic value that cannot be parsed counts as not set, as when Apache Kafka restarts.
    """
    return config_and_broken_rules(layers)[0]
