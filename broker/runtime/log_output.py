"""Writes this node's own log to standard error: as text lines, coloured on a terminal, or as one JSON object a line."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Final, Protocol, TextIO

from moldau.broker.runtime.progress import PROGRESS_LOGGER

LEVEL_WORDS: Final = {5: "TRACE", 10: "DEBUG", 20: "INFO", 30: "WARN", 40: "ERROR", 50: "FATAL"}
"""Log4j's names of the log levels. Requests that set or describe levels use the same names."""
MESSAGE_LENGTH_MAX: Final = 4096
STYLES: Final[Mapping[int, str]] = {5: "dim", 10: "dim", 30: "yellow", 40: "red", 50: "red"}


class LogTerminal(Protocol):
    """The stream to which the log is written, with colours if it is a terminal."""

    @property
    def stream(self) -> TextIO: ...

    def styled(self, text: str, *styles: str) -> str:
        """The text with these styles if the stream is a terminal that shows them, otherwise the text unchanged."""


def write_log(terminal: LogTerminal, form: str, *, is_quiet: bool = False) -> Callable[[], None]:
    """Send the lines of every logger of this process to the terminal; `form` is `text` or `json`.

    With `is_quiet` only warnings, errors and progress are shown, until the returned function is called.
    """
    handler = logging.StreamHandler(terminal.stream)
    handler.setFormatter(JsonFormatter() if form == "json" else LineFormatter(terminal))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    if is_quiet:
        handler.addFilter(is_shown_when_quiet)
    return lambda: handler.removeFilter(is_shown_when_quiet)


def is_shown_when_quiet(record: logging.LogRecord) -> bool:
    """Whether a record is shown while the log is quiet: a warning, an error, or progress."""
    return record.levelno > logging.INFO or record.name == PROGRESS_LOGGER


def truncated_message(record: logging.LogRecord) -> str:
    """The message of a record, truncated to `MESSAGE_LENGTH_MAX` characters, because it may contain a long text of a
    client.
    """
    text = record.getMessage()
    left_out = len(text) - MESSAGE_LENGTH_MAX
    return text if left_out <= 0 else f"{text[:MESSAGE_LENGTH_MAX]}... and {left_out} characters more"


def utc_time_text(record: logging.LogRecord) -> str:
    """The time of a record in UTC, to the millisecond, as ISO 8601."""
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{seconds}.{int(record.msecs):03d}Z"


class LineFormatter(logging.Formatter):
    """Formats a record as the line `moment level logger: message`. Line breaks in the message, which may hold a
    client's text, are escaped, so that they cannot begin a new line.
    """

    def __init__(self, terminal: LogTerminal) -> None:
        super().__init__()
        self._terminal = terminal

    def format(self, record: logging.LogRecord) -> str:
        word = f"{LEVEL_WORDS.get(record.levelno, record.levelname):5}"
        style = STYLES.get(record.levelno)
        shown = self._terminal.styled(word, style) if style else word
        line = f"{utc_time_text(record)} {shown} {record.name}: {escape_control_characters(truncated_message(record))}"
        return "\n".join([line, *self._traces(record)])

    def _traces(self, record: logging.LogRecord) -> list[str]:
        traces = [self.formatException(record.exc_info)] if record.exc_info else []
        return [*traces, self.formatStack(record.stack_info)] if record.stack_info else traces


class JsonFormatter(logging.Formatter):
    """Formats a record as a JSON object with time, level, logger and message, and with exception and stack if it has
    them.
    """

    def format(self, record: logging.LogRecord) -> str:
        import json

        said = {
            "time": utc_time_text(record),
            "level": LEVEL_WORDS.get(record.levelno, record.levelname),
            "logger": record.name,
            "message": truncated_message(record),
        }
        if record.exc_info:
            said["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            said["stack"] = self.formatStack(record.stack_info)
        return json.dumps(said, ensure_ascii=False)


def escape_control_characters(text: str) -> str:
    """The text with control characters escaped, so that it cannot move the cursor, end the line or change the
    terminal's state.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
