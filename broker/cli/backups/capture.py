"""`moldau capture`: takes a window of a cluster's topics into one file, masked, for tests."""

from __future__ import annotations

import argparse
from typing import Final

from moldau.broker.cli.daily.options import EXIT_STATUSES, add_connection
from moldau.broker.cli.invocation import Invocation

DESCRIPTION: Final = """\
Capture what some topics had between two times into FILE, with what the rules name masked: records with their offsets,
times, keys, headers and transactions, the settings of the topics, the topic of a schema registry, and the positions of
groups. In a test, Cluster.from_capture("FILE") serves it. It has no users, permissions, quotas or passwords."""
EPILOG: Final = f"""\
examples:
  moldau capture tuesday.capture --path /var/lib/moldau --topic 'orders*' --from 2026-11-24 --to 2026-11-25
  moldau capture small.capture --path /data/1,/data/2 --topic orders --from 2h --sample 0.01 \\
      --mask 'orders:value.customer.name=shape' --mask 'orders:key=hash' --mask '*:headers.authorization=drop'

A mask is TOPICS:PART or TOPICS:PART.FIELD, with PART one of key, value, headers, and FIELD a field of JSON, and
=replace (the default), =hash, =shape or =drop. What a rule cannot parse, Avro and Protobuf too, is masked as a whole.
Equal values stay equal under hash and shape; with --mask-key in every capture that is made with the same key.

--path names log directories of Moldau or of Apache Kafka, of running or stopped nodes; without it the brokers are
asked, with the rights of 'moldau backup'. {EXIT_STATUSES}"""
SIZE_MAX: Final = 1 << 30


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("file", metavar="FILE", help="the capture, which must not exist")
    parser.add_argument("--path", metavar="DIR,...", help="read these log directories, and no broker")
    parser.add_argument(
        "--bootstrap-controller",
        metavar="HOST:PORT",
        help="controllers of the cluster, if the brokers do not say how they are reached",
    )
    chosen = parser.add_argument_group("what is captured")
    chosen.add_argument(
        "--topic", action="append", required=True, metavar="NAME", help="a topic, or several by wildcards; repeatable"
    )
    chosen.add_argument(
        "--from", dest="begin", metavar="TIME", help="from the first record at this time or duration ago"
    )
    chosen.add_argument("--to", dest="end", metavar="TIME", help="up to the first record at this time or duration ago")
    chosen.add_argument(
        "--sample", type=float, default=1.0, metavar="SHARE", help="this share of the keys, such as 0.01"
    )
    chosen.add_argument(
        "--max-bytes", type=int, default=SIZE_MAX, metavar="N", help="the largest file (default: 1 GiB)"
    )
    masking = parser.add_argument_group("what is masked")
    masking.add_argument(
        "--mask", action="append", default=[], metavar="RULE", help="a rule; repeatable, the first wins"
    )
    masking.add_argument(
        "--mask-key", metavar="FILE", help="bytes that decide what hash and shape make (default: random)"
    )
    add_connection(parser)


def run(arguments: argparse.Namespace, invocation: Invocation) -> int:
    """Take a capture. Returns the exit status. Raises `CommandError`."""
    from moldau.broker.cli.backups.capturing import run_command

    return run_command(arguments, invocation)
