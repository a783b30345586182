"""The command line: which subcommand was asked for, and how its failures are shown."""

from __future__ import annotations

import argparse
import os  # noqa: TID251 the process's variables and its broken pipes enter here and nowhere else
import sys
from collections.abc import Callable, Sequence
from typing import Final

from broker.cli import cluster, container, dump_log, format_storage, health, random_uuid, serve, spark, version
from broker.cli.invocation import CommandError, Invocation
from broker.cli.terminal import Terminal

EXIT_FAILED: Final = 1
EXIT_INTERRUPTED: Final = 130

_DESCRIPTION: Final = """\
A broker that Apache Kafka's clients and tools take for Apache Kafka 4.3.1."""

_EPILOG: Final = """\
examples:
  moldau serve                                      a ready node on 127.0.0.1:9092, its data in ./data
  moldau serve --data /var/lib/moldau               the same, its data elsewhere
  moldau cluster --nodes 3                          three nodes on ports 9092 to 9094, under one terminal
  moldau format -c server.properties --standalone   prepare the directories that a file names
  moldau serve server.properties                    run the node that a file describes
  moldau dump-log --deep data/orders-0/*.log        what is in these files, as JSON lines

Settings are Apache Kafka's own: server.properties, then variables such as KAFKA_LISTENERS, then --override.
'moldau COMMAND --help' tells more of each command."""

Run = Callable[[argparse.Namespace, Invocation], int]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status of the process."""
    invocation = Invocation(Terminal(sys.stdout, os.environ), Terminal(sys.stderr, os.environ), os.environ)
    parsed = parser(invocation.out).parse_args(arguments)
    run: Run = parsed.run
    try:
        return run(parsed, invocation)
    except CommandError as refusal:
        invocation.errors.say(f"moldau: {refusal}", "red")
        for detail in refusal.details:
            invocation.errors.say(f"  - {detail}")
        return EXIT_FAILED
    except BrokenPipeError:
        # The reader has gone, as in `moldau dump-log … | head`: what is left in the buffer has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


class HelpfulParser(argparse.ArgumentParser):
    """A parser whose help has its headings in bold, where it is read on a terminal."""

    terminal: Terminal | None = None

    def format_help(self) -> str:
        """The help text."""
        lines = super().format_help().split("\n")
        terminal = self.terminal
        if terminal is None:
            return "\n".join(lines)
        return "\n".join(terminal.painted(line, "bold") if _is_heading(line) else line for line in lines)


def parser(terminal: Terminal | None = None) -> argparse.ArgumentParser:
    """The command's arguments."""
    command = HelpfulParser(
        prog="moldau",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.terminal = terminal
    subcommands = command.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, summary, module in (
        ("serve", "run a node", serve),
        ("cluster", "run several nodes on this machine", cluster),
        ("format", "prepare the directories of a new node", format_storage),
        ("health", "ask a node whether it is ready", health),
        ("container", "run a node as the image does, from variables", container),
        ("random-uuid", "make an id for a cluster or a directory", random_uuid),
        ("dump-log", "show log files, indexes and checkpoints as JSON lines", dump_log),
        ("spark", "run a job over the segments of a topic", spark),
        ("version", "say which version this is", version),
    ):
        subcommand = subcommands.add_parser(
            name,
            help=summary,
            description=module.DESCRIPTION,
            epilog=module.EPILOG,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        subcommand.terminal = terminal
        module.add_arguments(subcommand)
        subcommand.set_defaults(run=module.run)
    return command


def _is_heading(line: str) -> bool:
    return line.endswith(":") and line[:1].isalpha()
