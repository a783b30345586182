"""Faults on demand in the nodes of a cluster that was started with `Cluster(control=True)`.

    with kafka.faults.error("NOT_LEADER_OR_FOLLOWER", api="Produce", topic="orders", times=2):
        ...

docs/faults.md has the scopes, triggers and actions. Keyword arguments give the scope, under the names on that page, and
the triggers in `TRIGGERS`. A fault is in force on all nodes that run unless `node` names one, and until it is used up,
`end` is called, or its `with` block ends. A node that is started again has no faults.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple

from moldau.testing.node import Node

ANSWER_S: Final = 30.0
TRIGGERS: Final = ("once", "times", "on_call", "every_time", "probability", "seed")


class FaultRefused(Exception):
    """The node refuses what is asked of its control interface, or does not answer; the text says why."""


class Event(NamedTuple):
    """One entry of the timeline of a cluster."""

    node: int
    at_ms: int
    """The time, in milliseconds since the epoch."""
    what: str
    """`request`, `fault begins`, `fault meets`, `fault ends`, `clock` or `leader`."""
    text: str


class Fault:
    """A fault in force on one node or several."""

    def __init__(self, placed: Sequence[tuple[Node, int]]) -> None:
        self._placed = tuple(placed)

    @property
    def met(self) -> int:
        """The number of requests on which the fault has acted, on all nodes; 0 once it has ended."""
        return sum(self._shown("met"))

    @property
    def calls(self) -> int:
        """The number of requests in the fault's scope; 0 once it has ended."""
        return sum(self._shown("calls"))

    @property
    def is_in_force(self) -> bool:
        """Whether the fault may still act on a request of some node."""
        return bool(self._shown("id"))

    def end(self) -> None:
        """End the fault. It may be called again."""
        for node, number in self._placed:
            if node.is_running:
                _asked(node, "DELETE", f"/v1/faults/{number}", missing=True)

    def __enter__(self) -> Fault:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end()

    def _shown(self, name: str) -> list[int]:
        shown = (
            _asked(node, "GET", f"/v1/faults/{number}", missing=True)
            for node, number in self._placed
            if node.is_running
        )
        return [each[name] for each in shown if each is not None]


