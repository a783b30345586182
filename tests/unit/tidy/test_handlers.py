"""Each file that answers one API opens with the API's key, versions and KIPs: `ListOffsets (API key 2, versions 1-11;
KIP-79, KIP-207): what is particular about it.` Keys and versions are those of the table of APIs."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest

from moldau.broker.apis.api import Api
from moldau.broker.apis.catalogue import CATALOGUE
from tests.support.apis import APIS
from tests.unit.tidy.sources import tree_of

OPENING: Final = re.compile(r"(\w+) \(API key (\d+), versions? (\d+)(?:-(\d+))?(?:; KIP-\d+(?:, KIP-\d+)*)?\): \S")


MODULES: Final = Counter(module for module, _ in CATALOGUE.values())
OWN: Final = {
    CATALOGUE[api.name][0]: api for api in APIS if api.name in CATALOGUE and MODULES[CATALOGUE[api.name][0]] == 1
}
"""The APIs that have a module of their own."""


def opening_of(api: Api[Any]) -> tuple[str, int, int, int]:
    return api.name, api.key, api.first, api.last


def said(docstring: str) -> tuple[str, int, int, int] | None:
    """(name, key, first and last version) as a docstring says them; None if it opens otherwise."""
    match = OPENING.match(" ".join(docstring.split()))
    return match and (match[1], int(match[2]), int(match[3]), int(match[4] or match[3]))


@pytest.mark.parametrize("module", OWN)
def test_a_handler_opens_with_key_versions_and_kips(module: str) -> None:
    docstring = ast.get_docstring(tree_of(Path("broker/apis", f"{module.replace('.', '/')}.py"))) or ""
    print(f"{module}: {docstring.partition(chr(10))[0]!r}, the table has {opening_of(OWN[module])}")
    assert said(docstring) == opening_of(OWN[module])


@pytest.mark.parametrize(
    ("docstring", "expected"),
    [
        ("Fetch (API key 1, versions 4-18; KIP-227, KIP-392): plans.", ("Fetch", 1, 4, 18)),
        ("OffsetDelete (API key 47, version 0; KIP-496): forgets.", ("OffsetDelete", 47, 0, 0)),
        ("Heartbeat (API key 12, versions 0-4): a member\nlives.", ("Heartbeat", 12, 0, 4)),
        ("Heartbeat (API 12): a member lives.", None),
        ("Heartbeat: a member lives.", None),
    ],
)
def test_an_opening_is_read(docstring: str, expected: object) -> None:
    assert said(docstring) == expected
