"""Merges the output of several nodes into one: whole lines, each with the name of its node."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Sequence
from io import StringIO
from typing import Final

from moldau.broker.cli.invocation import Terminal
from moldau.broker.runtime.log_output import LEVEL_WORDS, STYLES, JsonFormatter, LineFormatter

NODE_STYLES: Final = ("cyan", "green", "magenta", "blue")
"""The colours of nodes. Yellow and red are left out, because they mark warnings and errors."""
_STYLE_OF_WORD: Final = {word: STYLES[level] for level, word in LEVEL_WORDS.items() if level in STYLES}
_LINE: Final = re.compile(r"\d{4}-\d\d-\d\dT(?P<time>[0-9:.]+)Z (?P<word>[A-Z]+) +(?P<rest>.*)", re.DOTALL)
"""Matches a log line of `log_output.LineFormatter`."""


class MergedOutput:
    """Writes the lines of nodes, and those of the command that runs the nodes, in the order in which they arrive."""

    def __init__(self, terminal: Terminal, node_ids: Sequence[int], own: str) -> None:
        """`own` is the prefix of the command's own lines."""
        self._terminal = terminal
        self._own = own
        self._width = max(len(own), *(len(f"node-{node_id}") for node_id in node_ids))

    def write_own(self, text: str, *, is_problem: bool = False) -> None:
        """Write a line of the command."""
        self._terminal.say(f"{self._own:{self._width}} | {text}", "red" if is_problem else "bold")

    def write_plain(self, text: str) -> None:
        """Write a line of the command in plain style, such as a further line of a message."""
        self._terminal.say(f"{self._own:{self._width}} | {text}")

    def write_line(self, node_id: int, text: str) -> None:
        style = NODE_STYLES[(node_id - 1) % len(NODE_STYLES)]
        prefix = self._terminal.styled(f"{f'node-{node_id}':{self._width}} |", style)
        self._terminal.say(f"{prefix} {self._shown(text)}")

    def _shown(self, text: str) -> str:
        """A node's line as it is printed. On a terminal its level is coloured and its date is left out; otherwise it is
        unchanged."""
        found = _LINE.fullmatch(text) if self._terminal.is_coloured else None
        if found is None:
            return text
        word = found["word"]
        painted = self._terminal.styled(f"{word:5}", *([_STYLE_OF_WORD[word]] if word in _STYLE_OF_WORD else []))
        return f"{self._terminal.styled(found['time'], 'dim')} {painted} {found['rest']}"


class MergedLog(MergedOutput):
    """Merges the logs of nodes and of the command into one log: as text, or as JSON objects, which name the node in a
    field instead of a prefix.
    """

    def __init__(self, terminal: Terminal, node_ids: Sequence[int], own: str, form: str) -> None:
        """`form` is the value of moldau.log.format."""
        super().__init__(terminal, node_ids, own)
        self._is_json = form == "json"
        # The colours come later, with those of the nodes.
        self._lines: logging.Formatter = JsonFormatter() if self._is_json else LineFormatter(Terminal(StringIO(), {}))

    def write_own(self, text: str, *, is_problem: bool = False) -> None:
        """Write a line of the command."""
        level = logging.WARNING if is_problem else logging.INFO
        line = self._lines.format(logging.LogRecord("moldau.cores", level, "", 0, text, None, None))
        if self._is_json:
            self._terminal.say(line)
        else:
            self._terminal.say(f"{self._own:{self._width}} | {self._shown(line)}")

    def write_line(self, node_id: int, text: str) -> None:
        if self._is_json:
            self._terminal.say(with_node(text, node_id))
        else:
            super().write_line(node_id, text)


def with_node(line: str, node_id: int) -> str:
    """Add the node id to a line of a node's JSON log. Text that is not JSON, such as a traceback of an interpreter that
    fails, becomes the message of a new object.
    """
    if line.startswith("{"):
        return f'{{"node": {node_id}, {line[1:]}'
    return json.dumps({"node": node_id, "message": line}, ensure_ascii=False)
