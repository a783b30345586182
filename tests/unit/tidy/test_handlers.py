"""A module begins with what its API is, `ListOffsets (API key 2, versions 1-11; KIP-79, KIP-207): what it does`, and
with what its versions brought: `4: leader epochs (KIP-320) · 5: …`. A module of several APIs says so of each. Keys and
versions are those of the declarations in `protocol/messages/`.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from moldau.broker.apis.api import Api
from moldau.broker.apis.catalogue import CATALOGUE
from tests.support.apis import APIS
from tests.unit.tidy.sources import tree_of

OPENING: Final = re.compile(r"(\w+) \(API key (\d+), versions? (\d+)(?:-(\d+))?(?:; KIP-\d+(?:, KIP-\d+)*)?\): (?=\S)")
NOTE: Final = re.compile(r"(?:^|\. |: |· )(\d+)(?:-(\d+))?: (?=\S)")
IN_MODULES: Final = [api for api in APIS if api.name in CATALOGUE]


class Said(NamedTuple):
    """What a docstring says of an API."""

    name: str
    key: int
    first: int
    last: int
    versions: list[int]
    """Those of which it says what they brought."""


def said_in(docstring: str) -> dict[str, Said]:
    """What a docstring says of each API that it opens, by name."""
    text = " ".join(docstring.split())
    found = list(OPENING.finditer(text))
    ends = [*(each.start() for each in found), len(text)][1:]
    return {
        each[1]: Said(
            each[1],
            int(each[2]),
            int(each[3]),
            int(each[4] or each[3]),
            [int(number) for note in NOTE.finditer(text[each.end() : end]) for number in note.groups() if number],
        )
        for each, end in zip(found, ends, strict=True)
    }


@pytest.mark.parametrize("api", IN_MODULES, ids=lambda api: api.name)
def test_a_module_says_of_its_apis_what_they_are(api: Api[Any]) -> None:
    module, _ = CATALOGUE[api.name]
    said = said_in(ast.get_docstring(tree_of(Path("broker/apis", f"{module.replace('.', '/')}.py"))) or "")
    print(f"{module}: {said}")
    assert said[api.name][:4] == (api.name, api.key, api.first, api.last)
    versions = said[api.name].versions
    assert versions == sorted(set(versions)) and all(api.first <= each <= api.last for each in versions)
    assert bool(versions) == (api.last > api.first), "what did its versions bring?"


@pytest.mark.parametrize(
    ("docstring", "expected"),
    [
        ("Fetch (API key 1, versions 4-18; KIP-227, KIP-392): plans.", [("Fetch", 1, 4, 18, [])]),
        ("OffsetDelete (API key 47, version 0; KIP-496): forgets.", [("OffsetDelete", 47, 0, 0, [])]),
        (
            "Heartbeat (API key 12, versions 0-4): a member\nlives.\n\n3: static · 4: x.",
            [("Heartbeat", 12, 0, 4, [3, 4])],
        ),
        (
            "Both.\n\nA (API key 1, versions 0-4): a.\n1-2: x\n· 4: y.\nB (API key 2, versions 0-1): 1: z.",
            [("A", 1, 0, 4, [1, 2, 4]), ("B", 2, 0, 1, [1])],
        ),
        ("Heartbeat (API 12): a member lives.", []),
        ("Heartbeat: a member lives, at 3: 4.", []),
    ],
)
def test_a_docstring_is_read(docstring: str, expected: object) -> None:
    assert [tuple(each) for each in said_in(docstring).values()] == expected