class Faults:
    """Puts faults in force. `nodes` gives the nodes of the cluster."""

    def __init__(self, nodes: Callable[[], Sequence[Node]]) -> None:
        self._nodes = nodes

    # Requests

    def error(self, error: str, *, node: int | None = None, **scope: Any) -> Fault:
        """Answer with this error, by its name in Kafka's protocol. The part of the request that the scope names has no
        effect.
        """
        return self.add({"error": error}, node=node, **scope)

    def answer(self, api: str, answer: Mapping[str, object], *, node: int | None = None, **scope: Any) -> Fault:
        """Answer with the given response. The request has no effect."""
        return self.add({"answer": dict(answer)}, node=node, api=api, **scope)

    def delay(self, seconds: float, *, node: int | None = None, **scope: Any) -> Fault:
        """Send the answer later. The request has its effect at once."""
        return self.add({"delay_ms": round(seconds * 1000)}, node=node, **scope)

    def lose_answer(self, *, node: int | None = None, **scope: Any) -> Fault:
        """End the connection in place of the answer. The request has its effect."""
        return self.add({"lose_answer": True}, node=node, **scope)

    def cut_answer(self, *, node: int | None = None, **scope: Any) -> Fault:
        """End the connection in the middle of the answer. The request has its effect."""
        return self.add({"cut_answer": True}, node=node, **scope)

    def reset(self, *, node: int | None = None, **scope: Any) -> Fault:
        """End the connection. The request has no effect."""
        return self.add({"reset": True}, node=node, **scope)

    def hold(self, *, until: Mapping[str, object] | None = None, node: int | None = None, **scope: Any) -> Fault:
        """Let requests wait until the fault ends, or until a request in the scope `until` arrives at their node."""
        return self.add({"hold": True} | ({} if until is None else {"until": dict(until)}), node=node, **scope)

    def throttle(self, seconds: float, *, node: int | None = None, **scope: Any) -> Fault:
        """Set this throttle time in the answer, and do not read the connection for that time."""
        return self.add({"throttle_ms": round(seconds * 1000)}, node=node, **scope)

    # Networks and groups

    def cut(self, one: int, other: int, *, one_way: bool = False) -> Fault:
        """Hold the requests of node `one` to node `other`, and those of `other` to `one` unless `one_way`. They arrive
        when the fault ends.
        """
        placed = self._place({"scope": {"from_node": one}, "do": {"hold": True}}, other)
        if not one_way:
            placed += self._place({"scope": {"from_node": other}, "do": {"hold": True}}, one)
        return Fault(placed)

    def cut_clients(self, node: int | None = None) -> Fault:
        """Hold the requests of clients to the node."""
        return self.add({"hold": True}, node=node, from_clients=True)

    def fence(self, node: int) -> Fault:
        """Hold the heartbeats of a broker, so that the controllers fence it after its session timeout (9 s by
        default).
        """
        return self.add({"hold": True}, api="BrokerHeartbeat", from_node=node)

    def rebalance(self, group: str) -> Fault:
        """Answer the next heartbeat of the group with REBALANCE_IN_PROGRESS, so that its member joins again."""
        return self.error("REBALANCE_IN_PROGRESS", api="Heartbeat", group=group, once=True)

    # Disks

    def slow_disk(self, seconds: float, *, node: int | None = None, path: str = "", **trigger: Any) -> Fault:
        """Make each sync take longer. `path`: only of files with this text in their path, such as `orders-0`."""
        return self.add({"delay_ms": round(seconds * 1000)}, node=node, disk="sync", path=path, **trigger)

    def full_disk(self, *, node: int | None = None, path: str = "", **trigger: Any) -> Fault:
        """Fail each append, because the disk is full."""
        return self.add({"error": "ENOSPC"}, node=node, disk="append", path=path, **trigger)

    def failing_disk(self, *, node: int | None = None, path: str = "", **trigger: Any) -> Fault:
        """Fail each sync. The node stops using the directory, or ends if it has no other."""
        return self.add({"error": "EIO"}, node=node, disk="sync", path=path, **trigger)

    # All

    def add(self, do: Mapping[str, object], *, node: int | None = None, name: str | None = None, **scope: Any) -> Fault:
        """Put a fault in force. Raises `FaultRefused`."""
        when = {each: scope.pop(each) for each in TRIGGERS if each in scope}
        described: dict[str, object] = {"scope": scope, "when": when, "do": dict(do)}
        if name is not None:
            described["name"] = name
        return Fault(self._place(described, node))

    def load(self, script: str | Path | Mapping[str, object], *, node: int | None = None) -> list[Fault]:
        """Put the faults of a script in force: its JSON, or the path of a file with JSON, or YAML if PyYAML is
        installed.
        """
        read = script if isinstance(script, Mapping) else _read(Path(script))
        placed: list[list[tuple[Node, int]]] = []
        for each in self._chosen(node):
            added = _asked(each, "POST", "/v1/script", read)["faults"]
            placed = placed or [[] for _ in added]
            for place, fault in zip(placed, added, strict=True):
                place.append((each, fault["id"]))
        return [Fault(each) for each in placed]

    def end_all(self) -> None:
        """End all faults of all nodes that run."""
        for node in self._nodes():
            if node.is_running:
                _asked(node, "DELETE", "/v1/faults")

    def timeline(self) -> list[Event]:
        """The requests of clients and the actions of faults, on all nodes that run, in order of time. Raises
        `FaultRefused`.
        """
        events = []
        for node in self._nodes():
            if node.is_running:
                for entry in _asked(node, "GET", "/v1/timeline")["entries"]:
                    events.append(Event(node.id, entry["at_ms"], entry["what"], entry["text"]))
        return sorted(events, key=lambda event: event.at_ms)

    def _place(self, described: Mapping[str, object], node: int | None) -> list[tuple[Node, int]]:
        return [(each, _asked(each, "POST", "/v1/faults", described)["id"]) for each in self._chosen(node)]

    def _chosen(self, node: int | None) -> list[Node]:
        if node is None:
            return running(self._nodes())
        chosen = [each for each in self._nodes() if each.id == node]
        if not chosen:
            raise ValueError(f"there is no node {node}")
        return chosen


class Clock:
    """The clock of a cluster: of retention, compaction lags, tokens, and time-outs of sessions and transactions."""

    def __init__(self, nodes: Callable[[], Sequence[Node]]) -> None:
        self._nodes = nodes

    def advance(self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0) -> None:
        """Move the clock of all nodes that run. What is due then happens soon; expired segments are gone when it
        returns. Raises `FaultRefused`.
        """
        step_s = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
        for node in running(self._nodes()):
            _asked(node, "POST", "/v1/clock", {"advance_ms": round(step_s * 1000)})


def move_leader(nodes: Sequence[Node], to: int, what: Mapping[str, object]) -> None:
    """Move the leader of a partition, or the coordinator of a group or transactional id. Raises `FaultRefused`."""
    _asked(running(nodes)[0], "POST", "/v1/leaders", dict(what) | {"node": to})


def running(nodes: Sequence[Node]) -> list[Node]:
    """The nodes that run. Raises `FaultRefused` if none does."""
    found = [each for each in nodes if each.is_running]
    if not found:
        raise FaultRefused("no node of the cluster runs")
    return found


def _read(path: Path) -> object:
    text = path.read_text(encoding="utf-8")
    if path.suffix not in (".yaml", ".yml"):
        return json.loads(text)
    import yaml

    return yaml.safe_load(text)


def _asked(node: Node, method: str, path: str, body: object = None, *, missing: bool = False) -> Any:
    """Send a request to the control interface of a node, and return the JSON of its response. Returns None for status
    404 if `missing` is allowed. Raises `FaultRefused`.
    """
    address = node.greeting.get("control")
    if address is None:
        raise FaultRefused(
            "the nodes take no faults and no other time: add the fixture kafka_faults to the test, or start them with"
            " Cluster(control=True)"
        )
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        address + path, method=method, data=data, headers={"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as refusal:
        text = json.load(refusal).get("error", "")
        if missing and refusal.code == 404:
            return None
        raise FaultRefused(text) from None
    except OSError as problem:
        raise FaultRefused(f"node {node.id} does not answer: {problem}") from None
