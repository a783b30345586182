"""`moldau follow-table`: keeps a table of Apache Iceberg up to date with a topic, from segments."""

from __future__ import annotations

import argparse
import asyncio
import signal
import time
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from moldau.broker.cli.invocation import CommandError, Invocation
from moldau.broker.cli.spark_session import add_isolation

if TYPE_CHECKING:
    from moldau.broker.config.listeners import HttpAddress
    from moldau.broker.http.server import HttpServer
    from moldau.broker.runtime.environment import LocalEnvironment
    from moldau.lake.follower import Follower
    from moldau.lake.opening import FollowChoices, LakePorts
    from moldau.lake.sink import LakeTable

DESCRIPTION: Final = """\
Keep a table of Apache Iceberg up to date with a topic: each offset once, without Spark, and without asking a broker.
The records come from log directories and tiered storages. The offsets that the table has are in its own snapshots, so
the command can be stopped at any point and started again; of two that follow the same table, the later one goes on."""
EPILOG: Final = """\
examples:
  moldau follow-table --path data --topic orders --warehouse lake --once
  moldau follow-table --path /var/lib/moldau,s3://bucket/prefix --topic orders --catalog prod --table sales.orders
  moldau follow-table --path data --topic orders --warehouse lake --registry http://registry:8081 \\
      --misfits dead-letter --metrics 127.0.0.1:9464

A topic with cleanup.policy=compact becomes a table with a row for each key, others one with a row for each record.
--warehouse DIR keeps the catalog in DIR/catalog.db; --catalog NAME is one of pyiceberg's configuration
(~/.pyiceberg.yaml, or PYICEBERG_CATALOG__NAME__URI): REST, SQL, Hive, Glue.

It needs the extra 'iceberg' (pip install 'moldau[iceberg]'), and 'schemas' for Avro and Protobuf, 'tiered' for object
stores. docs/lake.md has the columns, the evolution of schemas, the metrics, and what a crash leaves."""
INTERVAL_S: Final = 30.0
ROUND_SIZE: Final = 64
"""MiB of segments that one commit takes, by default."""
EXIT_INTERRUPTED: Final = 130
_NEEDED: Final = ("pyiceberg", "pyarrow", "numpy", "sqlalchemy")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the subcommand's arguments."""
    parser.add_argument("--path", required=True, metavar="PLACE[,PLACE]", help="log directories and tiered storages")
    parser.add_argument("--topic", required=True, help="the topic to follow")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--warehouse", metavar="DIR", help="a directory for the catalog and its tables")
    where.add_argument("--catalog", metavar="NAME", help="a catalog of pyiceberg's configuration")
    parser.add_argument("--table", metavar="NAMESPACE.NAME", help="the table (default: default.TOPIC)")
    parser.add_argument(
        "--mode",
        default="auto",
        choices=("auto", "append", "upsert"),
        help="as cleanup.policy says (default), or given",
    )
    parser.add_argument("--registry", metavar="PLACE", help="decode values: the URL of a registry, or a directory")
    parser.add_argument(
        "--misfits",
        default="suspend",
        choices=("suspend", "skip", "dead-letter"),
        help="what a record does that does not fit: end the command (default), be left out, go to TABLE_dead_letters",
    )
    parser.add_argument(
        "--partition-by",
        default="day",
        choices=("none", "hour", "day", "month", "year"),
        help="of a new table of records (default: %(default)s of timestamp)",
    )
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
    parser.add_argument("--once", action="store_true", help="take what is there, and end")
    parser.add_argument("--metrics", metavar="HOST:PORT", help="serve /metrics there, as Prometheus reads it")
    parser.add_argument("--endpoint", metavar="URL", help="of a server that is compatible with S3")
    parser.add_argument("--region", metavar="NAME", help="of the bucket")
    add_isolation(parser)
    parser.add_argument(
        "--progress", action=argparse.BooleanOptionalAction, default=True, help="a line for each commit"
    )


def run(arguments: argparse.Namespace, invocation: Invocation) -> int:
    """Follow the topic until a signal. Returns the exit status: 0 after SIGTERM, 130 after SIGINT."""
    missing = [package for package in _NEEDED if find_spec(package) is None]
    if missing:
        raise CommandError(f"{' and '.join(missing)} is not installed: pip install 'moldau[iceberg]'")
    if not arguments.interval > 0 or arguments.round_size < 1:
        raise CommandError("--interval and --round-size must be positive")
    from sqlalchemy.exc import SQLAlchemyError

    from moldau.lake.opening import CATALOG_ERRORS
    from moldau.protocol.primitives import MalformedMessage
    from moldau.storage.checkpoints.text_checkpoint import CorruptCheckpoint
    from moldau.storage.tiered.port import RemoteStorageError
    from moldau.tables.refusals import Refused

    address = metrics_address(arguments.metrics)
    try:
        return asyncio.run(FollowCommand(arguments, invocation).run(address))
    except (Refused, CorruptCheckpoint, MalformedMessage, RemoteStorageError, OSError) as problem:
        raise CommandError(str(problem)) from None
    except (SQLAlchemyError, *CATALOG_ERRORS) as problem:
        raise CommandError(f"the catalog: {type(problem).__name__}: {problem}") from None


