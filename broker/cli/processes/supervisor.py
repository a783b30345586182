"""The supervisor of the processes of one command: a state machine without I/O. `Processes` passes events and the time
to it, and carries out the effects in their order.

    a process:    waiting ──its time comes──▶ running ──it serves──▶ serving ──it ends──▶ waiting, ended or left
                     ▲                           └───────────────────────┴─▶ stopping ──▶ ended
                     └── ProcessPolicy.restarts

    the command:  starting ──all serve──▶ serving ──a signal──▶ stopping ──all have ended──▶ exit
                     └── one ends before it has served ─────────────▲
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from moldau.broker.runtime.place import EXIT_LEFT_CLUSTER

BACKOFF_FIRST_MS: Final = 500
BACKOFF_MAX_MS: Final = 30_000
STEADY_MS: Final = 60_000
"""If a process has served for this time (ms), its next restart waits only `BACKOFF_FIRST_MS` again."""
STOP_PATIENCE_MS: Final = 40_000
"""The time (ms) after which a process that does not stop is killed. It is longer than the node's own limits."""


# Effects


@dataclass(frozen=True, slots=True)
class StartProcess:
    node_id: int


@dataclass(frozen=True, slots=True)
class SignalProcess:
    node_id: int
    number: signal.Signals


@dataclass(frozen=True, slots=True)
class PrintLine:
    """Print a line for the operator."""

    text: str
    is_problem: bool = False


@dataclass(frozen=True, slots=True)
class AnnounceServing:
    """Announce that every process serves, for the first time."""


@dataclass(frozen=True, slots=True)
class RemoveDirectories:
    """Remove the directories of a node, because it has left its cluster."""

    node_id: int


@dataclass(frozen=True, slots=True)
class ExitCommand:
    """End the command with this exit status. All processes have ended."""

    status: int


Effect = StartProcess | SignalProcess | PrintLine | AnnounceServing | RemoveDirectories | ExitCommand


class ProcessState(Enum):
    WAITING = auto()
    RUNNING = auto()
    SERVING = auto()
    STOPPING = auto()
    ENDED = auto()
    LEFT = auto()


ALIVE: Final = (ProcessState.RUNNING, ProcessState.SERVING, ProcessState.STOPPING)


class Phase(Enum):
    STARTING = auto()
    SERVING = auto()
    STOPPING = auto()
    OVER = auto()


@dataclass(frozen=True, slots=True)
class ProcessPolicy:
    """The rules by which a command starts and stops its nodes."""

    restarts: bool
    """Whether a process that ends is started again. If not, the operator is told which command starts it."""
    stop_order: Sequence[Sequence[int]]
    """Groups of node ids. The nodes of a group are stopped together, and the groups one after the other."""
    stopping: str
    """The line that the operator gets at the first signal."""
    remedies: Mapping[int, str]
    """The command with which the operator starts a node again, by node id; used if `restarts` is False."""


@dataclass(slots=True)
class WatchedProcess:
    """The state of a process that the supervisor watches."""

    state: ProcessState = ProcessState.WAITING
    due_ms: int = 0
    """The time at which a waiting process is started, or a stopping one is killed."""
    since_ms: int = 0
    """The time since which the process serves."""
    backoff_ms: int = BACKOFF_FIRST_MS
    has_served: bool = False


