"""The merged output of several nodes: each line is prefixed with its node, in the node's colour on a terminal."""

from __future__ import annotations

import asyncio
import re
from typing import Final

from moldau.broker.cli.terminal import Terminal
from moldau.broker.runtime.log_output import LEVEL_WORDS, STYLES

NODE_STYLES: Final = ("cyan", "green", "magenta", "blue")
"""The colours of nodes. Yellow and red are left out, because they mark warnings and errors."""
LINE_SIZE_MAX: Final = 1 << 16
"""The most bytes of a line; a longer line is shown in parts."""
_STYLE_OF_WORD: Final = {word: STYLES[level] for level, word in LEVEL_WORDS.items() if level in STYLES}
_LINE: Final = re.compile(r"\d{4}-\d\d-\d\dT(?P<time>[0-9:.]+)Z (?P<word>[A-Z]+) +(?P<rest>.*)", re.DOTALL)
"""The format of a log line of `log_output.Lines`."""


class MergedOutput:
    """Writes the lines of nodes, each of them whole, in the order in which they are read."""

    def __init__(self, terminal: Terminal, node_count: int) -> None:
        self._terminal = terminal
        self._width = max(len("cluster"), len(f"node-{node_count}"))

    def own(self, text: str, *styles: str) -> None:
        """Write a line of the cluster itself."""
        self._terminal.say(f"{'cluster':{self._width}} | {text}", *styles)

    def line(self, node_id: int, text: str) -> None:
        style = NODE_STYLES[(node_id - 1) % len(NODE_STYLES)]
        prefix = self._terminal.painted(f"{f'node-{node_id}':{self._width}} |", style)
        self._terminal.say(f"{prefix} {self._shown(text)}")

    async def follow(self, node_id: int, stream: asyncio.StreamReader) -> None:
        """Copy the output of a node until the node closes it."""
        rest = b""
        while chunk := await stream.read(LINE_SIZE_MAX):
            *lines, rest = (rest + chunk).split(b"\n")
            for each in lines:
                self.line(node_id, each.decode("utf-8", "replace"))
            if len(rest) >= LINE_SIZE_MAX:
                self.line(node_id, rest.decode("utf-8", "replace"))
                rest = b""
        if rest:
            self.line(node_id, rest.decode("utf-8", "replace"))

    def _shown(self, text: str) -> str:
        """A node's line as it is printed: on a terminal with its level in colour and without the date, elsewhere
        unchanged."""
        found = _LINE.fullmatch(text) if self._terminal.is_coloured else None
        if found is None:
            return text
        word = found["word"]
        painted = self._terminal.painted(f"{word:5}", *([_STYLE_OF_WORD[word]] if word in _STYLE_OF_WORD else []))
        return f"{self._terminal.painted(found['time'], 'dim')} {painted} {found['rest']}"
