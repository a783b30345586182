"""The forms of values, tables, times and durations."""

from __future__ import annotations

import io
import json
import re

import pytest

from moldau.broker.cli.daily.failures import WrongArguments
from moldau.broker.cli.daily.output import Output, size_text, time_text
from moldau.broker.cli.daily.times import duration_ms, time_ms
from moldau.broker.cli.invocation import Terminal
from moldau.broker.reasons.words import duration_text

NOW = 1_800_000_000_000
ROWS = [
    {"topic": "a", "size_bytes": 1536, "age_ms": 61_000, "lag": 81204, "replicas": [1, 2], "other": None},
    {"topic": "longer", "size_bytes": 0, "age_ms": None, "lag": 0, "replicas": [], "other": True},
]


def printed(*, is_json: bool) -> list[str]:
    stream = io.StringIO()
    Output(Terminal(stream, {}), is_json=is_json).rows(ROWS, ("topic", "size_bytes", "age_ms", "lag", "replicas"))
    return stream.getvalue().splitlines()


def test_a_table_is_aligned_and_has_units() -> None:
    assert printed(is_json=False) == [
        "TOPIC      SIZE        AGE     LAG  REPLICAS",
        "a       1.5 KiB  1 min 1 s  81,204  1,2",
        "longer      0 B          -       0  -",
    ]


def test_control_characters_of_names_are_escapes_in_text_and_exact_in_json() -> None:
    name = "\033]0;x\a a\nb\x9b\udc80 ü"
    stream = io.StringIO()
    for is_json in (False, True):
        output = Output(Terminal(stream, {}), is_json=is_json)
        output.rows([{"client": name, "groups": [name]}], ("client", "groups"))
        output.say(f"client {name}")
    _, row, said, as_json = stream.getvalue().splitlines()
    escaped = r"\x1b]0;x\x07 a\nb\x9b\udc80 ü"
    assert (row, said) == (f"{escaped}  {escaped}", f"client {escaped}")
    assert json.loads(as_json) == {"client": name, "groups": [name]}


def test_json_has_exact_numbers_and_every_field() -> None:
    assert printed(is_json=True)[0] == (
        '{"topic": "a", "size_bytes": 1536, "age_ms": 61000, "lag": 81204, "replicas": [1, 2], "other": null}'
    )


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (1023, "1023 B"), (1 << 20, "1.0 MiB"), (3 << 50, "3072.0 TiB")]
)
def test_sizes(size: int, text: str) -> None:
    assert size_text(size) == text


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(0, "0 s"), (999, "999 ms"), (61_000, "1 min 1 s"), (3_600_000, "1 h"), (90_061_000, "1 d 1 h")],
)
def test_durations(milliseconds: int, text: str) -> None:
    assert duration_text(milliseconds) == text


@pytest.mark.parametrize("text", ["9" * 400 + "d", "PT" + "9" * 400 + "H", "9" * 5000, "9" * 19, "1h" * 3 + "x"])
def test_numbers_without_end_are_refused(text: str) -> None:
    with pytest.raises(WrongArguments, match="--from "):
        time_ms(text, "--from", NOW)


def test_times() -> None:
    assert time_text(0) == "1970-01-01T00:00:00.000Z"
    assert time_text(1 << 62) == str(1 << 62)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("90s", 90_000), ("1h30m", 5_400_000), ("2d", 172_800_000), ("PT1H", 3_600_000), ("P1DT0.5S", 86_400_500)],
)
def test_a_duration_is_written_in_two_ways(text: str, milliseconds: int) -> None:
    assert duration_ms(text, "--by") == milliseconds
    assert time_ms(text, "--since", NOW) == NOW - milliseconds
    assert time_ms(f"{text} ago", "--since", NOW) == NOW - milliseconds


def test_a_time_is_utc_where_it_has_no_zone() -> None:
    assert time_ms("2026-11-29T06:00", "--since", NOW) == 1_795_932_000_000
    assert time_ms("2026-11-29T07:00+01:00", "--since", NOW) == 1_795_932_000_000
    assert time_ms("1795932000000", "--since", NOW) == 1_795_932_000_000
    assert time_ms("now", "--since", NOW) == NOW


@pytest.mark.parametrize("text", ["0001-01-01T00:00+14:00", "1969-12-31T23:59:59.999", "30000d"])
def test_a_time_that_kafkas_protocol_has_another_meaning_for_is_refused(text: str) -> None:
    with pytest.raises(WrongArguments, match=f"--from {re.escape(text)} is before 1970"):
        time_ms(text, "--from", NOW)


@pytest.mark.parametrize("text", ["", "soon", "5", "1h30", "h", "P", "PT", "2026-13-01"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(WrongArguments, match=r"is not a time|a number is"):
        time_ms(text, "--since", NOW)