class Supervisor:
    """Decides when the processes of one command are started, stopped and killed. Each event returns the effects to
    carry out. Times are monotonic, in ms.
    """

    def __init__(self, policy: ProcessPolicy) -> None:
        self._policy = policy
        self._watched = {node_id: WatchedProcess() for group in policy.stop_order for node_id in group}
        self._phase = Phase.STARTING
        self._has_failed = False

    @property
    def alive(self) -> list[int]:
        """The node ids of the processes that have not ended."""
        return [node_id for node_id, each in self._watched.items() if each.state in ALIVE]

    def next_deadline_ms(self) -> int | None:
        """The time at which `tick` must be called next; None if no process waits or is stopping."""
        waits = (ProcessState.WAITING, ProcessState.STOPPING)
        return min((each.due_ms for each in self._watched.values() if each.state in waits), default=None)

    # Events

    def tick(self, now_ms: int) -> list[Effect]:
        """Start each waiting process, and kill each stopping process, whose time `due_ms` has come. The first call
        starts all processes.
        """
        effects: list[Effect] = []
        for node_id, each in sorted(self._watched.items()):
            if each.due_ms > now_ms:
                continue
            if each.state is ProcessState.WAITING:
                each.state = ProcessState.RUNNING
                effects.append(StartProcess(node_id))
            elif each.state is ProcessState.STOPPING:
                each.due_ms = now_ms + STOP_PATIENCE_MS
                effects += [
                    PrintLine(
                        f"node {node_id} did not stop in {STOP_PATIENCE_MS // 1000} s and is killed", is_problem=True
                    ),
                    SignalProcess(node_id, signal.SIGKILL),
                ]
        return effects

    def on_serving(self, node_id: int, now_ms: int) -> list[Effect]:
        """Note that a node serves clients."""
        each = self._watched[node_id]
        if each.state is not ProcessState.RUNNING:
            return []
        again: list[Effect] = [PrintLine(f"node {node_id} serves again")] if each.has_served else []
        each.state, each.since_ms, each.has_served = ProcessState.SERVING, now_ms, True
        return again + self._all_serve()

    def on_ended(self, node_id: int, status: int, now_ms: int) -> list[Effect]:
        """Note that a process has ended. `status` is that of `subprocess`: negative if a signal ended it."""
        each = self._watched[node_id]
        before, each.state = each.state, ProcessState.ENDED
        effects: list[Effect] = []
        if status == EXIT_LEFT_CLUSTER:
            each.state = ProcessState.LEFT
            effects.append(RemoveDirectories(node_id))
        elif self._phase is Phase.STOPPING:
            if status:
                self._has_failed = True
                effects.append(PrintLine(f"node {node_id} {ended_text(status)}", is_problem=True))
        elif not each.has_served and self._phase is Phase.STARTING:
            self._has_failed = True
            effects.append(PrintLine(f"node {node_id} {ended_text(status)} before it served", is_problem=True))
            return effects + self._stop(now_ms)
        elif self._policy.restarts:
            return [self._wait(each, node_id, status, now_ms, was_serving=before is ProcessState.SERVING)]
        else:
            self._has_failed = self._has_failed or bool(status)
            remedy = self._policy.remedies[node_id]
            effects.append(
                PrintLine(f"node {node_id} {ended_text(status)}; this starts it again: {remedy}", is_problem=True)
            )
        if self._phase is Phase.STOPPING:
            return effects + self._stop_next(now_ms)
        if all(one.state in (ProcessState.ENDED, ProcessState.LEFT) for one in self._watched.values()):
            self._has_failed = True
            return effects + self._stop_next(now_ms)
        return effects + self._all_serve()

    def on_signal(self, now_ms: int) -> list[Effect]:
        """Handle a SIGTERM or SIGINT that the command got. The first signal stops the processes, further ones kill
        them.
        """
        if self._phase is not Phase.STOPPING:
            return [PrintLine(self._policy.stopping), *self._stop(now_ms)]
        kills = [SignalProcess(node_id, signal.SIGKILL) for node_id in sorted(self.alive)]
        return [PrintLine("killing the nodes; the next start recovers their logs", is_problem=True), *kills]

    # Steps

    def _wait(self, each: WatchedProcess, node_id: int, status: int, now_ms: int, *, was_serving: bool) -> Effect:
        """Schedule the next start of a process that has ended. The pause doubles each time, unless the process had
        served for `STEADY_MS`.
        """
        if was_serving and now_ms - each.since_ms >= STEADY_MS:
            each.backoff_ms = BACKOFF_FIRST_MS
        each.state, each.due_ms = ProcessState.WAITING, now_ms + each.backoff_ms
        text = f"node {node_id} {ended_text(status)}; it is started again in {each.backoff_ms / 1000:g} s"
        each.backoff_ms = min(2 * each.backoff_ms, BACKOFF_MAX_MS)
        return PrintLine(text, is_problem=True)

    def _all_serve(self) -> list[Effect]:
        if self._phase is not Phase.STARTING:
            return []
        if not all(each.has_served or each.state is ProcessState.LEFT for each in self._watched.values()):
            return []
        self._phase = Phase.SERVING
        return [AnnounceServing()]

    def _stop(self, now_ms: int) -> list[Effect]:
        self._phase = Phase.STOPPING
        for each in self._watched.values():
            if each.state is ProcessState.WAITING:
                each.state = ProcessState.ENDED
        return self._stop_next(now_ms)

    def _stop_next(self, now_ms: int) -> list[Effect]:
        """Stop the next group that has a running process. After the last group, return `ExitCommand`."""
        self._phase = Phase.STOPPING
        for group in self._policy.stop_order:
            running = [node_id for node_id in group if self._watched[node_id].state in ALIVE]
            if running:
                return self._terminate(running, now_ms)
        self._phase = Phase.OVER
        return [ExitCommand(1 if self._has_failed else 0)]

    def _terminate(self, node_ids: Iterable[int], now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        for node_id in node_ids:
            each = self._watched[node_id]
            if each.state is not ProcessState.STOPPING:
                each.state, each.due_ms = ProcessState.STOPPING, now_ms + STOP_PATIENCE_MS
                effects.append(SignalProcess(node_id, signal.SIGTERM))
        return effects


def ended_text(status: int) -> str:
    """Describe in words how a process ended."""
    if status >= 0:
        return f"has ended with status {status}"
    return f"was ended by {signal.Signals(-status).name}"
