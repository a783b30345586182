"""Parses listeners of the form NAME://host:port, with Apache Kafka's checks, and the address of the HTTP listener.
Declares `ListenerConfig`, the part of a configuration from which TLS and SASL settings are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final, Protocol

from moldau.broker.config.setting import Password
from moldau.protocol.late_dataclass import dataclass
from moldau.protocol.late_tuple import NamedTuple

SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

EVERY_INTERFACE: Final = ("", "0.0.0.0", "::")
"""The hosts that mean every network interface, in the address of a listener."""
ENDPOINT: Final = "a listener is NAME://HOST:PORT, such as PLAINTEXT://:9092"
PROTOCOL_MAP: Final = "listener.security.protocol.map takes {name}:PLAINTEXT, with the protocols of all other listeners"
_HTTP_ADDRESS: Final = r"http://(\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z._-]*):([0-9]{1,5})/?"
_ADDRESS: Final = r"(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:([0-9]+)"


class InvalidListener(Exception):
    """Raised for a listener that cannot be parsed, or that conflicts with another one. The message is Apache
    Kafka's.
    """


@dataclass(frozen=True, slots=True)
class ListenerAddress:
    """A listener's address: the one that the node binds, or the one that it advertises.

    An empty host means every network interface in the bound address, and the name of this machine in the advertised
    one.
    """

    name: str
    host: str
    port: int
    security_protocol: str


def read_protocol_map(text: str) -> dict[str, str]:
    """Parse NAME:PROTOCOL,NAME:PROTOCOL into the security protocol of each listener name. Raises `InvalidListener`."""
    protocols: dict[str, str] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, colon, protocol = (part.strip() for part in entry.rpartition(":"))
        if not colon:
            raise InvalidListener(
                f"Error parsing configuration property 'listener.security.protocol.map': {entry} is not NAME:PROTOCOL"
            )
        if protocol.upper() not in SECURITY_PROTOCOLS:
            raise InvalidListener(
                f"Invalid security protocol `{protocol}` defined in listener.security.protocol.map; "
                f"one of {', '.join(SECURITY_PROTOCOLS)} is allowed"
            )
        protocols[name.upper()] = protocol.upper()
    return protocols


def read_listeners(
    entries: tuple[str, ...], protocols: Mapping[str, str], *, same_port: bool
) -> tuple[ListenerAddress, ...]:
    """Parse a list of listeners, in its order. Raises `InvalidListener`.

    `same_port`: whether two listeners may have the same port, as advertised listeners may.
    """
    listeners = [_read_listener(entry, entries, protocols) for entry in entries]
    names = [listener.name for listener in listeners]
    if len(set(names)) != len(names):
        raise _error(entries, f"Each listener must have a different name, listeners: {_shown(entries)}")
    if not same_port:
        _check_ports(listeners, entries)
    return tuple(listeners)


def with_bound_addresses(
    listeners: Iterable[ListenerAddress], host_name: str, bound_ports: Mapping[str, int]
) -> tuple[ListenerAddress, ...]:
    """Complete advertised addresses for clients: an empty host becomes `host_name`, port 0 becomes the bound port."""
    return tuple(
        replace(each, host=each.host or host_name, port=each.port or bound_ports[each.name]) for each in listeners
    )


def _read_listener(entry: str, entries: tuple[str, ...], protocols: Mapping[str, str]) -> ListenerAddress:
    match = re.fullmatch(_ADDRESS, entry.strip())
    if match is None:
        raise _error(entries, f"Unable to parse {entry} to a broker endpoint ({ENDPOINT})")
    name = match[1].upper()
    if name not in protocols:
        raise _error(entries, f"No security protocol defined for listener {name} ({PROTOCOL_MAP.format(name=name)})")
    if int(match[3]) > 65535:
        # DIVERGES: Apache Kafka accepts any number here and fails later, when it binds.
        raise _error(entries, f"Port {match[3]} of listener {name} is larger than 65535")
    return ListenerAddress(name, match[2], int(match[3]), protocols[name])


def _check_ports(listeners: list[ListenerAddress], entries: tuple[str, ...]) -> None:
    hosts: dict[int, list[str]] = {}
    for listener in listeners:
        if listener.port != 0:
            hosts.setdefault(listener.port, []).append(listener.host)
    for port, sharing in hosts.items():
        why = _cannot_share(sharing)
        if why:
            raise _error(entries, why.format(listeners=_shown(entries), port=port))


def _cannot_share(hosts: list[str]) -> str | None:
    """Why listeners on these hosts cannot share a port; None if they can, because one host is IPv4 and the other
    IPv6.
    """
    if len(hosts) == 1:
        return None
    families = [_family(host) for host in hosts]
    if None not in families and len(hosts) == 2:
        if families[0] != families[1]:
            return None
        return (
            "If you have two listeners on the same port then one needs to be IPv4 and the other IPv6, "
            "listeners: {listeners}, port: {port}"
        )
    if not any(families):
        return "Each listener must have a different port, listeners: {listeners}"
    return (
        "Each listener must have a different port unless exactly one listener has an IPv4 address and the other "
        "IPv6 address, listeners: {listeners}, port: {port}"
    )


def _family(host: str) -> int | None:
    if ":" in host:
        return 6
    return 4 if re.fullmatch(r"[0-9]+(\.[0-9]+){3}", host) else None


def _shown(entries: tuple[str, ...]) -> str:
    return f"[{', '.join(entries)}]"


def _error(entries: tuple[str, ...], why: str) -> InvalidListener:
    return InvalidListener(f"Error creating broker listeners from '{_shown(entries)}': {why}")


class SettingValues(Protocol):
    """The values of settings by name: the configured value, or else the default."""

    def is_set(self, name: str) -> bool: ...

    def integer(self, name: str) -> int: ...

    def integer_or_none(self, name: str) -> int | None: ...

    def real(self, name: str) -> float: ...

    def flag(self, name: str) -> bool: ...

    def text(self, name: str) -> str: ...

    def text_or_none(self, name: str) -> str | None: ...

    def password(self, name: str) -> Password | None: ...

    def entries(self, name: str) -> tuple[str, ...]: ...

    def listener_setting_name(self, listener: str, name: str) -> str: ...


class ListenerConfig(Protocol):
    """The part of a configuration from which TLS and SASL settings are read: the settings, and the listeners that the
    node has or connects to.
    """

    @property
    def settings(self) -> SettingValues: ...

    @property
    def listeners(self) -> tuple[ListenerAddress, ...]: ...

    @property
    def listener_protocols(self) -> Mapping[str, str]: ...

    @property
    def controller_listener_names(self) -> tuple[str, ...]: ...

    @property
    def inter_broker_listener_name(self) -> str: ...

    @property
    def is_broker(self) -> bool: ...


class HttpAddress(NamedTuple):
    """The address of the HTTP listener. An empty host means every network interface."""

    host: str
    port: int


class LocalAddress(NamedTuple):
    """The address of an HTTP server that only processes on the same machine reach: the path of its Unix socket."""

    path: str


def read_http_address(text: str) -> HttpAddress | None:
    """Parse http://host:port; None for any other text."""
    match = re.fullmatch(_HTTP_ADDRESS, text.strip())
    if match is None or int(match[2]) > 65535:
        return None
    return HttpAddress(match[1].strip("[]"), int(match[2]))
