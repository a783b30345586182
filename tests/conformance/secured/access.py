"""Where an application in Java finds the cluster, and how it logs in there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.conformance.secured.jaas import lines


@dataclass(frozen=True, slots=True)
class Access:
    """`settings` are a client's properties; there are none on a plain listener."""

    bootstrap: str
    settings: Mapping[str, str] = field(default_factory=dict)

    def written(self, path: Path) -> Path:
        path.write_text(lines(self.settings))
        return path

    def lines_for(self, *prefixes: str) -> str:
        """The settings under each of the prefixes, as lines of a properties file."""
        return "".join(
            lines({f"{prefix}{name}": value for name, value in self.settings.items()}) for prefix in prefixes
        )
