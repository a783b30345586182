"""Puts faults on demand into the nodes of a cluster that was made with `Cluster(control=True)`.

    with kafka.faults.error("NOT_LEADER_OR_FOLLOWER", api="Produce", topic="orders", times=2):
        ...

docs/faults.md has the scopes, triggers and actions. Keyword arguments give the scope, under the names on that page, and
the triggers in `TRIGGERS`. A fault is in force on all running nodes, or on the one that `node` names. It ends when it
is used up, when `end` is called, or with its `with` block. A node that is started again has no faults.
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
    """Raised if the control interface of a node refuses a request, or the node does not answer. The text says why."""


class Event(NamedTuple):
    """A request of a client or an action of a fault, in the timeline of a cluster."""

    node: int
    at_ms: int
    """The time (ms since the epoch)."""
    what: str
    """The kind of event: `request`, `fault begins`, `fault meets`, `fault ends`, `clock` or `leader`."""
    text: str


class PlacedFault(NamedTuple):
    """A fault of one process of a node, with the id that it has there. The next process counts its ids anew."""

    node: Node
    pid: int
    fault_id: int

    @property
    def is_of_running_process(self) -> bool:
        return self.node.is_running and self.node.pid == self.pid


class Fault:
    """A fault that was put in force on one node or on several."""

    def __init__(self, placed: Sequence[PlacedFault]) -> None:
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
        """Whether the fault may still act on a request of a node."""
        return bool(self._shown("id"))

    def end(self) -> None:
        """End the fault. It may be called several times."""
        for placed in self._placed:
            if placed.is_of_running_process:
                _asked(placed.node, "DELETE", f"/v1/faults/{placed.fault_id}", missing=True)

    def __enter__(self) -> Fault:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end()

    def _shown(self, name: str) -> list[int]:
        shown = (
            _asked(placed.node, "GET", f"/v1/faults/{placed.fault_id}", missing=True)
            for placed in self._placed
            if placed.is_of_running_process
        )
        return [each[name] for each in shown if each is not None]


class Faults:
    """Puts faults into force on the nodes of a cluster. `nodes` is called for the current nodes."""

    def __init__(self, nodes: Callable[[], Sequence[Node]]) -> None:
        self._nodes = nodes

    # Requests

    def error(self, error: str, *, node: int | None = None, **scope: Any) -> Fault:
        """Answer requests with the error of this name in Kafka's protocol. The part of a request that the scope names
        has no effect.
        """
        return self.add({"error": error}, node=node, **scope)

    def answer(self, api: str, answer: Mapping[str, object], *, node: int | None = None, **scope: Any) -> Fault:
        """Answer requests of an API with the given response. The requests have no effect."""
        return self.add({"answer": dict(answer)}, node=node, api=api, **scope)

    def delay(self, seconds: float, *, node: int | None = None, **scope: Any) -> Fault:
        """Send answers later by this time. The requests have their effect at once."""
        return self.add({"delay_ms": round(seconds * 1000)}, node=node, **scope)

    def lose_answer(self, *, node: int | None = None, **scope: Any) -> Fault:
        """Close the connection instead of sending an answer. The request has its effect."""
        return self.add({"lose_answer": True}, node=node, **scope)

    def cut_answer(self, *, node: int | None = None, **scope: Any) -> Fault:
        """Close the connection after a part of an answer was sent. The request has its effect."""
        return self.add({"cut_answer": True}, node=node, **scope)

    def reset(self, *, node: int | None = None, **scope: Any) -> Fault:
        """Close the connection when a request arrives. The request has no effect."""
        return self.add({"reset": True}, node=node, **scope)

    def hold(self, *, until: Mapping[str, object] | None = None, node: int | None = None, **scope: Any) -> Fault:
        """Let requests wait until the fault ends, or until a request in the scope `until` arrives at their node."""
        return self.add({"hold": True} | ({} if until is None else {"until": dict(until)}), node=node, **scope)

    def throttle(self, seconds: float, *, node: int | None = None, **scope: Any) -> Fault:
        """Set this throttle time in answers, and mute the connection for that time."""
        return self.add({"throttle_ms": round(seconds * 1000)}, node=node, **scope)

    # Networks and groups

    def cut(self, one: int, other: int, *, one_way: bool = False) -> Fault:
        """Hold the requests of node `one` to node `other`, and those of `other` to `one` unless `one_way` is true. They
        arrive when the fault ends.
        """
        placed = self._place({"scope": {"from_node": one}, "do": {"hold": True}}, other)
        if not one_way:
            placed += self._place({"scope": {"from_node": other}, "do": {"hold": True}}, one)
        return Fault(placed)

    def cut_clients(self, node: int | None = None) -> Fault:
        """Hold the requests of clients to a node, or to all nodes."""
        return self.add({"hold": True}, node=node, from_clients=True)

    def fence(self, node: int) -> Fault:
        """Hold the heartbeats of a broker, so that the controllers fence it after its session timeout (9 s by
        default).
        """
        return self.add({"hold": True}, api="BrokerHeartbeat", from_node=node)

    def rebalance(self, group: str) -> Fault:
        """Answer the next heartbeat of a group with REBALANCE_IN_PROGRESS, so that the member that sent it joins
        again.
        """
        return self.error("REBALANCE_IN_PROGRESS", api="Heartbeat", group=group, once=True)

    # Disks

    def slow_disk(self, seconds: float, *, node: int | None = None, path: str = "", **trigger: Any) -> Fault:
        """Make each sync take `seconds` longer. With `path`, only syncs of files whose path contains this text, such as
        `orders-0`, take longer."""
        return self.add({"delay_ms": round(seconds * 1000)}, node=node, disk="sync", path=path, **trigger)

    def full_disk(self, *, node: int | None = None, path: str = "", **trigger: Any) -> Fault:
        """Fail each append with ENOSPC, as if the disk were full."""
        return self.add({"error": "ENOSPC"}, node=node, disk="append", path=path, **trigger)

    def failing_disk(self, *, node: int | None = None, path: str = "", **trigger: Any) -> Fault:
        """Fail each sync with EIO. The node stops using the log directory, or ends if it has no other."""
        return self.add({"error": "EIO"}, node=node, disk="sync", path=path, **trigger)

    # All

    def add(self, do: Mapping[str, object], *, node: int | None = None, name: str | None = None, **scope: Any) -> Fault:
        """Put a fault with the action `do` in force. Raises `FaultRefused`."""
        when = {each: scope.pop(each) for each in TRIGGERS if each in scope}
        described: dict[str, object] = {"scope": scope, "when": when, "do": dict(do)}
        if name is not None:
            described["name"] = name
        return Fault(self._place(described, node))

    def load(self, script: str | Path | Mapping[str, object], *, node: int | None = None) -> list[Fault]:
        """Put the faults of a script in force. The script is a mapping, or the path of a file with JSON, or with YAML
        if PyYAML is installed.
        """
        read = script if isinstance(script, Mapping) else _read(Path(script))
        placed: list[list[PlacedFault]] = []
        for each in self._chosen(node):
            added = _asked(each, "POST", "/v1/script", read)["faults"]
            placed = placed or [[] for _ in added]
            for place, fault in zip(placed, added, strict=True):
                place.append(PlacedFault(each, each.pid, fault["id"]))
        return [Fault(each) for each in placed]

    def end_all(self) -> None:
        """End all faults on all running nodes."""
        for node in self._nodes():
            if node.is_running:
                _asked(node, "DELETE", "/v1/faults")

    def timeline(self) -> list[Event]:
        """The requests of clients and the actions of faults on all running nodes, in order of time. Raises
        `FaultRefused`.
        """
        events = []
        for node in self._nodes():
            if node.is_running:
                for entry in _asked(node, "GET", "/v1/timeline")["entries"]:
                    events.append(Event(node.id, entry["at_ms"], entry["what"], entry["text"]))
        return sorted(events, key=lambda event: event.at_ms)

    def _place(self, described: Mapping[str, object], node: int | None) -> list[PlacedFault]:
        return [
            PlacedFault(fault_id=_asked(each, "POST", "/v1/faults", described)["id"], node=each, pid=each.pid)
            for each in self._chosen(node)
        ]

    def _chosen(self, node: int | None) -> list[Node]:
        if node is None:
            return running_nodes(self._nodes())
        chosen = [each for each in self._nodes() if each.id == node]
        if not chosen:
            raise ValueError(f"there is no node {node}")
        return chosen


class Clock:
    """The clock of a cluster, which can be moved. Retention, compaction lags, tokens, and the timeouts of sessions and
    transactions depend on it.
    """

    def __init__(self, nodes: Callable[[], Sequence[Node]]) -> None:
        self._nodes = nodes
        self.is_moved = False
        """Whether the clock was moved. It cannot be moved back."""

    def advance(self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0) -> None:
        """Move the clock of all running nodes forward. Whatever is due then happens soon; expired segments are already
        deleted when the method returns. Raises `FaultRefused`."""
        step_s = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
        for node in running_nodes(self._nodes()):
            _asked(node, "POST", "/v1/clock", {"advance_ms": round(step_s * 1000)})
            self.is_moved = True


def move_leader(nodes: Sequence[Node], to: int, what: Mapping[str, object]) -> None:
    """Make the node `to` the leader of a partition, or the coordinator of a group or transactional id, as `what` names
    it. Raises `FaultRefused`.
    """
    _asked(running_nodes(nodes)[0], "POST", "/v1/leaders", dict(what) | {"node": to})


def running_nodes(nodes: Sequence[Node]) -> list[Node]:
    """The running nodes. Raises `FaultRefused` if no node runs."""
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
    """Send a request to the control interface of a node, and return the JSON of its response. If `missing` is true, the
    status 404 gives None. Raises `FaultRefused`.
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
