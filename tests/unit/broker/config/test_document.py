"""docs/configuration.md says what the catalogue says."""

from __future__ import annotations

import re
from pathlib import Path

from moldau.broker.config.catalogue import broker_catalogue
from moldau.broker.config.document import document
from moldau.broker.config.setting import Stance

ROOT = Path(__file__).parents[4]


def test_the_page_is_up_to_date() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text("utf-8")
    assert page == document(), "python -m moldau.broker.config.document > docs/configuration.md"


def test_every_setting_stands_on_the_page_once_in_its_list() -> None:
    sections = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", document(), re.MULTILINE | re.DOTALL))
    titles = {
        Stance.HONOURED: "Honoured",
        Stance.ACCEPTED: "Accepted without effect",
        Stance.REFUSED: "Refused",
    }
    for stance, title in titles.items():
        listed = re.findall(r"^\| `([^`]+)`", sections[title], re.MULTILINE)
        expected = [name for name, setting in broker_catalogue().items() if setting.stance is stance]
        assert sorted(listed) == sorted(expected)
