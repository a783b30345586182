"""The output of commands: aligned tables with units for people, JSON lines with exact numbers for programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from moldau.broker.cli.invocation import Terminal
from moldau.broker.reasons.words import duration_text

Row = Mapping[str, object]
NOTHING: Final = "-"
_SIZES: Final = ("B", "KiB", "MiB", "GiB", "TiB")


class Output:
    """The output of one command, as text or as JSON lines."""

    def __init__(self, terminal: Terminal, *, is_json: bool) -> None:
        self.terminal = terminal
        self.is_json = is_json
        self.problem: OSError | None = None
        """The error after which nothing more is written, such as that of a pipe whose reader has closed it; None if
        there was none.
        """

    def write(self, terminal: Terminal, text: str, *styles: str) -> None:
        """Write a line. If that fails, nothing more is written, but the action continues, because it must not stop in
        the middle of its changes.
        """
        if self.problem is None:
            try:
                terminal.say(text, *styles)
            except OSError as problem:
                self.problem = problem

    def rows(self, rows: Sequence[Row], columns: Sequence[str], *, empty: str = "") -> None:
        """Print rows as a table of these columns, or as one JSON object for each row with all its fields. The suffix of
        a column's name is the unit of its values: the table shows `size_bytes` under SIZE with a unit, and `age_ms`
        under AGE as a duration. If there are no rows, the text `empty` replaces the table.
        """
        if self.is_json:
            for row in rows:
                self.object(row)
            return
        cells = [[shown(name, row.get(name)) for name in columns] for row in rows]
        if not cells:
            if empty:
                self.say(empty)
            return
        numeric = [all(isinstance(row.get(name), int | float | None) for row in rows) for name in columns]
        heads = [_head(name) for name in columns]
        widths = [max(len(heads[i]), *(len(line[i]) for line in cells)) for i in range(len(columns))]
        self.write(self.terminal, _line(heads, widths, numeric), "bold")
        for line in cells:
            self.write(self.terminal, _line(line, widths, numeric))

    def pairs(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Print names and values, one pair a line, unless the output is JSON."""
        known = list(pairs)
        width = max((len(name) for name, _ in known), default=0)
        for name, value in known:
            self.say(f"{name + ':':<{width + 1}}  {value}")

    def say(self, text: str, *styles: str) -> None:
        """Print a line of text, unless the output is JSON."""
        if not self.is_json:
            self.write(self.terminal, printable(text), *styles)

    def object(self, row: Row) -> None:
        """Print one object as a line of JSON, if the output is JSON."""
        if self.is_json:
            import json

            is_utf8 = (self.terminal.stream.encoding or "utf-8").lower() == "utf-8"
            self.write(self.terminal, json.dumps(row, ensure_ascii=not is_utf8))


def shown(name: str, value: object) -> str:
    """Format the value of a column as text. The end of the column's name says the unit of the value."""
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and name.endswith("_bytes"):
        return size_text(value)
    if isinstance(value, int) and name.endswith("_ms"):
        return duration_text(value)
    if isinstance(value, int) and name in ("records", "lag"):
        return f"{value:,}"
    text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return printable(text) or NOTHING


def printable(text: str) -> str:
    """Return the text with an escape for each unprintable character. Client ids and group names are chosen by clients,
    and must neither break a table nor control the terminal.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def size_text(size: int) -> str:
    """Format a number of bytes with a unit: 1.5 MiB."""
    if size < 1024:
        return f"{size} B"
    power = min((size.bit_length() - 1) // 10, len(_SIZES) - 1)
    return f"{size / (1 << 10 * power):.1f} {_SIZES[power]}"


def time_text(milliseconds: int) -> str:
    """Format a wall-clock time (ms since 1970) as ISO 8601 in UTC."""
    from datetime import UTC, datetime, timedelta

    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return str(milliseconds)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _head(name: str) -> str:
    return name.removesuffix("_bytes").removesuffix("_ms").replace("_", " ").upper()


def _line(cells: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> str:
    columns = zip(cells, widths, numeric, strict=True)
    return "  ".join(cell.rjust(width) if right else cell.ljust(width) for cell, width, right in columns).rstrip()
