"""The pages that tell the layers of the code tell those of the import contracts."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from tests.unit.tidy.sources import PACKAGES

ROOT = Path(__file__).parents[3]
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]


def layers(container: str) -> list[str]:
    """The layers of a package, lowest first."""
    (found,) = (each["layers"] for each in CONTRACTS if each.get("containers") == [container])
    return [name for layer in reversed(found) for name in layer.split(" | ")]


def test_the_layers_of_the_broker_are_those_of_its_contract() -> None:
    text = " ".join((ROOT / "CONTRIBUTING.md").read_text("utf-8").split())
    (told,) = re.findall(r"Inside `broker/`, lowest first: ([^.]+)\.", text)
    assert re.findall(r"`(\w+)`", told) == layers("moldau.broker")


def test_the_diagram_of_the_packages_has_each_of_them() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    drawing, _, rest = page.partition("\n`tables`")
    assert rest, "the drawing is followed by the sentence on tables"
    assert set(PACKAGES) - {"tables", "spark_jobs", "pyspark_moldau"} <= set(re.findall(r"\w+", drawing))
