"""The error message of a node that cannot start: one line that ends with advice."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from moldau.broker.metadata.quorum_start import UnsupportedFeatures

if TYPE_CHECKING:
    from moldau.broker.config.config import Config

PRIVILEGED_PORTS_END: Final = 1024
OTHER_PORTS_DISTANCE: Final = 10_000
"""The distance from the ports that are taken to those in the example of the message."""
PORT_MAX: Final = 65_535


def refusal_line(problem: Exception, config: Config) -> str:
    """One line with the problem, and the usual remedy where there is one."""
    remedy = remedy_of(problem, config)
    return f"{described(problem)}. {remedy}" if remedy else described(problem)


def described(problem: Exception) -> str:
    """An operating system error without its number: the file, and the system's message."""
    if not isinstance(problem, OSError) or problem.strerror is None:
        return str(problem)
    if isinstance(problem, BlockingIOError):
        return f"another process serves {str(problem.filename).rpartition('/')[0]}"
    return f"{problem.filename}: {problem.strerror}" if problem.filename is not None else problem.strerror


def remedy_of(problem: Exception, config: Config) -> str | None:
    """Advice for the operator about an error; None where there is no known remedy."""
    if isinstance(problem, UnsupportedFeatures):
        return downgrade(problem.supported)
    if isinstance(problem, BlockingIOError):
        return "Stop that process, or give this node a directory of its own (--data DIR, or log.dirs in the file)"
    if not isinstance(problem, OSError) or problem.errno is None:
        return None
    if problem.errno == errno.EADDRINUSE:
        if "moldau.http.listener" in described(problem):
            return "Stop the process that has the port, or set moldau.http.listener to another one"
        return f"Stop the process that has the port, or choose others: {other_ports(config)}"
    if problem.filename is None and problem.errno in (errno.EACCES, errno.EPERM):
        return f"Ports below {PRIVILEGED_PORTS_END} need privileges; choose others: {other_ports(config)}"
    return REMEDIES.get(problem.errno)


def downgrade(supported: Mapping[str, int]) -> str:
    """The command that downgrades features, and when to run it. This node reads its own metadata log first, so its
    former process must have received the downgrade.
    """
    levels = " ".join(f"--feature {name}={level}" for name, level in supported.items())
    return (
        "A cluster of Apache Kafka has to downgrade them while the former process of this node still runs: start it"
        f" again on this directory, run kafka-features.sh --bootstrap-server HOST:PORT downgrade {levels}, then stop it"
    )


def other_ports(config: Config) -> str:
    """An option that moves every listener to a port that is probably free."""
    listeners = []
    for each in config.listeners:
        port = each.port + OTHER_PORTS_DISTANCE
        listeners.append(f"{each.name}://{each.host}:{port if port <= PORT_MAX else each.port - OTHER_PORTS_DISTANCE}")
    return f"--override listeners={','.join(listeners)}"


_NOT_WRITABLE: Final = (
    "The node must be able to write there: change the owner of the directory, run the node as its owner, or choose"
    " another directory (--data DIR, or log.dirs in the file)"
)
REMEDIES: Final[Mapping[int, str]] = {
    errno.EACCES: _NOT_WRITABLE,
    errno.EPERM: _NOT_WRITABLE,
    errno.EROFS: _NOT_WRITABLE,
    errno.ENOTDIR: "Choose a directory (--data DIR, or log.dirs in the file)",
    errno.ENOSPC: "Make room on that disk, or choose a directory on another one (--data DIR, or log.dirs in the file)",
    errno.EADDRNOTAVAIL: "Name an address of this machine in listeners",
    errno.EMFILE: "Raise the limit of the process's file descriptors (ulimit -n)",
}
