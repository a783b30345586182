"""The verdict on lines that Kafka Connect copied: what the topic and the sink may hold."""

from __future__ import annotations

import json

import pytest

from tests.conformance.connect.campaign import difference, line_of, whole_lines

LINES = [line_of(number) for number in range(4)]


def values(*numbers: int) -> list[str]:
    return [json.dumps(line_of(number)) for number in numbers]


def test_a_sink_may_repeat_lines_after_a_kill() -> None:
    sunk = [LINES[0], LINES[1], LINES[0], LINES[1], LINES[2], LINES[3]]
    assert difference(values(0, 1, 2, 3), sunk, LINES) == ""


@pytest.mark.parametrize("numbers", [(0, 1, 1, 2, 3), (0, 1, 3), (0, 2, 1, 3), (0, 1, 2)])
def test_the_topic_has_each_line_once_in_order(numbers: tuple[int, ...]) -> None:
    assert difference(values(*numbers), LINES, LINES).startswith("lines of the topic: ")


@pytest.mark.parametrize("sunk", [[0, 1, 3], [0, 2, 1, 3]])
def test_a_sink_loses_and_reorders_nothing(sunk: list[int]) -> None:
    assert difference(values(0, 1, 2, 3), [LINES[number] for number in sunk], LINES).startswith("lines of the sink: ")


def test_half_a_line_is_none() -> None:
    assert whole_lines("<line 0>\n<line 1<line 1>\n<li") == ["<line 0>", "<line 1>"]
