"""One of the broker processes of a machine: `python -m moldau.broker.cli.processes.core`, which `moldau serve --cores`
starts.

The first line on its standard input is JSON: the `ProcessInput`. So no password is on a command line. After that line
standard input must stay open. Standard output gets the greeting as JSON, standard error the log.
"""

from __future__ import annotations

import json
import os  # noqa: TID251 the process's variables enter here
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from moldau.broker.cli.invocation import Invocation, Terminal
from moldau.broker.config.loading import checked_config
from moldau.broker.runtime.place import MachineProcesses


@dataclass(frozen=True, slots=True)
class ProcessInput:
    """The data that the supervisor sends to a broker process on standard input."""

    settings: Mapping[str, str]
    place: MachineProcesses
    is_quiet: bool
    """Whether the log has only warnings, errors and progress until clients are served."""

    def as_line(self) -> bytes:
        """Encode the input as a line of JSON."""
        return json.dumps(asdict(self)).encode() + b"\n"


def read_process_input(line: bytes) -> ProcessInput:
    """Decode the input from a line of JSON."""
    said = json.loads(line)
    place = said["place"]
    return ProcessInput(
        said["settings"],
        MachineProcesses(tuple(place["node_ids"]), place["sockets"], tuple(place["heirs"])),
        said["is_quiet"],
    )


def main() -> int:
    """Read the input from standard input, and serve with its settings until SIGTERM or the end of standard input.
    Returns the exit status.
    """
    orders = read_process_input(sys.stdin.buffer.readline())
    config = checked_config(orders.settings)
    if not orders.place.is_first(config.node_id):
        config = replace(config, warnings=())  # The first process has given them.
    from moldau.broker.runtime.event_loop import import_event_loop

    import_event_loop()
    from moldau.broker.cli.serve import greeter
    from moldau.broker.node.main import StartOptions, serve

    invocation = Invocation(Terminal(sys.stdout, os.environ), Terminal(sys.stderr, os.environ), os.environ)
    start = StartOptions(
        until_eof=True, greet=greeter("json", invocation), is_quiet=orders.is_quiet, place=orders.place
    )
    return serve(config, invocation.errors, start)


if __name__ == "__main__":
    sys.exit(main())
