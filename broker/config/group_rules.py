"""The rules for settings of groups. The bounds of such a setting are settings too, both for the broker's value and for
a group's own value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Protocol

from moldau.broker.config.catalogue import broker_catalogue, group_catalogue
from moldau.broker.config.reasons import REASONS
from moldau.broker.config.setting import Stance, Value
from moldau.broker.config.values import InvalidValue, default_value, parse

KINDS: Final = ("consumer", "share", "streams")
"""The types of groups that have settings, as the names of the settings begin."""
ASSIGNMENT_INTERVALS: Final = tuple(f"group.{kind}.assignment.interval.ms" for kind in KINDS)
"""The settings of groups that brokers may change at run time and that have bounds."""

ASSIGNOR_NAME: Final = "streams.assignor.name"
DEAD_LETTER_TOPIC: Final = "errors.deadletterqueue.topic.name"
INTERNAL_PREFIX: Final = "__"
"""A topic whose name begins with this prefix cannot be a dead letter queue."""

_ASSIGNORS: Final = {
    "group.consumer.assignors": {
        "uniform": "uniform",
        "range": "range",
        "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
        "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
    },
    "group.share.assignors": {
        "simple": "simple",
        "org.apache.kafka.coordinator.group.assignor.SimpleAssignor": "simple",
    },
    "group.streams.assignors": {"sticky": "sticky"},
}
"""The name of each assignor by setting, and by the text that may stand for it there: its name, or Apache Kafka's
class.
"""


class ReadableSettings(Protocol):
    """The settings of a broker, as these rules read them."""

    def is_set(self, name: str) -> bool: ...

    def integer(self, name: str) -> int: ...

    def entries(self, name: str) -> tuple[str, ...]: ...


def assignor_names(config: ReadableSettings, setting: str) -> tuple[str, ...]:
    """The names of the assignors in a setting of a valid configuration, in order. The first one is the default."""
    return tuple(_ASSIGNORS[setting][entry] for entry in config.entries(setting))


def broken_group_rules(config: ReadableSettings) -> Iterator[str]:
    """The rules for groups that a broker's settings break, with Apache Kafka's messages if there are any."""
    for kind in KINDS:
        heartbeat, session = f"group.{kind}.heartbeat.interval.ms", f"group.{kind}.session.timeout.ms"
        for name in (heartbeat, session, f"group.{kind}.assignment.interval.ms"):
            yield from _outside_its_bounds(config, name)
        if _is_any_set(config, heartbeat, session) and config.integer(heartbeat) >= config.integer(session):
            yield f"{heartbeat} must be less than {session}"
    yield from _share_rules(config)
    standbys, standbys_max = "group.streams.num.standby.replicas", "group.streams.max.standby.replicas"
    if config.integer(standbys) > config.integer(standbys_max):
        yield f"{standbys} must be less than or equal to {standbys_max}"
    for setting, known in _ASSIGNORS.items():
        for entry in config.entries(setting):
            if entry not in known:
                yield f"{setting}={entry} is refused: Java classes are not loaded; there are {', '.join(known)}"
    if "classic" not in config.entries("group.coordinator.rebalance.protocols"):
        yield "Disabling the 'classic' protocol is not supported."


def _outside_its_bounds(config: ReadableSettings, name: str) -> Iterator[str]:
    lowest, highest = _bounds_of(name)
    if not _is_any_set(config, name, lowest, highest):
        return
    value, low, high = config.integer(name), config.integer(lowest), config.integer(highest)
    if high < low:
        yield f"{highest} must be greater than or equal to {lowest}"
    elif value < low:
        yield f"{name} must be greater than or equal to {lowest}"
    elif value > high:
        yield f"{name} must be less than or equal to {highest}"


def _share_rules(config: ReadableSettings) -> Iterator[str]:
    for setting in ("delivery.count.limit", "partition.max.record.locks", "record.lock.duration.ms"):
        name = f"group.share.{setting}"
        lowest, highest = _bounds_of(name)
        if not _is_any_set(config, name, lowest, highest):
            continue
        if config.integer(highest) < config.integer(name):
            yield f"{highest} must be greater than or equal to {name}"
        if config.integer(name) < config.integer(lowest):
            yield f"{name} must be greater than or equal to {lowest}"
    assignors = config.entries("group.share.assignors")
    if len(assignors) != 1:
        yield f"group.share.assignors must contain exactly one assignor, but found {len(assignors)}"


def interval_refusal(config: ReadableSettings, changed: Mapping[str, Value]) -> str | None:
    """Check the assignment intervals in a change of broker settings. Returns why the change is refused; None if it is
    accepted. `changed` has the changed values, `config` the present settings of this broker.

    An interval must be within the bounds of this broker even if it is for another broker, and even if a value of this
    broker's own takes precedence over it.
    """
    for name in ASSIGNMENT_INTERVALS:
        lowest, highest = _bounds_of(name)
        message = _refusal(name, changed.get(name), config, lowest, highest)
        if message is not None:
            return message
    return None


def group_refusal(config: ReadableSettings, settings: Mapping[str, str]) -> str | None:
    """Why the settings of a group are refused (INVALID_CONFIG), with Apache Kafka's message; None if they are
    accepted.
    """
    catalogue = group_catalogue()
    for name in settings:
        if name not in catalogue:
            return f"Unknown group config name: {name}"
    values: dict[str, Value] = {}
    for name, text in settings.items():
        try:
            values[name] = parse(catalogue[name], text)
        except InvalidValue as problem:
            return str(problem)
        setting = catalogue[name]
        if setting.stance is Stance.REFUSED and values[name] not in (default_value(setting), (), ""):
            return f"{name}={text} is refused: {REASONS[setting.reason_key]}"
    assignor, assignors = values.get(ASSIGNOR_NAME), assignor_names(config, "group.streams.assignors")
    if assignor is not None and assignor not in assignors:
        registered = ", ".join(assignors)
        return (
            f"{ASSIGNOR_NAME} '{assignor}' is not a registered task assignor. Registered assignors are: [{registered}]."
        )
    for name, value in values.items():
        message = _refusal(name, value, config, *_bounds_of(f"group.{name}"))
        if message is not None:
            return message
    for kind in KINDS:
        names = f"{kind}.heartbeat.interval.ms", f"{kind}.session.timeout.ms"
        heartbeat, session = (values.get(name) or config.integer(f"group.{name}") for name in names)
        assert isinstance(heartbeat, int) and isinstance(session, int)
        if session <= heartbeat:
            return f"{names[1]} must be greater than {names[0]}"
    queue = values.get(DEAD_LETTER_TOPIC)
    if isinstance(queue, str) and queue.startswith(INTERNAL_PREFIX):
        return f"{DEAD_LETTER_TOPIC}: DLQ topic name must not start with '__'"
    return None


def _bounds_of(name: str) -> tuple[str, str]:
    """The names of the settings that are the lower and the upper bound of a group setting of brokers. These settings
    need not exist.
    """
    _, kind, rest = name.split(".", 2)
    return f"group.{kind}.min.{rest}", f"group.{kind}.max.{rest.removeprefix('num.')}"


def _refusal(name: str, value: Value, config: ReadableSettings, lowest: str, highest: str) -> str | None:
    """Why a value is refused, because it is not between the values of the settings `lowest` and `highest`; None if it
    is.
    """
    if not isinstance(value, int):
        return None
    if lowest in broker_catalogue() and value < config.integer(lowest):
        return f"{name} must be greater than or equal to {lowest}"
    if highest in broker_catalogue() and value > config.integer(highest):
        return f"{name} must be less than or equal to {highest}"
    return None


def _is_any_set(config: ReadableSettings, *names: str) -> bool:
    return any(config.is_set(name) for name in names)
