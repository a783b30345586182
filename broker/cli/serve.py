"""`moldau serve`: run a node."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from moldau.broker.cli.invocation import Invocation, load_config

if TYPE_CHECKING:
    from moldau.broker.node.start_messages import StartReport

DESCRIPTION: Final = """\
Run a node until SIGTERM or Ctrl-C.

Without a file: a ready node of one, broker and controller, on 127.0.0.1:9092 (controller on 9093). It formats its own
directory where that is empty. With a file: the node that the file describes; its directories must have been prepared
with 'moldau format'.

On a terminal the node greets in a few lines when it serves, and until then its log says only warnings and progress."""
EPILOG: Final = """\
examples:
  moldau serve
  moldau serve --data /tmp/try --override num.partitions=3
  moldau serve server.properties --override log.retention.hours=24
  moldau serve --greeting json 2>moldau.log
  KAFKA_LISTENERS=PLAINTEXT://:19092,CONTROLLER://:19093 moldau serve

A later source wins: file, variables (KAFKA_LOG_DIRS is log.dirs), --data, --override. docs/configuration.md lists every
name and what this broker does with it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the subcommand's arguments."""
    parser.add_argument("file", nargs="?", metavar="server.properties", help="settings, in Apache Kafka's own names")
    parser.add_argument("--data", metavar="DIR", help="the directory for the data; log.dirs (without a file: ./data)")
    parser.add_argument(
        "--override",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting that takes precedence; may be repeated",
    )
    parser.add_argument("--until-eof", action="store_true", help="stop also when the standard input ends")
    parser.add_argument(
        "--greeting",
        choices=("text", "json", "none"),
        help="what to say when the node serves: text (the default where the log goes to a terminal), one JSON object on"
        " the standard output (its fields: docs/start.md), or none",
    )
    parser.add_argument("--log-format", choices=("text", "json"), help="the form of the log; moldau.log.format")


def run(arguments: argparse.Namespace, invocation: Invocation) -> int:
    """Serve until a signal stops the node."""
    overrides = list(arguments.override)
    if arguments.log_format is not None:
        overrides.append(f"moldau.log.format={arguments.log_format}")
    config = load_config(arguments.file, arguments.data, overrides, invocation.variables)
    from moldau.broker.node.main import Start, serve

    is_seen = invocation.errors.is_terminal and config.text("moldau.log.format") == "text"
    greeting = arguments.greeting or ("text" if is_seen else "none")
    start = Start(
        formats=arguments.file is None,
        until_eof=arguments.until_eof,
        greet=greeter(greeting, invocation),
        is_quiet=is_seen and greeting == "text",
    )
    return serve(config, invocation.errors, start)


def greeter(greeting: str, invocation: Invocation) -> Callable[[StartReport], None] | None:
    """The function that is called with the report of a start."""
    if greeting == "none":
        return None
    from moldau.broker.cli.greeting import as_json, greet

    if greeting == "json":
        return lambda report: invocation.out.say(as_json(report))
    return lambda report: greet(invocation.errors if invocation.errors.is_terminal else invocation.out, report)
