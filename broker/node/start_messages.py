"""The messages of a start for the operator: warnings about advertised addresses that clients may be unable to reach,
the report of the start, and the error of a node that cannot start.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from moldau import __version__
from moldau.broker.config.config import Config
from moldau.broker.config.listeners import EVERY_INTERFACE, ListenerAddress, read_http_address, with_bound_addresses
from moldau.broker.metadata.quorum_start import UnsupportedFeatures
from moldau.broker.release import KAFKA_VERSION, interpreter_text, is_compiled
from moldau.protocol.late_dataclass import dataclass

if TYPE_CHECKING:
    from moldau.broker.replicas.log_directories import OpeningResult

_CONTAINER_NAME: Final = r"[0-9a-f]{12}|[0-9a-f]{64}"
"""The pattern of a container's default host name in Docker: the first digits of its id, which resolve only inside of
the container.
"""
_LOOPBACK: Final = r"localhost|127\.[0-9.]+|::1"
PRIVILEGED_PORTS_END: Final = 1024
OTHER_PORTS_DISTANCE: Final = 10_000
"""The distance from a port that is taken to the one that the message proposes instead."""
PORT_MAX: Final = 65_535


def with_advertised_hosts(config: Config, host_name: Callable[[], str]) -> Config:
    """The configuration with a host in every advertised listener. A listener without a host gets the name of this
    machine, as in Apache Kafka.
    """
    own, controllers = config.advertised_listeners, config.advertised_controller_listeners
    if all(each.host for each in (*own, *controllers)):
        return config
    name, ports = host_name(), {each.name: each.port for each in config.listeners}
    return replace(
        config,
        advertised_listeners=with_bound_addresses(own, name, ports),
        advertised_controller_listeners=with_bound_addresses(controllers, name, ports),
    )


def advertised_addresses(config: Config) -> list[str]:
    """The advertised address of each listener for clients, as one line of text."""
    return [
        f"clients of listener {each.name} are told to connect to {address_text(each)}"
        for each in config.advertised_listeners
    ]


def advertised_warnings(config: Config) -> list[str]:
    """Warnings about advertised addresses that clients may be unable to reach, each with advice."""
    bound = {each.name: each for each in config.listeners}
    return [
        f"listener {each.name}: {warning}"
        for each in config.advertised_listeners
        for warning in _address_warnings(each, bound.get(each.name), has_peers=_has_peers_elsewhere(config))
    ]


def address_text(listener: ListenerAddress) -> str:
    host = f"[{listener.host}]" if ":" in listener.host else listener.host
    return f"{host}:{listener.port}"


def _address_warnings(advertised: ListenerAddress, bound: ListenerAddress | None, *, has_peers: bool) -> Iterator[str]:
    host, remedy = advertised.host, "set advertised.listeners to an address that they can reach"
    if host in EVERY_INTERFACE:
        said = f"clients are told to connect to {host}" if host else "clients are told no host"
        yield f"{said}, which is not an address of one machine; {remedy}"
    elif re.fullmatch(_LOOPBACK, host, re.IGNORECASE):
        if bound is not None and bound.host in EVERY_INTERFACE:
            reason = f"it listens on every interface but tells clients {host}"
            yield f"{reason}, by which clients on other machines cannot connect; {remedy}"
        elif has_peers:
            yield f"the quorum has nodes on other machines, and to each of them {host} is that machine itself; {remedy}"
    elif re.fullmatch(_CONTAINER_NAME, host):
        yield f"{host} looks like a container's own name, which only its network knows; {remedy}"
    elif "_" in host:
        yield f"{host} has an underscore, which host names may not have: Java clients refuse it; {remedy}"
    if advertised.port == 0:
        yield f"clients are told to connect to port 0, on which nothing can listen; {remedy}"


def _has_peers_elsewhere(config: Config) -> bool:
    """Whether the quorum has a node on another machine. A single bootstrap server may be this node itself."""
    hosts = [voter.host for voter in config.controller_quorum_voters if voter.node_id != config.node_id]
    servers = config.controller_quorum_bootstrap_servers
    if len(servers) > 1 or not config.is_controller:
        hosts += [server.rpartition(":")[0].strip("[]") for server in servers]
    return not all(re.fullmatch(_LOOPBACK, host, re.IGNORECASE) for host in hosts)


@dataclass(frozen=True, slots=True)
class StartReport:
    """The report of a node when it serves clients."""

    version: str
    kafka_version: str
    """The release of Apache Kafka that clients take the node for."""
    python: str
    compiled: bool
    """Whether the hot path runs as C extensions."""
    node_id: int
    roles: tuple[str, ...]
    cluster_id: str
    listeners: dict[str, str]
    """The advertised addresses, by listener name."""
    controller_listeners: dict[str, str]
    data: tuple[str, ...]
    """The log directories, as absolute paths."""
    metrics: str | None
    """The URL of the metrics; None if they are off."""
    console: str | None
    """The URL of the console; None if it is off."""
    control: str | None
    """The URL of the control interface for faults on demand; None if the node takes none."""
    formatted: bool
    """Whether this start formatted the directories, because they were empty."""
    recovered: OpeningResult | None
    """The result of opening the log directories; None if there was no partition."""
    start_ms: int
    """The time (ms) from the first line of the log until clients were served."""
    warnings: tuple[str, ...]
    """One sentence for each unknown setting, and one for each reason for which settings have no effect."""


def report_of(
    config: Config,
    cluster_id: str,
    *,
    formatted: bool,
    recovered: OpeningResult | None,
    start_ms: int,
    control: str | None = None,
) -> StartReport:
    """The start report of a node with this configuration, in which every advertised listener has a host."""
    return StartReport(
        version=__version__,
        kafka_version=KAFKA_VERSION,
        python=interpreter_text(),
        compiled=is_compiled(),
        node_id=config.node_id,
        roles=tuple(sorted(config.process_roles)),
        cluster_id=cluster_id,
        listeners={each.name: address_text(each) for each in config.advertised_listeners},
        controller_listeners={each.name: address_text(each) for each in config.advertised_controller_listeners},
        data=tuple(map(path_text, config.log_dirs)),
        metrics=http_url(config, "/metrics"),
        console=http_url(config, "/") if config.flag("moldau.console") and config.is_broker else None,
        control=control,
        formatted=formatted,
        recovered=recovered,
        start_ms=start_ms,
        warnings=config.warnings,
    )


def report_in(greeting: Mapping[str, Any]) -> StartReport:
    """Restore a report from the JSON that a process of this version has printed."""
    from moldau.broker.replicas.log_directories import OpeningResult

    recovered = greeting["recovered"]
    fields: dict[str, Any] = {name: tuple(it) if isinstance(it, list) else it for name, it in greeting.items()}
    fields["recovered"] = None if recovered is None else OpeningResult(**recovered)
    return StartReport(**fields)


def path_text(path: str) -> str:
    """The absolute form of a path."""
    if path.startswith("/"):
        return path
    from pathlib import Path  # here, because it holds 0.7 MB with what it imports

    return str(Path(path).absolute())


def http_url(config: Config, path: str) -> str | None:
    """The URL at which this machine reaches a path of moldau.http.listener; None if that is not set."""
    at = read_http_address(config.text_or_none("moldau.http.listener") or "")
    if at is None:
        return None
    host = "127.0.0.1" if at.host in EVERY_INTERFACE else at.host
    return f"http://{f'[{host}]' if ':' in host else host}:{at.port}{path}"


def refusal_line(problem: Exception, config: Config, *, takes_port: bool = False) -> str:
    """The error that prevents a start as one line, with the usual remedy if there is one. `takes_port`: whether --port
    sets the ports of the listeners.
    """
    remedy = startup_advice(problem, config, takes_port=takes_port)
    return f"{error_text(problem)}. {remedy}" if remedy else error_text(problem)


def error_text(problem: Exception) -> str:
    """The text of an error. For an operating system error it has the file and the system's message, but no number."""
    if not isinstance(problem, OSError) or problem.strerror is None:
        return str(problem)
    if isinstance(problem, BlockingIOError):
        return f"another process serves {str(problem.filename).rpartition('/')[0]}"
    return f"{problem.filename}: {problem.strerror}" if problem.filename is not None else problem.strerror


