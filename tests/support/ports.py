"""Ports of 127.0.0.1 for the processes that tests start."""

from __future__ import annotations

import os
import socket

FIRST, END = 12_000, 32_000
"""Below the range from which the system takes the ports of outgoing connections."""

_next = FIRST + os.getpid() * 37 % (END - FIRST)


def free_port() -> int:
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """So many ports that are free now, one after the other.

    A process of the tests begins at a place of its own and goes on from there, so that two calls never share a port,
    and no outgoing connection takes one before the node that it is for listens.
    """
    global _next
    for _ in range(FIRST, END):
        first = _next if _next + count <= END else FIRST
        _next = first + count
        found = range(first, first + count)
        if all(_is_free(port) for port in found):
            return list(found)
    raise AssertionError(f"no {count} free ports in a row from {FIRST} to {END}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
