"""A run: what was measured of one commit on one machine, by group, in a file of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple, Self

from bench.figures import Figure

ROOT: Final = Path(__file__).parent.parent
RESULTS: Final = ROOT / "bench" / "results"
LATEST: Final = RESULTS / "latest.json"
"""What the last command measured, whole or not; git ignores it."""
KEPT: Final = RESULTS / "run.json"
"""The run that docs/performance.md and the chart show."""
KEPT_LONG: Final = RESULTS / "long.json"
"""The run of the groups that take dozens of minutes each, which has a table of its own."""


class Measured(NamedTuple):
    """What one group gave."""

    seconds: float
    figures: tuple[Figure, ...]
    failure: str = ""
    """Why there are no figures, in one line; empty if the group was measured."""


class Run(NamedTuple):
    """All figures of a run are of the same commit, form and machine: `facts` names them once."""

    facts: dict[str, str]
    groups: dict[str, Measured]
    """By the name of the group in `bench.groups`."""

    @property
    def figures(self) -> Mapping[str, Figure]:
        """By name."""
        return {figure.name: figure for group in self.groups.values() for figure in group.figures}

    @property
    def minutes(self) -> float:
        return sum(group.seconds for group in self.groups.values()) / 60

    def has(self, group: str) -> bool:
        """Whether the group was measured; one that failed was not."""
        return group in self.groups and not self.groups[group].failure

    def continues(self, earlier: Run) -> bool:
        """Whether figures of `earlier` may stand beside those of this run. The day may be another one."""
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
            name: Measured(group["seconds"], tuple(map(Figure.of_json, group["figures"])), group.get("failure", ""))
            for name, group in facts.pop("groups").items()
        }
        return cls(facts, groups)