def startup_advice(problem: Exception, config: Config, *, takes_port: bool = False) -> str | None:
    """Advice for the operator about an error; None if there is no known remedy."""
    if isinstance(problem, UnsupportedFeatures):
        return UPGRADE_ADVICE if problem.is_too_old else downgrade_advice(problem.supported)
    if isinstance(problem, BlockingIOError):
        return "Stop that process, or give this node a directory of its own (--data DIR, or log.dirs in the file)"
    if not isinstance(problem, OSError) or problem.errno is None:
        return None
    if problem.errno == errno.EADDRINUSE:
        if "moldau.http.listener" in error_text(problem):
            return "Stop the process that has the port, or set moldau.http.listener to another one"
        return f"Stop the process that has the port, or choose another: {other_ports(config, takes_port)}"
    if problem.filename is None and problem.errno in (errno.EACCES, errno.EPERM):
        others = other_ports(config, takes_port)
        return f"Ports below {PRIVILEGED_PORTS_END} need privileges; choose another: {others}"
    return REMEDIES.get(problem.errno)


UPGRADE_ADVICE: Final = (
    "The cluster was formatted before Apache Kafka 4.0: upgrade its nodes to Apache Kafka 4.0 to 4.3 first, run"
    " kafka-features.sh --bootstrap-server HOST:PORT upgrade --release-version 4.0, then stop this node's process"
)
"""Advice about metadata from before Apache Kafka 4.0. Moldau writes no metadata of such releases, and they cannot read
what it writes.
"""


