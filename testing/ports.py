"""Finds free ports of the loopback address for nodes that a test starts."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from itertools import count
from typing import Final

HOST: Final = "127.0.0.1"
PORTS: Final = range(20_000, 32_000)
"""The ports of nodes. They are below the ports that systems use for outgoing connections. So no outgoing connection
takes the port of a node that a test has ended and will start again, and no client is connected to itself at such a
port."""
STEP: Final = 997
"""The distance in `PORTS` between the first ports of processes with successive ids."""
_numbers = count(int.from_bytes(os.urandom(2)))
"""Counts the ports that this process tries. It begins at a random number, so that processes with the same id in two
containers on one network try different ports.
"""


def free_ports(number: int) -> list[int]:
    """Successive ports of `PORTS` on which no process listens now. Another process may take one of them before a node
    does.

    A process begins at a port that depends on its id and continues from there, so that two calls never give the same
    port before all of `PORTS` were given.
    """
    found: list[int] = []
    for _ in range(2 * len(PORTS)):
        port = PORTS[(os.getpid() * STEP + next(_numbers)) % len(PORTS)]
        found = [port] if not found or port != found[-1] + 1 else [*found, port]
        if not is_free(port):
            found = []
        if len(found) == number:
            return found
    raise OSError(f"there are no {number} free ports in a row from {PORTS.start} to {PORTS.stop - 1}")


def is_free(port: int) -> bool:
    """Whether a node could listen on the port of the loopback address now."""
    with socket.socket() as probe, suppress(OSError):
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections of former clients do not count
        probe.bind((HOST, port))
        return True
    return False