def metrics_address(text: str | None) -> HttpAddress | None:
    """The address of `--metrics`. Raises `CommandError`."""
    from moldau.broker.config.listeners import read_http_address

    address = None if text is None else read_http_address(f"http://{text}")
    if text is not None and address is None:
        raise CommandError(f"--metrics {text}: give HOST:PORT, as in 127.0.0.1:9464")
    return address


def choices_of(arguments: argparse.Namespace) -> FollowChoices:
    """What the arguments choose."""
    from moldau.lake.follower import FollowSettings
    from moldau.lake.opening import FollowChoices, unit_named

    options = {"path": arguments.path, "kafka.isolation.level": arguments.isolation}
    options |= {"moldau.tiered.storage.endpoint": arguments.endpoint} if arguments.endpoint is not None else {}
    options |= {"moldau.tiered.storage.region": arguments.region} if arguments.region is not None else {}
    return FollowChoices(
        options,
        arguments.topic,
        arguments.warehouse,
        arguments.catalog,
        arguments.table,
        arguments.mode,
        arguments.registry,
        unit_named(arguments.partition_by),
        FollowSettings(arguments.round_size << 20, arguments.misfits, arguments.headers),
    )


class FollowCommand:
    """One run of the command. The follower works on an executor thread; signals and metrics are served meanwhile."""

    def __init__(self, arguments: argparse.Namespace, invocation: Invocation) -> None:
        self._arguments = arguments
        self._invocation = invocation
        self._stopping = asyncio.Event()
        self._signal: int | None = None
        self._server: HttpServer | None = None

    async def run(self, address: HttpAddress | None) -> int:
        """Follow until a signal, or once. Returns the exit status. Raises as `open_follower` and `catch_up`."""
        from moldau.broker.runtime.environment import LocalEnvironment
        from moldau.lake.follower import counted_rows
        from moldau.lake.opening import open_follower

        loop = asyncio.get_running_loop()
        environment = LocalEnvironment(loop)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, number)
        choices = choices_of(self._arguments)
        follower, table = await asyncio.to_thread(open_follower, choices, self._ports(environment))
        self._say_opened(follower, table)
        if address is not None:
            await self._serve(address, follower, table, environment)
        try:
            await self._follow(follower)
        finally:
            if self._server is not None:
                self._server.stop()
        if self._arguments.once and not self._stopping.is_set():
            place = await asyncio.to_thread(lambda: table.metadata_location)
            rows = counted_rows(follower.progress.rows_count)
            self._invocation.out.say(f"{table.name} has all of {self._arguments.topic}: {rows} added")
            self._invocation.out.say(place)
        return EXIT_INTERRUPTED if self._signal == signal.SIGINT else 0

    async def _follow(self, follower: Follower) -> None:
        while not self._stopping.is_set():
            await asyncio.to_thread(follower.catch_up)
            if self._arguments.once:
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), self._arguments.interval)

    def _stop(self, number: int) -> None:
        self._signal = number
        self._stopping.set()

    def _ports(self, environment: LocalEnvironment) -> LakePorts:
        from moldau.lake.follower import FollowPorts
        from moldau.lake.opening import LakePorts
        from moldau.lake.sink import SinkPorts

        follow = FollowPorts(environment.wall_ms, self._say, self._stopping.is_set)
        return LakePorts(environment.fs, SinkPorts(environment.entropy, environment.wall_ms), follow, time.sleep)

    def _say(self, line: str) -> None:
        if self._arguments.progress:
            self._invocation.errors.say(line)

    def _say_opened(self, follower: Follower, table: LakeTable) -> None:
        progress = follower.progress
        begun = ", ".join(f"{each} at {offset:,}" for each, offset in sorted(progress.offsets.items()))
        swept = (
            f"; {progress.orphans_count} files of attempts that failed were deleted" if progress.orphans_count else ""
        )
        self._say(f"{table.name} follows {self._arguments.topic} from partition {begun or 'none yet'}{swept}")

    async def _serve(
        self, address: HttpAddress, follower: Follower, table: LakeTable, environment: LocalEnvironment
    ) -> None:
        from moldau.broker.http.server import Answer, HttpRequest, HttpServer
        from moldau.broker.runtime.tasks import Tasks
        from moldau.lake.metrics import CONTENT_TYPE, metrics_text

        async def metrics(_: HttpRequest) -> Answer:
            text = metrics_text(follower.progress, table.name, self._arguments.topic, environment.wall_ms())
            return Answer(200, CONTENT_TYPE, text)

        tasks = Tasks(lambda reason: self._invocation.errors.say(f"moldau: {reason}", "red"))
        loop = asyncio.get_running_loop()
        self._server = HttpServer(loop, {"/metrics": {"GET": metrics}}, tasks.spawn)
        port = await self._server.start(address, "--metrics")
        self._say(f"metrics are at http://{address.host or '127.0.0.1'}:{port}/metrics")
