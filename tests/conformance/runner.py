"""Runs the columns of the matrix: each client's scenarios one after the other, clients side by side."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.conformance.brokers import Ports, Served
from tests.conformance.client import Client
from tests.conformance.clients import ClientKind
from tests.conformance.comparison import Cell
from tests.conformance.outcome import Failed, Outcome, Refused, Status, Unavailable
from tests.conformance.plan import DIRECTORIES, TOOLS
from tests.conformance.scenario import Scenario
from tests.conformance.scenarios.directories import DirectoryScenario, Workshop
from tests.conformance.scenarios.tools import ToolScenario
from tests.conformance.session import Session
from tests.conformance.toolbox import Toolbox
from tests.conformance.toolchain import Missing, Toolchain

Report = Callable[[str], None]
LOG_LINES = 12


def settle(story: Callable[[], dict[str, object]]) -> Outcome:
    """Runs one cell and says how it ended; a crash of the story itself is a failure with its name."""
    started = time.monotonic()
    status, reason, facts = Status.OK, "", {}
    try:
        facts = story()
    except Unavailable as missing:
        status, reason = Status.NOT_APPLICABLE, str(missing)
    except (Failed, Refused) as failure:
        status, reason = Status.FAIL, str(failure)
    except Exception as error:
        status, reason = Status.FAIL, f"{type(error).__name__}: {error}"
    return Outcome(status, reason, facts, time.monotonic() - started)


def line_of(broker: str, client: str, scenario: str, outcome: Outcome) -> str:
    status = outcome.status.value
    return f"{broker:7} {client:13} {scenario:24} {status:5} {outcome.seconds:5.1f} s {outcome.reason[:1000]}".rstrip()


class Column:
    """One client against one broker; a driver that died or hangs is started anew for the next scenario."""

    def __init__(
        self, kind: ClientKind, broker: Served, toolchain: Toolchain, logs: Path, stopping: threading.Event
    ) -> None:
        self._stopping = stopping
        self._kind = kind
        self._broker = broker
        self._toolchain = toolchain
        self._log = logs / f"{broker.name}-{kind.name}.log"
        self._client: Client | None = None
        self._command: list[str] = []

    def run(self, scenarios: Sequence[Scenario], report: Report) -> dict[Cell, Outcome]:
        outcomes: dict[Cell, Outcome] = {}
        for scenario in scenarios:
            if self._stopping.is_set():
                break
            begun = self._log.stat().st_size if self._log.exists() else 0
            outcome = settle(lambda scenario=scenario: self._facts(scenario))  # type: ignore[misc]
            outcomes[self._kind.name, scenario.name] = outcome
            report(line_of(self._broker.name, self._kind.name, scenario.name, outcome))
            if outcome.status is Status.FAIL:
                report(self._said(begun))
            self._after(outcome)
        if self._client is not None:
            self._client.close()
        return outcomes

    def _facts(self, scenario: Scenario) -> dict[str, object]:
        if self._client is None:
            try:
                command = self._kind.command(self._toolchain)
            except Missing as missing:
                raise Unavailable(str(missing)) from None
            self._command = [*command, self._broker.bootstrap]
            self._client = self._start()
        session = Session(self._client, scenario.name, self._broker, self._start)
        scenario.run(session)
        return session.facts

    def _said(self, begun: int) -> str:
        """The end of what the driver has logged from that position on."""
        text = self._log.read_bytes()[begun:].decode(errors="replace") if self._log.exists() else ""
        lines = text.splitlines()[-LOG_LINES:] or ["(nothing)"]
        return "\n".join(["    the driver's log:", *(f"    | {line[:300]}" for line in lines)])

    def _start(self) -> Client:
        return Client(self._kind.name, self._command, self._log)

    def _after(self, outcome: Outcome) -> None:
        # After a failure members may still be polling: a new process starts from nothing.
        if self._client is not None and (outcome.status is Status.FAIL or not self._client.is_alive):
            self._client.close()
            self._client = None


def run_tools(
    broker: Served,
    scenarios: Sequence[ToolScenario],
    toolchain: Toolchain,
    directory: Path,
    *,
    side_by_side: int,
    report: Report,
) -> dict[Cell, Outcome]:
    """Each tool is a process of its own, so that scenarios of tools run side by side."""

    def run(scenario: ToolScenario) -> tuple[Cell, Outcome]:
        box = Toolbox(toolchain, broker.bootstrap, scenario.name, directory, broker.directories, broker.node_count)

        def story() -> dict[str, object]:
            scenario.run(box)
            return box.facts

        outcome = settle(story)
        report(line_of(broker.name, TOOLS, scenario.name, outcome))
        return (TOOLS, scenario.name), outcome

    with ThreadPoolExecutor(side_by_side) as pool:
        return dict(pool.map(run, scenarios))


def run_directories(
    scenarios: Sequence[DirectoryScenario], toolchain: Toolchain, ports: Ports, directory: Path, *, report: Report
) -> dict[str, dict[Cell, Outcome]]:
    """These start both brokers themselves; the control belongs to Apache Kafka's side of the comparison."""
    outcomes: dict[str, dict[Cell, Outcome]] = {}
    for scenario in scenarios:
        work = Workshop(toolchain, ports, directory / f"{scenario.side}-{scenario.name}")

        def story(scenario: DirectoryScenario = scenario, work: Workshop = work) -> dict[str, object]:
            scenario.run(work)
            return work.facts

        outcome = settle(story)
        report(line_of(scenario.side, DIRECTORIES, scenario.name, outcome))
        outcomes.setdefault(scenario.side, {})[DIRECTORIES, scenario.name] = outcome
    return outcomes


def run_clients(
    broker: Served,
    kinds: Sequence[ClientKind],
    scenarios: Sequence[Scenario],
    toolchain: Toolchain,
    logs: Path,
    *,
    side_by_side: int,
    report: Report,
) -> dict[Cell, Outcome]:
    stopping = threading.Event()
    columns = [Column(kind, broker, toolchain, logs, stopping) for kind in kinds]
    with ThreadPoolExecutor(side_by_side) as pool:
        try:
            results = list(pool.map(lambda column: column.run(scenarios, report), columns))
        except BaseException:
            stopping.set()  # SIGTERM or Ctrl-C: the scenario at hand ends, the next does not begin
            raise
    return {cell: outcome for result in results for cell, outcome in result.items()}
