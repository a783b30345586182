"""Runs: each has the figures of one commit on one machine, by group, in a file of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple, Self

from bench.figures import Figure

ROOT: Final = Path(__file__).parent.parent
RESULTS: Final = ROOT / "bench" / "results"
LATEST: Final = RESULTS / "latest.json"
"""The file of the last run, complete or not. git ignores it."""
KEPT: Final = RESULTS / "run.json"
"""The file of the run that docs/performance.md and the chart show."""
KEPT_LONG: Final = RESULTS / "long.json"
"""The file of the run of the groups that take dozens of minutes each, which has a table of its own."""


class GroupResult(NamedTuple):
    """The result of one group."""

    seconds: float
    figures: tuple[Figure, ...]
    failure: str = ""
    """Why there are no figures, in one line; empty if the group was measured."""


class BenchRun(NamedTuple):
    """A run. All its figures are of the same commit, form and machine, which `facts` names."""

    facts: dict[str, str]
    groups: dict[str, GroupResult]
    """The results by the name of the group in `bench.groups`."""

    @property
    def figures(self) -> Mapping[str, Figure]:
        """The figures by name."""
        return {figure.name: figure for group in self.groups.values() for figure in group.figures}

    @property
    def minutes(self) -> float:
        return sum(group.seconds for group in self.groups.values()) / 60

    def has_group(self, group: str) -> bool:
        """Whether the group was measured. A group that failed was not."""
        return group in self.groups and not self.groups[group].failure

    def continues(self, earlier: BenchRun) -> bool:
        """Whether the figures of `earlier` may be added to this run: the facts are the same, apart from the day."""
        return all(earlier.facts.get(name) == value for name, value in self.facts.items() if name != "date")

    def write(self, path: Path) -> None:
        groups = {
            name: {
                "seconds": round(group.seconds),
                **({"failure": group.failure} if group.failure else {}),
                "figures": [each.as_json() for each in group.figures],
            }
            for name, group in self.groups.items()
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({**self.facts, "groups": groups}, indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> Self:
        facts = json.loads(path.read_text())
        groups = {
            name: GroupResult(group["seconds"], tuple(map(Figure.of_json, group["figures"])), group.get("failure", ""))
            for name, group in facts.pop("groups").items()
        }
        return cls(facts, groups)
