"""The report of a start, for a person at the terminal or for a program that reads JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from moldau import __version__
from moldau.broker.config.http_address import read_address
from moldau.broker.node.advertised import EVERY_INTERFACE, address
from moldau.broker.release import KAFKA_VERSION, is_compiled, python

if TYPE_CHECKING:
    from moldau.broker.config.config import Config
    from moldau.broker.replicas.opening import Opened


@dataclass(frozen=True, slots=True)
class StartReport:
    """The report of a node that serves clients."""

    version: str
    kafka_version: str
    """The release of Apache Kafka that clients see."""
    python: str
    compiled: bool
    """Whether the hot path runs as C extensions."""
    node_id: int
    roles: tuple[str, ...]
    cluster_id: str
    listeners: dict[str, str]
    """The advertised addresses, by the names of the listeners."""
    controller_listeners: dict[str, str]
    data: tuple[str, ...]
    """The log directories, as absolute paths."""
    metrics: str | None
    """The URL of the metrics; None where they are off."""
    formatted: bool
    """Whether this start formatted the directories, because they were empty."""
    recovered: Opened | None
    """The recovery of the log directories; None where there was no partition."""
    start_ms: int
    """The time from the first line of the log until clients were served."""


def report_of(
    config: Config, cluster_id: str, *, formatted: bool, recovered: Opened | None, start_ms: int
) -> StartReport:
    """The report of a node with this configuration, which names a host in every advertised listener."""
    from pathlib import Path

    return StartReport(
        version=__version__,
        kafka_version=KAFKA_VERSION,
        python=python(),
        compiled=is_compiled(),
        node_id=config.node_id,
        roles=tuple(sorted(config.process_roles)),
        cluster_id=cluster_id,
        listeners={each.name: address(each) for each in config.advertised_listeners},
        controller_listeners={each.name: address(each) for each in config.advertised_controller_listeners},
        data=tuple(str(Path(path).absolute()) for path in config.log_dirs),
        metrics=metrics_url(config),
        formatted=formatted,
        recovered=recovered,
        start_ms=start_ms,
    )


def metrics_url(config: Config) -> str | None:
    """The URL of the node's metrics from this machine."""
    at = read_address(config.text_or_none("moldau.http.listener") or "")
    if at is None:
        return None
    host = "127.0.0.1" if at.host in EVERY_INTERFACE else at.host
    return f"http://{f'[{host}]' if ':' in host else host}:{at.port}/metrics"
