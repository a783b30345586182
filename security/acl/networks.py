"""Networks in CIDR notation as the hosts of ACLs: parses them, and decides which addresses are in them.

    10.1.0.0/16         IPv4: four decimal numbers, which may begin with zeros, and a prefix of one or two digits
    2001:db8::/32       IPv6: an address that maps no IPv4 address, and a decimal prefix; a scope after % is ignored

The address may have bits beyond the prefix: 10.1.2.3/16 is 10.1.0.0/16. An IPv4 network contains no IPv6 address, and
an IPv6 network no IPv4 address.
"""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import AddressValueError, IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final

SEPARATOR: Final = "/"
"""The character that a network has and an address does not have."""
Network = IPv4Network | IPv6Network
ADDRESSES_MAX: Final = 10_000
"""The maximum number of client addresses whose parsed form is cached."""
_IPV4: Final = re.compile(r"(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})/(\d{1,2})", re.ASCII)
_DECIMAL: Final = re.compile(r"\d{1,9}", re.ASCII)


class InvalidNetwork(ValueError):
    """Raised if a text is not a network in CIDR notation. The message is that of Apache Kafka."""


def network_of(text: str) -> Network:
    """Parse a network. Raises `InvalidNetwork`."""
    return _ipv6_network(text) if ":" in text else _ipv4_network(text)


def _ipv4_network(text: str) -> IPv4Network:
    match = _IPV4.fullmatch(text)
    if match is None:
        raise InvalidNetwork(f"Could not parse [{text}]")
    *octets, prefix = map(int, match.groups())
    for octet in octets:
        if octet > 255:
            raise InvalidNetwork(f"Value [{octet}] not in range [0,255]")
    if prefix > 32:
        raise InvalidNetwork(f"Value [{prefix}] not in range [0,32]")
    return IPv4Network((int.from_bytes(bytes(octets), "big"), prefix), strict=False)


def _ipv6_network(text: str) -> IPv6Network:
    address, _, prefix = text.partition(SEPARATOR)
    if SEPARATOR in prefix:
        raise InvalidNetwork(f"Could not parse [{text}]")
    if _DECIMAL.fullmatch(prefix.removeprefix("-")) is None:
        raise InvalidNetwork(f"Could not parse [{text}] - invalid prefix length")
    if not 0 <= int(prefix) <= 128:
        raise InvalidNetwork(f"Could not parse [{text}] - prefix length must be between 0 and 128")
    try:
        parsed = IPv6Address(address.partition("%")[0])
    except AddressValueError:
        raise InvalidNetwork(f"Could not parse [{address}]") from None
    if parsed.ipv4_mapped is not None:
        raise InvalidNetwork(f"Could not parse [{address}] - not an IPv6 address")
    return IPv6Network((int(parsed), int(prefix)), strict=False)


@lru_cache(ADDRESSES_MAX)
def address_of(host: str) -> IPv4Address | IPv6Address | None:
    """Parse the address of a client in Java's notation. Returns None for a host name, which is in no network."""
    try:
        return ip_address(host.partition("%")[0])
    except ValueError:
        return None


def is_in_network(host: str, text: str) -> bool:
    """Whether `text` is a network in CIDR notation that contains the address `host`."""
    if SEPARATOR not in text:
        return False
    address = address_of(host)
    try:
        return address is not None and address in network_of(text)
    except InvalidNetwork:
        return False
