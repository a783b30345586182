"""A bounded part of `python -m tests.lake --nested 500`: nested values survive whatever happens to a table."""

from __future__ import annotations

import pytest

pytest.importorskip("pyiceberg", reason="the extra moldau[iceberg] is not installed")
pytest.importorskip("fastavro", reason="the extra moldau[schemas] is not installed")
pytest.importorskip("google.protobuf", reason="the extra moldau[schemas] is not installed")
pytest.importorskip("polars", reason="the extra moldau[polars] is not installed")
pytest.importorskip("duckdb", reason="the extra moldau[sql] is not installed")

from hypothesis import HealthCheck, Phase, given, settings

from tests.lake.nested import Story, stories, tell

pytestmark = pytest.mark.slow


@given(stories(kills=False))
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_nested_values_are_what_was_written(story: Story) -> None:
    tell(story)


@pytest.mark.processes
@given(stories())
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
def test_and_also_after_the_follower_was_killed(story: Story) -> None:
    tell(story)
