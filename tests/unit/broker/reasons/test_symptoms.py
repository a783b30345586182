"""The table of symptoms in docs/groups.md has each word that a sentence may have, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from moldau.broker.reasons import explain

ROOT = Path(__file__).parents[4]
ROW = re.compile(r"^\| ((?:`[a-z-]+`(?:, )?)+) \|", re.MULTILINE)


def test_each_symptom_has_a_row() -> None:
    source = Path(explain.__file__).read_text()
    page = (ROOT / "docs" / "groups.md").read_text()
    section = page.partition("## Why a group lags")[2].partition("\n## ")[0]
    told = {word for row in ROW.findall(section) for word in re.findall(r"[a-z-]+", row)}
    written = set(re.findall(r'Finding\(\s*"([a-z-]+)"', source)) | set(
        re.findall(r'^\s+"([a-z-]+)" if ', source, re.MULTILINE)
    )
    written |= set(re.findall(r' else "([a-z-]+)",$', source, re.MULTILINE))
    assert told == written
