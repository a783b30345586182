"""Loads a configuration: checks properties, collects warnings and all problems, and makes a `Config`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from moldau.broker.config.catalogue import base_name, broker_catalogue, broker_setting
from moldau.broker.config.config import Config, ConfigError, ConfigValues, ControllerVoter
from moldau.broker.config.layers import BrokerLayers
from moldau.broker.config.listeners import InvalidListener, ListenerAddress, read_listeners, read_protocol_map
from moldau.broker.config.reasons import REASONS, advice_for, refusal_of
from moldau.broker.config.rules import broken_rules
from moldau.broker.config.setting import HIDDEN, Password, Setting, Stance, Value
from moldau.broker.config.tiering import METADATA_TOPIC_SETTINGS
from moldau.broker.config.values import InvalidValue, allowed_text, default_value, parse, value_text

FOLDER_SETTINGS: Final = ("log.dir", "log.dirs", "metadata.log.dir")
"""Settings whose values are directories."""
# Prefixes of settings for plug-ins, none of which is loaded here.
_PLUGIN_PREFIXES = {"rsm.config.": "tiered", "rlmm.config.": "tiered", "config.providers.": "plugin"}

# Settings that may have a listener's prefix, besides TLS and SASL.
OF_ONE_LISTENER = ("max.connections", "max.connection.creation.rate", "connections.max.reauth.ms")


def checked_config(
    properties: Mapping[str, str], unknown_variables: Sequence[str] = (), warnings: Sequence[str] = ()
) -> Config:
    """Check the properties of a node, and make its configuration. Raises `ConfigError` with all problems.

    `unknown_variables` are environment variables that name no setting; a warning lists them. `warnings` come from
    reading the properties, and are added to those of the configuration.
    """
    reading = _Reading()
    reading.warnings += warnings
    if unknown_variables:
        reading.warnings.append(f"No setting has the name of these variables: {', '.join(unknown_variables)}.")
    sealed = {name: _sealed(name, text) for name, text in properties.items()}
    for name, text in sealed.items():
        reading.read(name, text)
    reading.require_what_has_no_default(properties)
    if reading.problems:
        raise ConfigError(reading.problems)
    settings = ConfigValues(reading.values)
    try:
        config = _derive(settings, sealed, reading.all_warnings())
    except InvalidListener as problem:
        raise ConfigError([str(problem)]) from None
    problems = list(broken_rules(config))
    if problems:
        raise ConfigError(problems)
    return config


def is_setting(name: str) -> bool:
    """Whether this broker or a release of Apache Kafka has a setting with this name. Settings of plug-ins count."""
    is_known = broker_setting(name) is not None or name in METADATA_TOPIC_SETTINGS
    return is_known or bool(refusal_of(name) or advice_for(name)) or name.startswith(tuple(_PLUGIN_PREFIXES))


def config_and_broken_rules(layers: BrokerLayers) -> tuple[Config, list[str]]:
    """Make the configuration of a running node from its static and dynamic settings. Returns it with the rules that it
    breaks, as messages. A dynamic value that cannot be parsed counts as not set.
    """
    reading = _Reading()
    flat = layers.merged_settings()
    for name, text in flat.items():
        reading.read(name, text if _is_readable(name, text) else layers.static.get(name, text))
    settings = ConfigValues(reading.values)
    config = _derive(settings, layers.static, ())
    return config, list(broken_rules(config))


def _sealed(name: str, text: str) -> str | Password:
    """Replace the texts of passwords by `Password` values, whose text only `reveal` returns."""
    setting = broker_setting(name)
    return Password(text.strip()) if setting is not None and setting.is_sensitive else text


def _is_readable(name: str, text: str | Password) -> bool:
    setting = broker_setting(name)
    if setting is None:
        return True
    try:
        parse(setting, text)
    except InvalidValue:
        return False
    return True


class _Reading:
    """Collects the values, warnings and problems of properties, one after the other."""

    def __init__(self) -> None:
        self.values: dict[str, Value] = {}
        self.warnings: list[str] = []
        self.without_effect: dict[str, list[str]] = {}  # Settings by the reason for which they have no effect.
        self.problems: list[str] = []

    def read(self, name: str, text: str | Password) -> None:
        """Check one property, and note its value, a warning or a problem."""
        refusal = refusal_of(name)
        if refusal:
            shown = HIDDEN if "secret" in name or "password" in name else text
            self.problems.append(f"{name}={shown} is refused: {refusal}.")
            return
        setting = broker_setting(name)
        if setting is None:
            self._read_unknown(name)
            return
        try:
            value = parse(setting, text)
        except InvalidValue as problem:
            self.problems.append(f"{problem} ({name} takes {allowed_text(setting)})")
            return
        self.values[name] = value
        folder = (value_text(value) or "") if name in FOLDER_SETTINGS else ""
        if folder.startswith("~"):
            self.warnings.append(f"{name}={folder}: ~ is a home folder in a shell alone; here it is a folder ~.")
        if value != default_value(setting):
            self._judge(name, setting, value)

    def _judge(self, name: str, setting: Setting, value: Value) -> None:
        shown = value_text(value)
        reason = REASONS.get(setting.reason_key, "")
        if setting.stance is Stance.REFUSED and value not in ((), "", None):
            default = setting.default_text
            advice = "Remove it" + (f", or set it to its default {default}" if default else "")
            self.problems.append(f"{name}={shown} is refused: {reason} {advice}.")
        elif setting.stance is Stance.ACCEPTED:
            self.without_effect.setdefault(reason, []).append(f"{name}={shown}")
        elif base_name(name) not in (name, *OF_ONE_LISTENER) and not base_name(name).startswith(("ssl.", "sasl.")):
            self.without_effect.setdefault(REASONS["listener"], []).append(f"{name}={shown}")

    def _read_unknown(self, name: str) -> None:
        advice = advice_for(name)
        if name in METADATA_TOPIC_SETTINGS:
            return
        prefixes = [key for prefix, key in _PLUGIN_PREFIXES.items() if name.startswith(prefix)]
        if advice:
            self.warnings.append(f"{name} has no effect since Apache Kafka 4.0: {advice}.")
        elif prefixes:
            self.without_effect.setdefault(REASONS[prefixes[0]], []).append(name)
        else:
            self.warnings.append(f"{name} is not a name that Apache Kafka 4.3.1 knows; it has no effect{_meant(name)}.")

    def all_warnings(self) -> tuple[str, ...]:
        """The warnings: one for each unknown name, and one for each reason why settings have no effect."""
        grouped = (f"No effect: {', '.join(names)}. {reason}" for reason, names in self.without_effect.items())
        return (*self.warnings, *grouped)

    def require_what_has_no_default(self, properties: Mapping[str, str]) -> None:
        """Note a problem for each required setting that is missing. As in Apache Kafka, node.id and broker.id may
        replace each other.
        """
        node_id, broker_id = self.values.get("node.id"), self.values.get("broker.id")
        if node_id is None and broker_id is not None:
            self.values["node.id"] = broker_id
            if isinstance(broker_id, int) and broker_id < 0:
                self.problems.append(f"Invalid value {broker_id} for configuration node.id: Value must be at least 0")
        elif node_id is not None and broker_id not in (None, node_id):
            self.problems.append("You must set `node.id` to the same value as `broker.id`.")
        self.values["broker.id"] = self.values.get("node.id", -1)
        for name, setting in broker_catalogue().items():
            is_there = name in properties or (name == "node.id" and "broker.id" in properties)
            if setting.is_required and not is_there:
                self.problems.append(
                    f'Missing required configuration "{name}" which has no default value '
                    f"({name} takes {allowed_text(setting)})"
                )


def _meant(name: str) -> str:
    """The end of a warning that asks whether a similar known name was meant; empty if no known name is similar."""
    from difflib import get_close_matches  # only a mistake needs it

    close = get_close_matches(name, broker_catalogue(), 1, 0.85)
    return f" (did you mean {close[0]}?)" if close else ""


def _derive(settings: ConfigValues, properties: Mapping[str, str | Password], warnings: tuple[str, ...]) -> Config:
    protocols = _protocols(settings)
    controller_names = settings.entries("controller.listener.names")
    listeners = read_listeners(settings.entries("listeners"), protocols, same_port=False)
    told = read_listeners(settings.entries("advertised.listeners"), protocols, same_port=True)
    voters = tuple(_read_voter(entry) for entry in settings.entries("controller.quorum.voters"))
    log_dirs = settings.entries("log.dirs") or settings.entries("log.dir")
    return Config(
        settings=settings,
        originals=dict(properties),
        warnings=warnings,
        node_id=settings.integer("node.id"),
        process_roles=frozenset(settings.entries("process.roles")),
        listener_protocols=protocols,
        listeners=listeners,
        advertised_listeners=tuple(each for each in told or listeners if each.name not in controller_names),
        advertised_controller_listeners=_advertised_controllers(settings, listeners, told, voters),
        controller_listener_names=controller_names,
        inter_broker_listener_name=settings.text_or_none("inter.broker.listener.name")
        or settings.text("security.inter.broker.protocol"),
        controller_quorum_voters=voters,
        controller_quorum_bootstrap_servers=settings.entries("controller.quorum.bootstrap.servers"),
        log_dirs=log_dirs,
        metadata_log_dir=settings.text_or_none("metadata.log.dir") or log_dirs[0],
        log_retention_ms=max(-1, settings.duration_ms("log.retention.ms")) or 0,
        log_roll_ms=settings.duration_ms("log.roll.ms"),
        log_roll_jitter_ms=settings.duration_ms("log.roll.jitter.ms"),
        log_flush_interval_ms=settings.duration_ms("log.flush.interval.ms"),
    )


def _protocols(settings: ConfigValues) -> dict[str, str]:
    """The security protocol of each listener name. By default, a controller's listener is PLAINTEXT."""
    protocols = read_protocol_map(settings.text("listener.security.protocol.map"))
    if settings.is_set("listener.security.protocol.map"):
        return protocols
    names = {entry.partition("://")[0].upper() for entry in settings.entries("listeners")}
    if not any(name.startswith(("SSL", "SASL_")) for name in names):
        for name in settings.entries("controller.listener.names"):
            protocols.setdefault(name, "PLAINTEXT")
    return protocols


def _advertised_controllers(
    settings: ConfigValues,
    listeners: tuple[ListenerAddress, ...],
    told: tuple[ListenerAddress, ...],
    voters: tuple[ControllerVoter, ...],
) -> tuple[ListenerAddress, ...]:
    """The advertised addresses of the controller's listeners: those that are configured, or else the address in
    controller.quorum.voters, or else the bound addresses.
    """
    names = settings.entries("controller.listener.names")
    said = [each for each in told if each.name in names]
    me = next((voter for voter in voters if voter.node_id == settings.integer("node.id")), None)
    for each in listeners:
        if each.name in names and each.name not in {other.name for other in said}:
            host = "" if each.host == "0.0.0.0" else each.host
            port = each.port
            if me is not None and not said:
                host, port = me.host, me.port
            said.append(ListenerAddress(each.name, host, port, each.security_protocol))
    return tuple(said)


def _read_voter(entry: str) -> ControllerVoter:
    node_id, _, address = entry.partition("@")
    host, _, port = address.rpartition(":")
    return ControllerVoter(int(node_id), host.strip("[]"), int(port))
