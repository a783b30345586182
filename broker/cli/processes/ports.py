"""Checks that the ports of several processes are free."""

from __future__ import annotations

import errno
import socket


def is_free(host: str, port: int) -> bool:
    """Whether an address can be bound, as far as can be known before the node listens. An empty host means every
    interface. True for a malformed address, because the node refuses it later.
    """
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError:
        return True
    family, kind, _, _, address = found[0]
    with socket.socket(family, kind) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # Connections of former clients do not count.
        try:
            probe.bind(address)
        except OSError as problem:
            return problem.errno != errno.EADDRINUSE
    return True
