"""Runs the columns of the matrix: each client's scenarios one after the other, clients side by side."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.conformance.brokers import Broker, Running
from tests.conformance.client import Client
from tests.conformance.clients import ClientKind
from tests.conformance.comparison import Cell
from tests.conformance.outcome import Failed, Outcome, Refused, Status, Unavailable
from tests.conformance.scenario import Scenario
from tests.conformance.session import Session
from tests.conformance.toolchain import Missing, Toolchain

Report = Callable[[str], None]


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


class Column:
    """One client against one broker; a driver that died or hangs is started anew for the next scenario."""

    def __init__(self, kind: ClientKind, broker: Broker | Running, toolchain: Toolchain, logs: Path) -> None:
        self._kind = kind
        self._broker = broker
        self._toolchain = toolchain
        self._log = logs / f"{broker.name}-{kind.name}.log"
        self._client: Client | None = None

    def run(self, scenarios: Sequence[Scenario], report: Report) -> dict[Cell, Outcome]:
        outcomes: dict[Cell, Outcome] = {}
        for scenario in scenarios:
            outcome = settle(lambda scenario=scenario: self._facts(scenario))  # type: ignore[misc]
            outcomes[self._kind.name, scenario.name] = outcome
            report(
                f"{self._broker.name:7} {self._kind.name:13} {scenario.name:24} {outcome.status.value:5}"
                f" {outcome.seconds:5.1f} s {outcome.reason[:200]}"
            )
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
            self._client = Client(self._kind.name, [*command, self._broker.bootstrap], self._log)
        data = self._broker.data if isinstance(self._broker, Broker) else None
        session = Session(self._client, scenario.name, data)
        scenario.run(session)
        return session.facts

    def _after(self, outcome: Outcome) -> None:
        # After a failure members may still be polling: a new process starts from nothing.
        if self._client is not None and (outcome.status is Status.FAIL or not self._client.is_alive):
            self._client.close()
            self._client = None


def run_clients(
    broker: Broker | Running,
    kinds: Sequence[ClientKind],
    scenarios: Sequence[Scenario],
    toolchain: Toolchain,
    logs: Path,
    *,
    side_by_side: int,
    report: Report,
) -> dict[Cell, Outcome]:
    columns = [Column(kind, broker, toolchain, logs) for kind in kinds]
    with ThreadPoolExecutor(side_by_side) as pool:
        results = list(pool.map(lambda column: column.run(scenarios, report), columns))
    return {cell: outcome for result in results for cell, outcome in result.items()}
