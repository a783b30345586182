"""The terminal: coloured text where the stream is a terminal, plain text elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TextIO

_CODES: Final = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
}


class Terminal:
    """An output stream, which may be a terminal."""

    def __init__(self, stream: TextIO, variables: Mapping[str, str]) -> None:
        self._stream = stream
        self.is_terminal = stream.isatty()
        self.is_coloured = self.is_terminal and not variables.get("NO_COLOR") and variables.get("TERM") != "dumb"

    def painted(self, text: str, *styles: str) -> str:
        """The text in these styles, if the stream can show them."""
        if not self.is_coloured or not styles:
            return text
        return f"\033[{';'.join(_CODES[style] for style in styles)}m{text}\033[0m"

    @property
    def stream(self) -> TextIO:
        return self._stream

    def say(self, text: str, *styles: str) -> None:
        """Write one line."""
        print(self.painted(text, *styles), file=self._stream, flush=True)
