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
        self._can_replace = self.is_terminal and variables.get("TERM") != "dumb"
        self._is_shown = False
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
        self.erase()
        print(self.painted(text, *styles), file=self._stream, flush=True)

    def show(self, text: str) -> None:
        """Write a line that the next one replaces; where the stream is not a terminal, one that stays.

        The cursor stays at the beginning of the line, so that what another program writes is not appended to it.
        """
        if not self._can_replace:
            self.say(text)
            return
        print(f"{text}\033[K\r", end="", file=self._stream, flush=True)
        self._is_shown = True

    def erase(self) -> None:
        """Remove the line that `show` wrote last, if it is still there."""
        if self._is_shown:
            print("\033[K", end="", file=self._stream, flush=True)
            self._is_shown = False
