"""The configuration of a node: its settings, checked for consistency as Apache Kafka checks them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from moldau.broker.config.catalogue import base_name, broker_catalogue, unit_synonyms
from moldau.broker.config.listeners import ListenerAddress
from moldau.broker.config.setting import Password, Stance, Value
from moldau.broker.config.values import default_value
from moldau.protocol.late_dataclass import dataclass

_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 3_600_000
T = TypeVar("T")


class ConfigError(Exception):
    """Raised if settings are invalid. `problems` lists all problems, not only the first."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class ConfigValues:
    """The values of settings by name: the configured value, or else the default. A name that is not in the catalogue
    raises KeyError.
    """

    __slots__ = ("_defaults", "_values")

    def __init__(self, values: Mapping[str, Value]) -> None:
        self._values = dict(values)
        self._defaults: dict[str, Value] = {}

    def is_set(self, name: str) -> bool:
        """Whether the setting has a configured value."""
        return name in self._values

    def value(self, name: str) -> Value:
        """The value of a setting: the configured one, or else the default, which is None for some settings."""
        if name in self._values:
            return self._values[name]
        if name not in self._defaults:
            self._defaults[name] = default_value(broker_catalogue()[base_name(name)])
        return self._defaults[name]

    def integer(self, name: str) -> int:
        """The value of a setting of type int, short or long."""
        value = self.value(name)
        assert isinstance(value, int) and not isinstance(value, bool), f"{name} is not a whole number: {value!r}"
        return value

    def integer_or_none(self, name: str) -> int | None:
        """The value of a setting of type int, short or long; None if it is not set and has no default."""
        return None if self.value(name) is None else self.integer(name)

    def real(self, name: str) -> float:
        """The value of a setting of type double."""
        value = self.value(name)
        assert isinstance(value, float), f"{name} is not a double: {value!r}"
        return value

    def flag(self, name: str) -> bool:
        """The value of a setting of type boolean."""
        value = self.value(name)
        assert isinstance(value, bool), f"{name} is not a boolean: {value!r}"
        return value

    def text(self, name: str) -> str:
        """The value of a setting of type string or class."""
        value = self.value(name)
        assert isinstance(value, str), f"{name} is not a text: {value!r}"
        return value

    def text_or_none(self, name: str) -> str | None:
        """The value of a setting of type string or class; None if it is not set and has no default."""
        return None if self.value(name) is None else self.text(name)

    def password(self, name: str) -> Password | None:
        """The value of a setting of type password; None if it is not set."""
        value = self.value(name)
        assert value is None or isinstance(value, Password), f"{name} is not a password"
        return value

    def listener_setting_name(self, listener: str, name: str) -> str:
        """The name under which a setting of a listener is read: the name with the listener's prefix if it has a
        configured value, or else the name without a prefix.
        """
        own = f"listener.name.{listener.lower()}.{name}"
        return own if self.is_set(own) else name

    def entries(self, name: str) -> tuple[str, ...]:
        """The value of a setting of type list; empty if the setting has none."""
        value = self.value(name)
        assert value is None or isinstance(value, tuple), f"{name} is not a list: {value!r}"
        return value or ()

    def duration_ms(self, name: str) -> int:
        """The value of a setting in ms. If only its synonym in minutes or hours is set, that value is converted."""
        for synonym in unit_synonyms(name):
            value = self.integer_or_none(synonym)
            if value is not None:
                return value * _unit_ms(synonym)
        raise AssertionError(f"{name} has no default in any unit")


@dataclass(frozen=True, slots=True)
class ControllerVoter:
    """A voter of a static metadata quorum (controller.quorum.voters)."""

    node_id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Config:
    """The configuration of a node. Single settings are read by Kafka's names, through `settings` or the methods."""

    settings: ConfigValues
    originals: Mapping[str, str | Password]  # All settings as texts, from the file, the environment and the overrides.
    warnings: tuple[str, ...]
    node_id: int
    process_roles: frozenset[str]
    listener_protocols: Mapping[str, str]  # By listener name, including names without a listener.
    listeners: tuple[ListenerAddress, ...]
    advertised_listeners: tuple[ListenerAddress, ...]  # The listeners of the broker.
    advertised_controller_listeners: tuple[ListenerAddress, ...]
    controller_listener_names: tuple[str, ...]
    inter_broker_listener_name: str
    controller_quorum_voters: tuple[ControllerVoter, ...]
    controller_quorum_bootstrap_servers: tuple[str, ...]
    log_dirs: tuple[str, ...]
    metadata_log_dir: str
    log_retention_ms: int  # -1 for no limit.
    log_roll_ms: int
    log_roll_jitter_ms: int
    log_flush_interval_ms: int

    @property
    def is_broker(self) -> bool:
        """Whether this node serves clients."""
        return "broker" in self.process_roles

    @property
    def is_controller(self) -> bool:
        """Whether this node is a controller of the metadata quorum."""
        return "controller" in self.process_roles

    @property
    def broker_listeners(self) -> tuple[ListenerAddress, ...]:
        """The addresses on which the node listens for clients and other brokers."""
        return tuple(each for each in self.listeners if each.name not in self.controller_listener_names)

    @property
    def controller_listeners(self) -> tuple[ListenerAddress, ...]:
        """The addresses on which the node listens as a controller."""
        return tuple(each for each in self.listeners if each.name in self.controller_listener_names)

    def integer(self, name: str) -> int:
        """The value of a setting of type int, short or long."""
        return self.settings.integer(name)

    def real(self, name: str) -> float:
        """The value of a setting of type double."""
        return self.settings.real(name)

    def flag(self, name: str) -> bool:
        """The value of a setting of type boolean."""
        return self.settings.flag(name)

    def text(self, name: str) -> str:
        """The value of a setting of type string or class."""
        return self.settings.text(name)

    def text_or_none(self, name: str) -> str | None:
        """The value of a setting of type string or class; None if it is not set and has no default."""
        return self.settings.text_or_none(name)

    def entries(self, name: str) -> tuple[str, ...]:
        """The value of a setting of type list; empty if the setting has none."""
        return self.settings.entries(name)


def _unit_ms(name: str) -> int:
    if name.endswith(".hours"):
        return _HOUR_MS
    return _MINUTE_MS if name.endswith(".minutes") else 1


def object_of_settings(make: type[T], values: ConfigValues, *prefixes: str, **given: object) -> T:
    """Make an object of the class `make`, whose fields are named like settings. With the prefix `group.share.`, the
    field `max_size` gets the value of group.share.max.size.

    Of several prefixes, the first one is used with which the name is that of a setting that is set or honoured. `given`
    has the values of further fields. All other fields keep the default of the class.
    """
    made: Any = make
    fields = made._fields if hasattr(made, "_fields") else made.__dataclass_fields__
    for field in fields:
        names = (f"{prefix}{field.replace('_', '.')}" for prefix in prefixes)
        name = next((name for name in names if _is_honoured(values, name)), None)
        if field not in given and name is not None:
            given[field] = values.value(name)
    return make(**given)


def _is_honoured(values: ConfigValues, name: str) -> bool:
    setting = broker_catalogue().get(name)
    return values.is_set(name) or (setting is not None and setting.stance is Stance.HONOURED)
