"""The greeting of `moldau serve` once it serves: a few lines on a terminal, or one JSON object."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from moldau.broker.cli.terminal import Terminal
from moldau.broker.node.start_messages import StartReport
from moldau.broker.release import form
from moldau.broker.replicas.opening import Opened
from moldau.broker.runtime.progress import duration, size

LABEL_WIDTH: Final = 10
TOPIC: Final = "greetings"


def greet(terminal: Terminal, report: StartReport) -> None:
    """Print the greeting in lines for a person."""
    words = f"Apache Kafka {report.kafka_version}, {report.python}, {form()}"
    terminal.say(f"{terminal.painted(f'Moldau {report.version}', 'bold')} serves ({words})")
    for label, text in lines(report):
        terminal.say(f"  {terminal.painted(f'{label:{LABEL_WIDTH}}', 'dim')} {text}")
    terminal.say("Ctrl-C stops the node: it hands over what it leads, then flushes and closes its logs.", "dim")


def lines(report: StartReport) -> Iterator[tuple[str, str]]:
    """The lines of the greeting, each with its label."""
    yield "node", f"{report.node_id}, {' and '.join(report.roles)}, of cluster {report.cluster_id}"
    if report.listeners:
        yield "clients", named(report.listeners)
    if report.controller_listeners:
        yield "quorum", named(report.controller_listeners)
    yield "data", ", ".join(report.data)
    yield "metrics", report.metrics or "off (--override moldau.http.listener=http://127.0.0.1:9464 turns them on)"
    yield "found", f"{found(report)}; serving after {duration(report.start_ms / 1000)}"
    first = next(iter(report.listeners.values()), None)
    if first is not None:
        yield "try", f"echo hello | kcat -b {first} -t {TOPIC} -P && kcat -b {first} -t {TOPIC} -C -e"


def named(addresses: dict[str, str]) -> str:
    """The addresses as text, each with the name of its listener."""
    return ", ".join(f"{address} ({name})" for name, address in addresses.items())


def found(report: StartReport) -> str:
    """The recovered partitions, and the time that it took to open or recover them."""
    if report.recovered is None:
        return "new directories, formatted now" if report.formatted else "no partitions"
    opened = report.recovered
    partitions = f"{opened.partitions:,} partition{'' if opened.partitions == 1 else 's'}"
    took = duration(opened.duration_ms / 1000)
    damaged = f", {opened.damaged:,} of them damaged and not served (see the log)" if opened.damaged else ""
    if opened.was_clean:
        return f"{partitions} of a node that was stopped cleanly{damaged}, opened in {took}"
    return f"{partitions} after an unclean stop{damaged}, {size(opened.checked_size)} checked in {took}"


def as_json(report: StartReport) -> str:
    """The greeting as one line of JSON for a program; docs/start.md lists the fields."""
    import json
    from dataclasses import asdict

    fields = asdict(report)
    fields["recovered"] = recovered_as_json(report.recovered)
    return json.dumps(fields)


def recovered_as_json(opened: Opened | None) -> dict[str, int | bool] | None:
    """The recovery as JSON: sizes in bytes, durations in milliseconds."""
    return None if opened is None else opened._asdict()
