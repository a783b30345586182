"""Two runs of the same scenarios side by side: every difference, and whether it is a known one."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from tests.conformance.outcome import Outcome, Status

HERE = Path(__file__).parent
RECORDED: Final = "apache-4.3.1.json"
"""What one node of Apache Kafka did, by client and scenario."""
OVERLAYS: Final = {3: "apache-4.3.1-three-nodes.json"}
"""By the number of nodes: the cells in which that many nodes did something else; null for a cell that was not run."""

Cell = tuple[str, str]  # (client, scenario)


class Verdict(Enum):
    OK = "ok"
    NOT_APPLICABLE = "n.a."
    KNOWN = "known"
    AS_APACHE = "as apache"
    DIFFERS = "DIFFERS"
    FAIL = "FAIL"

    @property
    def is_bad(self) -> bool:
        return self in (Verdict.DIFFERS, Verdict.FAIL)


@dataclass(frozen=True, slots=True)
class Difference:
    fact: str
    ours: object
    theirs: object

    def __str__(self) -> str:
        return f"{self.fact}: {_short(self.ours)}, Apache Kafka: {_short(self.theirs)}"


@dataclass(frozen=True, slots=True)
class Divergence:
    """One entry of `divergences.toml`."""

    scenario: str
    reason: str
    client: str = "*"
    facts: tuple[str, ...] = ("*",)

    def covers(self, cell: Cell, fact: str) -> bool:
        client, scenario = cell
        matches = fnmatchcase(scenario, self.scenario) and fnmatchcase(client, self.client)
        return matches and any(fnmatchcase(fact, pattern) for pattern in self.facts)


@dataclass(frozen=True, slots=True)
class Judgement:
    verdict: Verdict
    reason: str = ""
    differences: tuple[Difference, ...] = ()


_ABSENT = "(absent)"


def _short(value: object) -> str:
    text = json.dumps(value) if not isinstance(value, str) else value
    return text if len(text) <= 160 else text[:157] + "..."


def leaves(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Every value inside nested facts with the path that leads to it."""
    if isinstance(value, Mapping) and (value or not path):
        for key, inner in value.items():
            yield from leaves(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and any(isinstance(inner, Mapping) for inner in value):
        for index, inner in enumerate(value):
            yield from leaves(inner, f"{path}.{index}")
    else:
        yield path, list(value) if isinstance(value, tuple) else value


def differences(ours: Outcome, theirs: Outcome) -> tuple[Difference, ...]:
    left, right = dict(leaves(ours.facts)), dict(leaves(theirs.facts))
    return tuple(
        Difference(fact, left.get(fact, _ABSENT), right.get(fact, _ABSENT))
        for fact in sorted(left.keys() | right.keys())
        if left.get(fact, _ABSENT) != right.get(fact, _ABSENT)
    )


def known_divergences(path: Path = HERE / "divergences.toml") -> tuple[Divergence, ...]:
    entries = tomllib.loads(path.read_text())["divergence"]
    return tuple(Divergence(**{**entry, "facts": tuple(entry.get("facts", ("*",)))}) for entry in entries)


def judge(cell: Cell, ours: Outcome, theirs: Outcome | None, known: tuple[Divergence, ...]) -> Judgement:
    """What a cell means, given what Apache Kafka did in the same scenario (None: it was not asked)."""
    if ours.status is Status.NOT_APPLICABLE:
        return Judgement(Verdict.NOT_APPLICABLE, ours.reason)
    if ours.status is Status.FAIL:
        reasons = [entry.reason for entry in known if entry.covers(cell, "")]
        if theirs is not None and theirs.status is Status.FAIL:
            return Judgement(Verdict.AS_APACHE, ours.reason)
        return Judgement(Verdict.KNOWN, reasons[0]) if reasons else Judgement(Verdict.FAIL, ours.reason)
    if theirs is None or theirs.status is not Status.OK:
        return Judgement(Verdict.OK)
    found = differences(ours, theirs)
    unknown = [entry for entry in found if not any(each.covers(cell, entry.fact) for each in known)]
    if unknown:
        return Judgement(Verdict.DIFFERS, f"{len(unknown)} differences, first {unknown[0]}", found)
    if not found:
        return Judgement(Verdict.OK)
    meant = dict.fromkeys(each.reason for each in known for entry in found if each.covers(cell, entry.fact))
    return Judgement(Verdict.KNOWN, "; ".join(meant), found)


def recorded(nodes: int, folder: Path = HERE) -> dict[Cell, Outcome]:
    """What this many nodes of Apache Kafka did when they were last asked by `--record`."""
    cells = _read(folder / RECORDED)
    if nodes in OVERLAYS:
        cells |= _read(folder / OVERLAYS[nodes])
    return {cell: outcome for cell, outcome in cells.items() if outcome is not None}


def record(outcomes: Mapping[Cell, Outcome], nodes: int, folder: Path = HERE) -> None:
    """Keeps what was observed for runs without Java; cells that were not run now stay as they were."""
    ran = {
        cell: Outcome(outcome.status, facts=json.loads(json.dumps(outcome.facts)))
        for cell, outcome in outcomes.items()
        if outcome.status is not Status.NOT_APPLICABLE
    }
    merged = {each: recorded(each, folder) | (ran if each == nodes else {}) for each in (1, *OVERLAYS)}
    _write(merged[1], folder / RECORDED)
    for each, name in OVERLAYS.items():
        cells = merged[1].keys() | merged[each].keys()
        _write(
            {cell: merged[each].get(cell) for cell in cells if merged[each].get(cell) != merged[1].get(cell)},
            folder / name,
        )


def _read(path: Path) -> dict[Cell, Outcome | None]:
    return {
        (client, scenario): None if entry is None else Outcome(Status(entry["status"]), facts=entry["facts"])
        for client, scenarios in (json.loads(path.read_text()) if path.exists() else {}).items()
        for scenario, entry in scenarios.items()
    }


def _write(cells: Mapping[Cell, Outcome | None], path: Path) -> None:
    by_client: dict[str, dict[str, object]] = {}
    for (client, scenario), outcome in cells.items():
        entry = None if outcome is None else {"status": outcome.status.value, "facts": outcome.facts}
        by_client.setdefault(client, {})[scenario] = entry
    path.write_text(json.dumps(by_client, indent=1, sort_keys=True) + "\n")
