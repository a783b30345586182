"""Two runs of the same scenarios side by side: every difference, and whether it is a known one."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from pathlib import Path

from tests.conformance.outcome import Outcome, Status

HERE = Path(__file__).parent
RECORDED = {1: HERE / "apache-4.3.1.json", 3: HERE / "apache-4.3.1-three-nodes.json"}
"""By the number of nodes."""

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


def recorded(path: Path) -> dict[Cell, Outcome]:
    """What Apache Kafka did when it was last asked by `--record`."""
    if not path.exists():
        return {}
    return {
        (client, scenario): Outcome(Status(entry["status"]), facts=entry["facts"])
        for client, scenarios in json.loads(path.read_text()).items()
        for scenario, entry in scenarios.items()
    }


def record(outcomes: Mapping[Cell, Outcome], path: Path) -> None:
    """Keeps what was observed for runs without Java; cells that were not run now stay as they were."""
    ran = {cell: outcome for cell, outcome in outcomes.items() if outcome.status is not Status.NOT_APPLICABLE}
    merged = {**recorded(path), **ran}
    by_client: dict[str, dict[str, object]] = {}
    for (client, scenario), outcome in sorted(merged.items()):
        by_client.setdefault(client, {})[scenario] = {"status": outcome.status.value, "facts": outcome.facts}
    path.write_text(json.dumps(by_client, indent=1, sort_keys=True) + "\n")
