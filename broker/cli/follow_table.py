"""`moldau follow-table`: keeps Apache Iceberg tables up to date with topics. It reads the segments, not the brokers."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, Final

from moldau.broker.cli import lake
from moldau.broker.cli.invocation import CommandError, Invocation, text_of
from moldau.broker.cli.spark_session import add_isolation

if TYPE_CHECKING:
    from moldau.broker.config.listeners import HttpAddress
    from moldau.lake.opening import FollowChoices
    from moldau.lake.table_form import FormChoices

DESCRIPTION: Final = """\
Keep a table of Apache Iceberg up to date with a topic: each offset once, without Spark, and without asking a broker.
The records come from log directories and tiered storages. The offsets that the table has are in its own snapshots, so
the command can be stopped at any point and started again; of two that follow the same table, the later one goes on.
One process may follow several topics: a table each, one metrics port, one round in memory at a time."""
EPILOG: Final = """\
examples:
  moldau follow-table --path data --topic orders --warehouse warehouse --once
  moldau follow-table --path /var/lib/moldau,s3://bucket/prefix --topic orders --catalog prod --table sales.orders
  moldau follow-table --path data --topic orders --warehouse warehouse --registry http://registry:8081 \\
      --misfits dead-letter --metrics 127.0.0.1:9464
  moldau follow-table --path data --topic-pattern 'shop\\..*' --warehouse warehouse --table 'shop.{topic}'

A topic with cleanup.policy=compact becomes a table with a row for each key, others one with a row for each record.
--warehouse DIR keeps the catalog in DIR/catalog.db; --catalog NAME is one of pyiceberg's configuration
(~/.pyiceberg.yaml, or PYICEBERG_CATALOG__NAME__URI) or of --catalog-property: REST, SQL, Hive, Glue.

It needs the extra 'iceberg' (pip install 'moldau[iceberg]'), and 'schemas' for Avro and Protobuf, 'tiered' for object
stores. docs/lake.md has the columns, the evolution of schemas, the metrics, and what a crash leaves."""
INTERVAL_S: Final = 30.0
ROUND_SIZE: Final = 64
"""The default size (MiB) of the log that one commit to the table takes."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the subcommand's arguments."""
    parser.add_argument("--path", required=True, metavar="PLACE[,PLACE]", help="log directories and tiered storages")
    topics = parser.add_mutually_exclusive_group(required=True)
    topics.add_argument("--topic", metavar="TOPIC[,TOPIC]", help="the topic to follow, or several")
    topics.add_argument(
        "--topic-pattern", metavar="REGEX", help="follow the topics whose whole name matches, later ones too"
    )
    lake.add_catalog_arguments(parser, is_required=True)
    parser.add_argument(
        "--table",
        metavar="NAMESPACE.NAME",
        help="the table (default: default.TOPIC); of several topics with {topic} in it",
    )
    parser.add_argument(
        "--mode",
        default="auto",
        choices=("auto", "append", "upsert"),
        help="as cleanup.policy says (default), or given",
    )
    add_form_arguments(parser)
    parser.add_argument(
        "--misfits",
        default="suspend",
        choices=("suspend", "skip", "dead-letter"),
        help="what a record does that does not fit: end the command (default), be left out, go to TABLE_dead_letters",
    )
    parser.add_argument(
        "--partition-by",
        default="day",
        metavar="UNIT[,FIELD]",
        help="of a new table: none, hour, day, month or year of timestamp (default of a table of records: day), and "
        "fields by their values (value.country)",
    )
    parser.add_argument("--sort-by", metavar="FIELD[,FIELD]", help="of a new table: the order of rows in each file")
    parser.add_argument("--headers", action="store_true", help="with a column of headers")
    parser.add_argument(
        "--interval", type=float, default=INTERVAL_S, metavar="SECONDS", help="between commits (default: %(default)s)"
    )
    parser.add_argument(
        "--round-size",
        type=int,
        default=ROUND_SIZE,
        metavar="MIB",
        help="of segments in a commit (default: %(default)s)",
    )
    parser.add_argument(
        "--compact", action="store_true", help="join small files of a partition, once there are many of them"
    )
    parser.add_argument("--once", action="store_true", help="take what is there, and end")
    parser.add_argument("--metrics", metavar="HOST:PORT", help="serve /metrics there, as Prometheus reads it")
    parser.add_argument("--endpoint", metavar="URL", help="of a server that is compatible with S3")
    parser.add_argument("--region", metavar="NAME", help="of the bucket")
    add_isolation(parser)
    parser.add_argument(
        "--progress", action=argparse.BooleanOptionalAction, default=True, help="a line for each commit"
    )


