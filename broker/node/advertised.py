"""Checks of the advertised addresses: warnings, once at start, where clients may be unable to connect."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from moldau.broker.config.config import Config
from moldau.broker.config.listeners import ListenerAddress, resolved

_CONTAINER_NAME: Final = r"[0-9a-f]{12}|[0-9a-f]{64}"
"""The form of a container's host name in Docker: the first digits of its id, which resolve only inside of it."""
_LOOPBACK: Final = r"localhost|127\.[0-9.]+|::1"
EVERY_INTERFACE: Final = ("", "0.0.0.0", "::")


def named(config: Config, host_name: Callable[[], str]) -> Config:
    """The advertised listeners. One without a host gets this machine's name, as in Apache Kafka."""
    own, controllers = config.advertised_listeners, config.advertised_controller_listeners
    if all(each.host for each in (*own, *controllers)):
        return config
    name, ports = host_name(), {each.name: each.port for each in config.listeners}
    return replace(
        config,
        advertised_listeners=resolved(own, name, ports),
        advertised_controller_listeners=resolved(controllers, name, ports),
    )


def told(config: Config) -> list[str]:
    """The advertised addresses as text, one line for each listener of clients."""
    return [
        f"clients of listener {each.name} are told to connect to {address(each)}"
        for each in config.advertised_listeners
    ]


def doubts(config: Config) -> list[str]:
    """The reasons why clients may be unable to connect, each with advice."""
    bound = {each.name: each for each in config.listeners}
    return [
        f"listener {each.name}: {doubt}"
        for each in config.advertised_listeners
        for doubt in _doubts(each, bound.get(each.name), has_peers=_has_peers_elsewhere(config))
    ]


def address(listener: ListenerAddress) -> str:
    host = f"[{listener.host}]" if ":" in listener.host else listener.host
    return f"{host}:{listener.port}"


def _doubts(advertised: ListenerAddress, bound: ListenerAddress | None, *, has_peers: bool) -> Iterator[str]:
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
