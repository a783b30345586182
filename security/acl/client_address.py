"""The address of a client in the form that ACLs use: the text that Java makes of an address."""

from __future__ import annotations


def java_address(host: str) -> str:
    """A client's address in Java's notation, which ACLs are compared with.

    Java writes all eight groups of an IPv6 address, and an IPv4 address that is mapped into IPv6 as IPv4. A host name
    stays as it is.
    """
    if ":" not in host:
        return host
    from ipaddress import AddressValueError, IPv6Address

    text, percent, scope = host.partition("%")
    try:
        address = IPv6Address(text)
    except AddressValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return ":".join(f"{int(each, 16):x}" for each in address.exploded.split(":")) + percent + scope
