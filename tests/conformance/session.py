"""What a scenario has in hand: one client, one broker, names of its own, and a place for what it observes."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from tests.conformance.brokers import Served
from tests.conformance.client import Client
from tests.conformance.outcome import Facts, Failed, Refused, Unavailable
from tests.conformance.propagation import is_known_everywhere
from tests.conformance.record import Json, Record

PATIENCE_S = 90.0
"""For what happens within a second on a machine that has nothing else to do."""


class Session:
    """`another_client()` starts a second driver of the same kind; who asks for it closes it."""

    def __init__(self, client: Client, scenario: str, served: Served, another: Callable[[], Client]) -> None:
        self.client = client
        self.another_client = another
        self.facts: Facts = {}
        self.node_count = served.node_count
        self._served = served
        self._prefix = f"{client.name}.{scenario}"

    def name(self, suffix: str = "t") -> str:
        """A topic, group or member name that no other cell of the matrix uses."""
        return f"{self._prefix}.{suffix}"

    def topic(self, partitions: int = 1, suffix: str = "t", **configs: str) -> str:
        """Creates a topic; `segment_bytes="1"` stands for `segment.bytes=1`."""
        topic = self.name(suffix)
        self.client.create_topic(
            topic,
            partitions,
            replicas=self.node_count,
            configs={name.replace("_", "."): value for name, value in configs.items()},
        )
        self.described(topic)
        self.settled(topic, partitions)
        return topic

    def settled(self, topic: str, partitions: int) -> None:
        """Waits until it is all the same which of several nodes a client asks."""
        if self.node_count > 1:
            bootstrap = self._served.bootstrap
            self.until(f"every node knows {topic}", lambda: is_known_everywhere(bootstrap, topic, partitions))

    def described(self, topic: str) -> Json:
        """A topic's description, once the broker has heard of it from the controller."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return self.client.describe_topic(topic)
            except Refused:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def replicas_on_disk(self, topic: str, partition: int) -> list[Path]:
        """The partition's directory on every node that has it; empty if nobody can look."""
        found = [directory / f"{topic}-{partition}" for directory in self._served.directories]
        return [path for path in found if path.is_dir()]

    def needs(self, *abilities: str) -> None:
        for ability in abilities:
            if ability in self.client.lacks:
                raise Unavailable(self.client.lacks[ability])

    def can(self, ability: str) -> bool:
        return ability not in self.client.lacks

    def observe(self, name: str, value: object) -> None:
        self.facts[name] = value

    def refusal(self, name: str, attempt: Callable[[], object]) -> None:
        """Observes the error that `attempt` meets, or that it meets none."""
        patience_s, self.client.patience_s = self.client.patience_s, 1.0
        try:
            attempt()
        except Refused as refused:
            self.facts[name] = refused.error
        else:
            self.facts[name] = "accepted"
        finally:
            self.client.patience_s = patience_s

    def until(self, what: str, holds: Callable[[], bool], instead: Callable[[], object] | None = None) -> None:
        """`instead` says what is the case if `what` is not."""
        deadline = time.monotonic() + PATIENCE_S
        while not holds():
            if time.monotonic() > deadline:
                seen = f"; instead: {instead()}" if instead is not None else ""
                raise Failed(f"not within {PATIENCE_S:.0f} s: {what}{seen}")
            time.sleep(0.1)


def expect(holds: bool, what: str) -> None:
    if not holds:
        raise Failed(what)


def same_records(read: list[Record], sent: list[Record], *, timed: bool = True) -> None:
    """Says the first difference; the order within the partition counts."""
    expect(len(read) == len(sent), f"{len(sent)} records were sent, {len(read)} came back")
    for index, (came, went) in enumerate(zip(read, sent, strict=True)):
        left, right = (came.content(), went.content()) if timed else (came.untimed(), went.untimed())
        expect(left == right, f"record {index}: sent {str(right)[:300]}, came back {str(left)[:300]}")