def add_form_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options that say how keys and values become columns of a table."""
    parser.add_argument("--registry", metavar="PLACE", help="decode values: the URL of a registry, or a directory")
    parser.add_argument(
        "--schema",
        metavar="sample|connect|FILE",
        help="decode values of JSON: by a sample of them, by their schema part (Kafka Connect), by a JSON Schema",
    )
    parser.add_argument(
        "--key-type",
        default="binary",
        metavar="TYPE",
        help="of the keys: binary (default), string, short, int, long, float, double, registry, or as of --schema",
    )
    parser.add_argument(
        "--envelope",
        default="none",
        choices=("none", "debezium"),
        help="the values are change events: a table by key of the rows after the changes",
    )
    parser.add_argument(
        "--flatten", action="store_true", help="a column for each field of a struct, with a name in lower case"
    )


def run(arguments: argparse.Namespace, invocation: Invocation) -> int:
    """Follow the topics until a signal. Returns the exit status: 0 after SIGTERM, but 143 with `--once`, because the
    table is not up to date then; 130 after SIGINT; 1 if one of several topics has failed.
    """
    invocation.require(lake.NEEDED, "iceberg")
    if not arguments.interval > 0 or arguments.round_size < 1:
        raise CommandError("--interval and --round-size must be positive")
    from asyncio import run as run_coroutine

    from moldau.broker.cli.table_follower import TableFollower
    from moldau.protocol.primitives import MalformedMessage
    from moldau.storage.checkpoints.text_checkpoint import CorruptCheckpoint
    from moldau.storage.tiered.port import RemoteStorageError
    from moldau.tables.refusals import Refused

    address = metrics_address(arguments.metrics)
    with lake.catalog_failures_as_command_errors():
        try:
            return run_coroutine(TableFollower(arguments, choices_of(arguments), invocation).run(address))
        except (Refused, CorruptCheckpoint, MalformedMessage, RemoteStorageError, OSError) as problem:
            raise CommandError(text_of(problem)) from None


def metrics_address(text: str | None) -> HttpAddress | None:
    """Parse the value of `--metrics`, HOST:PORT; None if it is not given. Raises `CommandError`."""
    from moldau.broker.config.listeners import read_http_address

    address = None if text is None else read_http_address(f"http://{text}")
    if text is not None and address is None:
        raise CommandError(f"--metrics {text}: give HOST:PORT, as in 127.0.0.1:9464")
    return address


def choices_of(arguments: argparse.Namespace) -> FollowChoices:
    """The choices of the user, from the arguments. Raises `CommandError`."""
    from moldau.lake.compaction import FILES_MIN
    from moldau.lake.follower import FollowSettings
    from moldau.lake.layout import ChosenLayout
    from moldau.lake.opening import FollowChoices

    check_topics(arguments)
    options = {"path": arguments.path, "kafka.isolation.level": arguments.isolation}
    options |= {"moldau.tiered.storage.endpoint": arguments.endpoint} if arguments.endpoint is not None else {}
    options |= {"moldau.tiered.storage.region": arguments.region} if arguments.region is not None else {}
    settings = FollowSettings(
        arguments.round_size << 20, arguments.misfits, arguments.headers, FILES_MIN if arguments.compact else None
    )
    unit, fields = partitions_of(arguments.partition_by)
    sort_fields = tuple((arguments.sort_by or "").split(",")) if arguments.sort_by else ()
    return FollowChoices(
        options,
        arguments.topic or "",
        arguments.warehouse,
        arguments.catalog,
        lake.properties_of(arguments),
        arguments.table,
        arguments.mode,
        forms_of(arguments),
        unit,
        settings,
        ChosenLayout(fields, sort_fields),
    )


def check_topics(arguments: argparse.Namespace) -> None:
    """Raise `CommandError` if `--topic` has an empty or a repeated name, if `--topic-pattern` is malformed, or if
    several topics would share one table.
    """
    names = [] if arguments.topic is None else arguments.topic.split(",")
    if not all(names) or len(set(names)) < len(names):
        raise CommandError(f"--topic {arguments.topic}: give each topic once, with a comma between two")
    try:
        re.compile(arguments.topic_pattern or "")
    except re.error as problem:
        raise CommandError(f"--topic-pattern {arguments.topic_pattern}: {problem}") from None
    if len(names) != 1 and arguments.table is not None and "{topic}" not in arguments.table:
        raise CommandError(f"--table {arguments.table}: several topics need {{topic}} in it, as in sales.{{topic}}")


def partitions_of(text: str) -> tuple[str | None, tuple[str, ...]]:
    """Parse `--partition-by`: the unit of time, which is None if there is none, and the fields. Raises
    `CommandError`.
    """
    from moldau.lake.layout import UNITS

    words = text.split(",")
    units = [word for word in words if word in UNITS or word == "none"]
    fields = tuple(word for word in words if word not in units)
    if len(units) > 1 or not all(fields) or len(set(fields)) < len(fields):
        raise CommandError(f"--partition-by {text}: give a unit of time, fields, or a unit and fields")
    return next((unit for unit in units if unit in UNITS), None), fields


def forms_of(arguments: argparse.Namespace) -> FormChoices:
    """The forms by which keys and values are decoded, from the arguments."""
    from moldau.lake.table_form import FormChoices

    envelope = None if arguments.envelope == "none" else arguments.envelope
    return FormChoices(arguments.registry, arguments.schema, arguments.key_type, envelope, arguments.flatten)
