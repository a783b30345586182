"""The settings of share groups, which are cached by group."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from moldau.broker.config.loading import checked_config
from moldau.broker.metadata.cluster_view import DynamicConfig
from moldau.broker.share_partitions import settings
from moldau.broker.share_partitions.settings import GroupSettings, duration_ms
from moldau.kraft.image.metadata_image import MetadataImage
from tests.support.node import PROPERTIES


def test_the_cache_has_a_limit_for_clients_choose_the_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "GROUPS_MAX", 3)
    published = SimpleNamespace(image=MetadataImage())
    cached = GroupSettings(published, DynamicConfig(checked_config(PROPERTIES)))
    first = cached.settings_of("g")
    assert cached.settings_of("g") is first
    for number in range(10):
        assert cached.settings_of(f"group {number}") == first
        assert len(cached._of) <= 3


def test_a_duration_has_days_hours_minutes_and_seconds() -> None:
    assert duration_ms("by_duration:P1DT2H3M4.5S") == (((24 + 2) * 60 + 3) * 60 + 4) * 1_000 + 500
    assert duration_ms("by_duration:PT1H") == 3_600_000
