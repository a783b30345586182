"""What a line of the log looks like, and what cannot get into one."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterator

import pytest

from moldau.broker.cli.invocation import Terminal
from moldau.broker.config.log_levels import LEVELS
from moldau.broker.runtime.log_output import LEVEL_WORDS, MESSAGE_LENGTH_MAX, write_log

log = logging.getLogger("moldau.test")


class Screen(io.StringIO):
    """A stream that somebody looks at."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def root_is_put_back() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def said(stream: io.StringIO, form: str, *variables: tuple[str, str]) -> io.StringIO:
    write_log(Terminal(stream, dict(variables)), form)
    return stream


def test_text_is_a_line_with_the_moment_in_front() -> None:
    stream = said(io.StringIO(), "text")
    log.warning("the disk of %s is slow", "node 1")
    moment, _, rest = stream.getvalue().partition(" ")
    assert rest == "WARN  moldau.test: the disk of node 1 is slow\n"
    assert len(moment) == len("2026-01-01T00:00:00.000Z") and moment.endswith("Z")


def test_colour_is_for_terminals_alone_and_can_be_refused() -> None:
    for stream, variables, is_coloured in (
        (Screen(), [], True),
        (Screen(), [("NO_COLOR", "1")], False),
        (io.StringIO(), [], False),
    ):
        said(stream, "text", *variables)
        log.error("no")
        assert ("\033[31m" in stream.getvalue()) is is_coloured


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_long_text_of_a_client_is_cut(form: str) -> None:
    stream = said(io.StringIO(), form)
    log.warning("group %r is empty", "g" * 30_000)
    line = stream.getvalue()
    assert "... and 259" in line and len(line) < MESSAGE_LENGTH_MAX + 200


def test_json_is_one_object_a_line() -> None:
    stream = said(io.StringIO(), "json")
    log.info('a "quoted"\nname %s', "ž")
    try:
        raise ValueError("why")
    except ValueError:
        log.exception("failed")
    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert list(first) == ["time", "level", "logger", "message"]
    assert (first["level"], first["logger"], first["message"]) == ("INFO", "moldau.test", 'a "quoted"\nname ž')
    assert second["exception"].endswith("ValueError: why")


def test_a_clients_text_can_neither_forge_a_line_nor_move_the_cursor() -> None:
    stream = said(io.StringIO(), "text")
    log.info("client %s", "x\n2026-01-01T00:00:00.000Z FATAL moldau: gone\033[2J\r")
    (line,) = stream.getvalue().splitlines()
    assert "\033" not in line and "\r" not in line and line.endswith(r"moldau: gone\x1b[2J\r")


def test_what_comes_after_replaces_what_was_before() -> None:
    first = said(io.StringIO(), "text")
    second = said(io.StringIO(), "text")
    log.info("once")
    assert (first.getvalue(), second.getvalue().count("once")) == ("", 1)


def test_levels_are_written_in_the_words_in_which_they_are_set() -> None:
    assert {level: word for word, level in LEVELS.items()} == LEVEL_WORDS


def test_a_halt_shows_where() -> None:
    stream = said(io.StringIO(), "json")
    log.critical("halted", stack_info=True)
    assert sys._getframe().f_code.co_name in json.loads(stream.getvalue())["stack"]