def downgrade_advice(supported: Mapping[str, int]) -> str:
    """Advice to downgrade features: the command, and when to run it. This node reads its own metadata log first, so its
    former process must have received the downgrade.
    """
    levels = " ".join(f"--feature {name}={level}" for name, level in supported.items())
    return (
        "A cluster of Apache Kafka has to downgrade them while the former process of this node still runs: start it"
        f" again on this directory, run kafka-features.sh --bootstrap-server HOST:PORT downgrade {levels}, then stop it"
    )


def other_ports(config: Config, takes_port: bool) -> str:
    """A command line option that moves every listener to a port that is probably free."""
    if takes_port:
        return f"--port {other_port(config.listeners[0].port)}"
    listeners = [f"{each.name}://{each.host}:{other_port(each.port)}" for each in config.listeners]
    return f"--override listeners={','.join(listeners)}"


def other_port(port: int) -> int:
    """A port that is probably free, at a fixed distance from `port`."""
    return port + OTHER_PORTS_DISTANCE if port + OTHER_PORTS_DISTANCE <= PORT_MAX else port - OTHER_PORTS_DISTANCE


_NOT_WRITABLE: Final = (
    "The node must be able to write there: change the owner of the directory, run the node as its owner, or choose"
    " another directory (--data DIR, or log.dirs in the file)"
)
_NO_DIRECTORY: Final = "Choose a directory (--data DIR, or log.dirs in the file)"
REMEDIES: Final[Mapping[int, str]] = {
    errno.EACCES: _NOT_WRITABLE,
    errno.EPERM: _NOT_WRITABLE,
    errno.EROFS: _NOT_WRITABLE,
    errno.ENOTDIR: _NO_DIRECTORY,
    errno.EEXIST: _NO_DIRECTORY,
    errno.ENOSPC: "Make room on that disk, or choose a directory on another one (--data DIR, or log.dirs in the file)",
    errno.EADDRNOTAVAIL: "Name an address of this machine in listeners",
    errno.EMFILE: "Raise the limit of the process's file descriptors (ulimit -n)",
}
