"""The page of limits names settings, constants, metrics and tests that exist, with the defaults that they have."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from moldau.broker.config.catalogue import broker_catalogue
from moldau.broker.metrics.catalogue import metrics

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "limits.md"
NAME = re.compile(r"`([^`]+)`")


class Row(NamedTuple):
    limit: str
    setting: str
    default: str
    happens: str
    metric: str
    test: str


def rows() -> list[Row]:
    lines = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [Row(*row) for row in cells if row[0] != "limit"]


ROWS = rows()


def constant(name: str) -> object:
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def is_constant(name: str) -> bool:
    return name.rpartition(".")[2].isupper()


@pytest.mark.parametrize("row", ROWS, ids=[row.limit for row in ROWS])
def test_a_limit_is_what_the_page_says(row: Row) -> None:
    (name,) = NAME.findall(row.setting)
    if is_constant(name):
        assert row.default == f"`{constant(name)}`"
    else:
        default = broker_catalogue()[name].default_text
        assert row.default == (f"`{default}`" if default else "–")
    for mentioned in NAME.findall(row.happens):
        if is_constant(mentioned):
            assert constant(mentioned) is not None
    for metric in NAME.findall(row.metric):
        assert metric in metrics()
    for test in NAME.findall(row.test):
        path, _, function = test.partition("::")
        assert f"\ndef {function}(" in (ROOT / path).read_text("utf-8") if function else (ROOT / path).is_file()
    assert NAME.search(row.test), "a limit without a test"


def test_every_part_of_the_page_is_read() -> None:
    assert len(ROWS) >= 20
    assert len({row.limit for row in ROWS}) == len(ROWS)
