"""`moldau serve`: run a node."""

from __future__ import annotations

import argparse
from typing import Final

from broker.cli.invocation import Invocation, load_config

DESCRIPTION: Final = """\
Run a node until SIGTERM or Ctrl-C.

Without a file: a ready node of one, broker and controller, on 127.0.0.1:9092 (controller on 9093). It formats its own
directory where that is empty. With a file: the node that the file describes; its directories must have been prepared
with 'moldau format'."""
EPILOG: Final = """\
examples:
  moldau serve
  moldau serve --data /tmp/try --override num.partitions=3
  moldau serve server.properties --override log.retention.hours=24
  KAFKA_LISTENERS=PLAINTEXT://:19092,CONTROLLER://:19093 moldau serve

A later source wins: file, variables (KAFKA_LOG_DIRS is log.dirs), --data, --override. docs/configuration.md lists every
name and what this broker does with it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the subcommand takes."""
    parser.add_argument("file", nargs="?", metavar="server.properties", help="settings, in Apache Kafka's own names")
    parser.add_argument("--data", metavar="DIR", help="where the data lies; log.dirs (without a file: ./data)")
    parser.add_argument(
        "--override", action="append", default=[], metavar="NAME=VALUE", help="a setting that wins; may be repeated"
    )
    parser.add_argument("--until-eof", action="store_true", help="stop also when the standard input ends")
    parser.add_argument("--log-format", choices=("text", "json"), help="how to write the log; moldau.log.format")


def run(arguments: argparse.Namespace, invocation: Invocation) -> int:
    """Serve until told to stop."""
    overrides = list(arguments.override)
    if arguments.log_format is not None:
        overrides.append(f"moldau.log.format={arguments.log_format}")
    config = load_config(arguments.file, arguments.data, overrides, invocation.variables)
    from broker.node.main import serve

    return serve(config, invocation.errors, format_if_missing=arguments.file is None, until_eof=arguments.until_eof)
