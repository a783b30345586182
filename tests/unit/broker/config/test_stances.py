"""What the code does with a setting is what the catalogue says of it."""

from __future__ import annotations

import re
from pathlib import Path

from moldau.broker.config.catalogue import broker_catalogue
from moldau.broker.config.document import unread_settings
from moldau.broker.config.setting import Stance

ROOT = Path(__file__).parents[4]
READ = re.compile(
    r"\.(?:integer|integer_or_none|real|flag|text|text_or_none|entries|duration_ms|value)\(\s*\"([a-z0-9.]+)\""
)


def names_read() -> dict[str, str]:
    """The settings that are read outside broker/config, each with a module that reads it."""
    modules = [path for path in (ROOT / "broker").rglob("*.py") if "config" not in path.relative_to(ROOT).parts]
    return {name: str(path.relative_to(ROOT)) for path in modules for name in READ.findall(path.read_text("utf-8"))}


def test_a_setting_that_is_read_exists_and_is_not_said_to_have_no_effect() -> None:
    catalogue = broker_catalogue()
    for name, module in names_read().items():
        assert name in catalogue, f"{module} reads {name}, which Apache Kafka 4.3.1 does not know"
        assert catalogue[name].stance is Stance.HONOURED, f"{module} reads {name}: call it honoured in its table"


def test_a_setting_that_is_called_honoured_is_read() -> None:
    assert unread_settings(ROOT / "broker") == []
