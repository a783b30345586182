"""The faults of docs/faults.md against Apache Kafka's own Java client: the effect of each, and its end.

    python -m tests.conformance.fault_effects [--client NAME]

It needs Java and the jars of Apache Kafka's client, as `make conformance` does; the broker is a node in memory with
`--control`. For each action of the page's table it prints what the producer got and how many records the log has more.
Then a script of faults with seeds runs twice. It ends with status 1 if an effect is not that of the page, if a
fault has not ended, or if the two timelines differ.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.conformance.client import Client
from tests.conformance.clients import CLIENTS
from tests.conformance.outcome import Refused
from tests.conformance.record import Record, to_wire
from tests.conformance.toolchain import Toolchain
from tests.support.fault_script import OTHER_SEEDS, RECORDS, SCRIPT, SEEDS, story
from tests.unit.broker.faults.test_clients import ERRORS, TOPIC, Effect, effects, end
from tests.unit.broker.faults.test_control import Served, served

HOLD_MS: Final = 300
MADE_UP: Final = 700
"""The offset in the answer of the page's table."""


def produced(client: Client) -> int | str:
    """The offset that the producer got, or the name of its error."""
    try:
        offsets = client.call_once(
            "produce", topic=TOPIC, records=[to_wire(Record(b"x"))], codec="none", acks="all", idempotent=False
        )
    except Refused as refused:
        return refused.error
    assert isinstance(offsets, list) and isinstance(offsets[0], int)
    return offsets[0]


def difference(node: Served, client: Client, effect: Effect) -> str:
    """How the effect of an action differs from that of the page; empty if it does not."""
    before = end(node)
    fault = {"scope": {"api": "Produce"}, "when": {"once": True}, "do": effect.action}
    node.add(fault | ({"ends_after_ms": HOLD_MS} if "hold" in effect.action else {}))
    got, records = produced(client), end(node) - before
    print(f"  {json.dumps(effect.action)[:60]:62} {got}, {records} records", flush=True)
    if (got in ERRORS) is not (effect.outcome == "the error"):
        return f"the producer got {got}"
    if records != effect.records:
        return f"the log has {records} records more, and not {effect.records}"
    if "made up" in effect.outcome and got != MADE_UP:
        return f"the producer got {got}, and not {MADE_UP}"
    if node.ask("GET", "/v1/faults") != {"faults": []}:
        return "the fault has not ended"
    before = end(node)
    after = produced(client)
    return "" if after == before else f"after the fault the producer got {after}, and not {before}"


@contextmanager
def running(name: str, node: Served, directory: Path) -> Iterator[Client]:
    """A client of a node, whose topic exists and whose first produce has been answered."""
    (kind,) = [each for each in CLIENTS if each.name == name]
    client = Client(name, [*kind.command(Toolchain(fetch=True)), node.bootstrap], directory / f"{name}.log")
    try:
        yield client
    finally:
        client.close()


def differences(name: str, directory: Path) -> list[str]:
    """What differs from the page."""
    with served("--memory") as node:
        assert node.produce(TOPIC) == "", "the topic is made"
        with running(name, node, directory) as client:
            found = [(each.action, difference(node, client, each)) for each in effects()]
    return [f"{json.dumps(action)}: {text}" for action, text in found if text]


def told(name: str, directory: Path, seeds: tuple[int, int, int]) -> list[tuple[str, str]]:
    """The story of a new node with the script, and of a new client."""
    script = directory / "faults.yaml"
    script.write_text(SCRIPT.format(*seeds))
    with served("--memory", "--faults", str(script)) as node, running(name, node, directory) as client:
        client.create_topic(TOPIC)
        for _ in range(RECORDS):
            produced(client)
        return story(node.ask("GET", "/v1/timeline")["entries"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--client", default="java", choices=[each.name for each in CLIENTS])
    name = parser.parse_args().client
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        print(f"{name}: what the producer got, and how many records the log has more")
        found = differences(name, directory)
        first, second = told(name, directory, SEEDS), told(name, directory, SEEDS)
        met = sum(what == "fault meets" for what, _ in first)
        print(f"{name}: a script with seeds, twice: {met} faults at {len(first) - met} requests")
        if first != second:
            found.append("the timelines of two runs differ")
        if told(name, directory, OTHER_SEEDS) == first:
            found.append("other seeds give the same timeline")
    for each in found:
        print(f"DIFFERENT: {each}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
