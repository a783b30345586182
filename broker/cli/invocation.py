"""The environment of every subcommand: output streams, which show coloured text on a terminal, and environment
variables. A test passes its own.
"""

from __future__ import annotations

import errno
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, NamedTuple, TextIO

if TYPE_CHECKING:
    from moldau.broker.config import Config

IMAGE_EXTRAS_VARIABLE: Final = "MOLDAU_IMAGE_EXTRAS"
"""The environment variable in which the container image names the extras that it was built with."""
_UNWRITTEN: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""The errors of a write if the disk of the output is full or broken."""
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
    """An output stream that colours text if it is a terminal."""

    def __init__(self, stream: TextIO, variables: Mapping[str, str]) -> None:
        self._stream = stream
        self.is_terminal = stream.isatty()
        self._can_replace = self.is_terminal and variables.get("TERM") != "dumb"
        self._is_shown = False
        self.is_coloured = self.is_terminal and not variables.get("NO_COLOR") and variables.get("TERM") != "dumb"

    def styled(self, text: str, *styles: str) -> str:
        """Return the text with the escape codes of these styles, or unchanged if the stream cannot show them."""
        if not self.is_coloured or not styles:
            return text
        return f"\033[{';'.join(_CODES[style] for style in styles)}m{text}\033[0m"

    @property
    def stream(self) -> TextIO:
        return self._stream

    def say(self, text: str, *styles: str) -> None:
        """Write one line."""
        self.erase()
        print(self.styled(text, *styles), file=self._stream, flush=True)

    def show(self, text: str) -> None:
        """Write a line that the next line replaces. If the stream is not a terminal, the line is not replaced.

        The cursor stays at the beginning of the line, so that the output of another program is not appended to it.
        """
        if not self._can_replace:
            self.say(text)
            return
        print(f"{text}\033[K\r", end="", file=self._stream, flush=True)
        self._is_shown = True

    def erase(self) -> None:
        """Remove the line that `show` wrote last, unless it is already replaced."""
        if self._is_shown:
            print("\033[K", end="", file=self._stream, flush=True)
            self._is_shown = False


class CommandError(Exception):
    """A failure of a command, with the lines to print. The first line is the summary."""

    status = 1
    """The exit status of the process."""

    def __init__(self, message: str, *details: str) -> None:
        super().__init__(message)
        self.details = details


def reason_of(problem: Exception) -> str:
    """The text of an error, for a message that has the file name already: of an OSError the reason alone, without the
    error number and the file name.
    """
    return getattr(problem, "strerror", None) or str(problem)


def text_of(problem: Exception) -> str:
    """The text of an error, for a message without a file name: the file, if the error has one, and the reason."""
    filename = getattr(problem, "filename", None)
    return reason_of(problem) if filename is None else f"{filename}: {reason_of(problem)}"


def is_of_output(problem: OSError) -> bool:
    """Whether an OSError is from writing to an output stream. Such an error has no file name; an error from opening a
    file has one.
    """
    return problem.filename is None and problem.errno in _UNWRITTEN


class Invocation(NamedTuple):
    """The output streams and the environment variables of one run of the command."""

    out: Terminal
    errors: Terminal
    variables: Mapping[str, str]

    def require(self, packages: Iterable[str], extra: str) -> None:
        """Check that the packages of an extra are installed. Raises `CommandError`, which names the missing packages
        and the command that installs the extra.
        """
        missing = [package for package in packages if find_spec(package) is None]
        if not missing:
            return
        names = " and ".join([", ".join(missing[:-1]), missing[-1]] if missing[1:] else missing)
        built_with = self.variables.get(IMAGE_EXTRAS_VARIABLE)
        if built_with is not None:
            remedy = f"build the image with it: docker build --build-arg EXTRAS={built_with},{extra} -t moldau ."
        elif is_checkout():
            remedy = f".venv/bin/pip install -e '.[{extra}]'"
        else:
            remedy = f"pip install 'moldau[{extra}]'"
        raise CommandError(f"{names} {'are' if missing[1:] else 'is'} not installed: {remedy}")


def is_checkout() -> bool:
    """Whether the package is imported from a checkout, and not from an installed wheel."""
    from pathlib import Path  # here, because a node does not need it

    import moldau

    return (Path(moldau.__file__).parent.parent / "pyproject.toml").exists()


@contextmanager
def warnings_as_lines(errors: Terminal) -> Iterator[None]:
    """A context in which each UserWarning, such as those of the package `tables`, is printed as a line of the command,
    without the file and the line of code.
    """
    with warnings.catch_warnings():
        shown = warnings.showwarning

        def show(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            if category is UserWarning:
                errors.say(str(message), "yellow")
            else:
                shown(message, category, filename, lineno, file, line)

        warnings.showwarning = show
        yield


def load_config(
    file: str | None,
    data: str | None,
    overrides: list[str],
    variables: Mapping[str, str],
    without_file: Mapping[str, str] | None = None,
) -> Config:
    """Load the configuration of a node: from the file, then the environment variables, then the command line. If there
    is no file, the defaults of a single node are used, with the settings in `without_file`.
    """
    from moldau.broker.config import ConfigError
    from moldau.broker.config.loading import checked_config
    from moldau.broker.config.sources import (
        MalformedOverride,
        from_environment,
        read_overrides,
        single_node_defaults,
        unknown_variables,
    )

    settings = {**single_node_defaults("./data"), **(without_file or {})} if file is None else read_file(file)
    settings |= from_environment(variables)
    if data is not None:
        settings["log.dirs"] = data
    try:
        settings |= read_overrides(overrides)
        return checked_config(settings, unknown_variables(variables))
    except MalformedOverride as problem:
        raise CommandError(str(problem)) from None
    except ConfigError as refusal:
        what = "the built-in configuration" if file is None else file
        raise CommandError(f"{what} cannot be used", *refusal.problems) from None


def read_file(file: str) -> dict[str, str]:
    """Read the settings in a properties file. Raises `CommandError`."""
    from moldau.storage.checkpoints.java_properties import MalformedProperties, read_properties

    try:
        with open(file, encoding="utf-8-sig") as text:  # Editors of Windows begin a file with a byte order mark.
            return read_properties(text.read())
    except (OSError, UnicodeDecodeError, MalformedProperties) as problem:
        raise CommandError(f"{file} cannot be read: {reason_of(problem)}") from None
