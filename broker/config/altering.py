"""Altering: what IncrementalAlterConfigs and AlterConfigs may change, and what Apache Kafka says where they may not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from broker.config.catalogue import base_name
from broker.config.config import Config, ConfigError
from broker.config.layers import NOT_AT_RUN_TIME, BrokerLayers, is_dynamic, known_setting
from broker.config.loading import overlaid
from broker.config.reasons import REASONS
from broker.config.setting import Catalogue, Stance, ValueType
from broker.config.values import InvalidValue, default_value, parse
from protocol.errors import ErrorCode


class AlterOperation(IntEnum):
    """What IncrementalAlterConfigs does with one name."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a change is not made."""

    error: ErrorCode
    message: str


@dataclass(frozen=True, slots=True)
class Alteration:
    """One change of one name."""

    name: str
    operation: AlterOperation
    value: str | None


# Security settings that Apache Kafka changes only behind a listener's prefix.
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


def altered(
    catalogue: Catalogue, current: Mapping[str, str], changes: Iterable[Alteration]
) -> dict[str, str] | Refusal:
    """The texts after changes were applied to the current ones; whether the result is valid is another question."""
    after = dict(current)
    for change in changes:
        if change.operation is AlterOperation.DELETE:
            after.pop(change.name, None)
        elif change.value is None:
            return Refusal(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {change.name}")
        elif change.operation is AlterOperation.SET:
            after[change.name] = change.value
        else:
            refusal = _alter_list(catalogue, after, change.name, change.operation, change.value)
            if refusal is not None:
                return refusal
    return after


def _alter_list(
    catalogue: Catalogue, after: dict[str, str], name: str, operation: AlterOperation, value: str
) -> Refusal | None:
    setting = catalogue.get(base_name(name))
    if setting is None or setting.type is not ValueType.LIST:
        why = f"Can't {operation.name} to key {name} because its type is not LIST."
        return Refusal(ErrorCode.INVALID_CONFIG, why)
    present = default_value(setting) if name not in after else tuple(_entries(after[name]))
    entries = list(present) if isinstance(present, tuple) else []
    before = list(entries)
    for entry in _entries(value):
        if operation is AlterOperation.APPEND and entry not in entries:
            entries.append(entry)
        elif operation is AlterOperation.SUBTRACT and entry in entries:
            entries.remove(entry)
    if entries != before:
        after[name] = ",".join(entries)
    return None


def _entries(text: str) -> list[str]:
    return [entry.strip() for entry in text.split(",") if entry.strip()]


def broker_refusal(layers: BrokerLayers, changed: Mapping[str, str], *, at_default_level: bool) -> Refusal | None:
    """Why a broker's dynamic settings may not become `changed` (all of one level); None where they may.

    `layers` are those in force. Names that nobody knows are taken, as Apache Kafka takes them.
    """
    previous = layers.dynamic_default if at_default_level else layers.dynamic_broker
    fresh = {name: text for name, text in changed.items() if previous.get(name) != text}
    message = _scope_problem(fresh, at_default_level=False)
    message = message or _value_problem(fresh)
    message = message or (_scope_problem(fresh, at_default_level=True) if at_default_level else None)
    message = message or _stance_problem(fresh)
    if message is None:
        message = _rule_problem(
            BrokerLayers(
                layers.static,
                changed if at_default_level else layers.dynamic_default,
                layers.dynamic_broker if at_default_level else changed,
            ),
            layers,
        )
    return None if message is None else Refusal(ErrorCode.INVALID_REQUEST, message)


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
    """DIVERGES: Apache Kafka applies these at run time; a change that would do nothing is refused here."""
    for name, text in changed.items():
        setting = known_setting(name)
        if setting is None:
            continue
        if name in NOT_AT_RUN_TIME:
            return f"{name} cannot be changed at run time in this version; change it in the file and start again."
        if setting.stance is Stance.REFUSED and parse(setting, text) not in (default_value(setting), (), ""):
            return f"{name}={text} is refused: {REASONS[setting.reason_key]}"
    return None


def _rule_problem(after: BrokerLayers, before: BrokerLayers) -> str | None:
    try:
        broken_before = set(overlaid(before)[1])
    except ConfigError:
        broken_before = set()
    try:
        broken = [rule for rule in overlaid(after)[1] if rule not in broken_before]
    except ConfigError as problem:
        return problem.problems[0]
    return f"requirement failed: {broken[0]}" if broken else None


def effective(layers: BrokerLayers) -> Config:
    """The configuration in force. Dynamic texts that cannot be read count as not set, as at a restart of Kafka."""
    return overlaid(layers)[0]
