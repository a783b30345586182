"""The merged output: lines with their node, in colour on a terminal, as JSON if the logs are."""

from __future__ import annotations

import asyncio
import io
import json

from moldau.broker.cli.invocation import Terminal
from moldau.broker.cli.processes.merged_output import MergedLog, MergedOutput
from moldau.broker.cli.processes.shell import copy_log


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_lines_carry_their_node_and_are_coloured_on_a_terminal_only() -> None:
    line = "2026-01-02T03:04:05.678Z WARN  moldau.logs: a text"
    plain = io.StringIO()
    MergedOutput(Terminal(plain, {}), [1, 2, 3], "cluster").write_line(2, line)
    assert plain.getvalue() == f"node-2  | {line}\n"
    shown = Tty()
    MergedOutput(Terminal(shown, {}), [1, 2, 3], "cluster").write_line(2, line)
    assert shown.getvalue() == (
        "\033[32mnode-2  |\033[0m \033[2m03:04:05.678\033[0m \033[33mWARN \033[0m moldau.logs: a text\n"
    )


def test_a_line_that_never_ends_is_shown_in_parts() -> None:
    async def shown_text() -> str:
        stream = asyncio.StreamReader()
        stream.feed_data(b"one\ntw")
        stream.feed_data(b"o\n" + b"x" * 200_000)
        stream.feed_eof()
        shown = io.StringIO()
        await copy_log(1, stream, MergedOutput(Terminal(shown, {}), [1, 2, 3], "cluster"))
        return shown.getvalue()

    first, second, *parts = asyncio.run(shown_text()).splitlines()
    assert (first, second) == ("node-1  | one", "node-1  | two")
    assert len(parts) > 1 and sum(part.count("x") for part in parts) == 200_000


def test_the_command_writes_lines_of_the_log_among_those_of_its_nodes() -> None:
    shown = io.StringIO()
    log = MergedLog(Terminal(shown, {}), [1, 2], "cores", "text")
    log.write_line(2, "2026-01-02T03:04:05.678Z WARN  moldau.logs: a text")
    log.write_own("node 2 serves again")
    log.write_own("node 2 was ended", is_problem=True)
    first, second, third = shown.getvalue().splitlines()
    assert first == "node-2 | 2026-01-02T03:04:05.678Z WARN  moldau.logs: a text"
    assert second.startswith("cores  | 2") and second.endswith("Z INFO  moldau.cores: node 2 serves again")
    assert third.endswith("Z WARN  moldau.cores: node 2 was ended")


def test_lines_in_json_stay_json_and_name_their_node() -> None:
    shown = io.StringIO()
    log = MergedLog(Terminal(shown, {}), [1, 2], "cores", "json")
    log.write_line(2, '{"time": "x", "message": "a text"}')
    log.write_line(1, "Fatal Python error")
    log.write_own("node 2 serves again")
    first, second, third = map(json.loads, shown.getvalue().splitlines())
    assert first == {"node": 2, "time": "x", "message": "a text"}
    assert second == {"node": 1, "message": "Fatal Python error"}
    assert (third["level"], third["logger"], third["message"]) == ("INFO", "moldau.cores", "node 2 serves again")
