"""Traces a request through a running node, and lists the modules that it executes: `python -m docs.lives join`.

The argument is a word of the life's name; without one, all are listed. Each life is a story over simulated nodes
(tests/support/). It runs once before, so that codecs are compiled and caches are filled, and is then traced with
`sys.setprofile`: the modules of the product whose functions are called between the moment at which the request is sent
and the moment at which its reply is there, in the order of their first call. Timers that fire meanwhile are part of it;
what the clients of the stories call is left out. The trace runs in a process of its own that imports sources alone,
because Python sees no calls within compiled modules.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import subprocess
import sys
from collections.abc import Callable
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from tests.support.node import Client, Node

ROOT: Final = Path(__file__).parents[1]
LINKS: Final = f"{ROOT}/moldau/"
"""Where Python finds the modules: a folder with links to those of the product."""
PACKAGES: Final = ("broker", "protocol", "storage", "security", "replication", "kraft", "coordinator")


class Called(NamedTuple):
    """One module of a life, and its function that is called first."""

    path: str
    function: str


DECLARING: Final = (ROOT / "protocol/late_dataclass.py", ROOT / "protocol/late_tuple.py")
"""They run at the first object of a class, in whichever life that is."""


class Trace:
    """Collects the modules of the product that are executed within `with trace:`."""

    def __init__(self) -> None:
        self.called: dict[str, Called] = {}
        self._of_client: dict[CodeType, bool] = {}

    def __enter__(self) -> None:
        sys.setprofile(self._profile)

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _profile(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or code.co_filename in self.called or code.co_name == "<module>":
            return
        path = Path(code.co_filename.replace(LINKS, f"{ROOT}/", 1))
        if not path.is_relative_to(ROOT) or path.relative_to(ROOT).parts[0] not in PACKAGES or path in DECLARING:
            return
        caller = frame.f_back
        while caller is not None:
            if self._is_client(caller.f_code):
                return
            caller = caller.f_back
        self.called[code.co_filename] = Called(str(path.relative_to(ROOT)), code.co_qualname)

    def _is_client(self, code: CodeType) -> bool:
        """Whether a function belongs to a story or its client: a coroutine or a method of the tests, but the loop."""
        known = self._of_client.get(code)
        if known is None:
            path = Path(code.co_filename)
            is_story = path == Path(__file__) or path.is_relative_to(ROOT / "tests" / "support")
            is_host = path.is_relative_to(ROOT / "tests" / "support" / "simulation")
            is_client = bool(code.co_flags & inspect.CO_COROUTINE) or code.co_qualname.startswith("Client.")
            known = self._of_client[code] = is_story and not is_host and is_client
        return known


class Life(NamedTuple):
    """One life: what it shows, and what runs and traces it."""

    heading: str
    what: str
    run: Callable[[Trace], None]


def _produce(trace: Trace) -> None:
    from tests.support.node import batch, serve_and

    async def story(node: Node) -> None:
        client = await node.connect()
        await client.create("t")
        for _ in range(2):
            await client.produce("t", batch("a"))
        with trace:
            await client.produce("t", batch("b"))

    serve_and(story)


def _replicated_produce(trace: Trace) -> None:
    from tests.support.cluster import Cluster
    from tests.support.node import batch

    async def story(cluster: Cluster) -> None:
        await cluster.settled()
        await cluster.create("t", replication_factor=2)
        client = await cluster.connect(await cluster.led("t"))
        for _ in range(2):
            await client.produce("t", batch("a"))
        with trace:
            assert not (await client.produce("t", batch("b"))).error_code

    with Cluster(1, nodes=3, controllers=1) as cluster:
        cluster.live(story)


def _long_poll(trace: Trace) -> None:
    from tests.support.node import batch, fetch_request, serve_and

    async def story(node: Node) -> None:
        reader, writer = await node.connect(), await node.connect()
        await reader.create("t")

        async def poll(offset: int) -> None:
            reader.send(fetch_request([("t", 0, offset)], max_wait_ms=500), 12)
            await writer.produce("t", batch("a"))
            reply = await reader.reply()
            assert reply.responses[0].partitions[0].records

        await poll(0)
        with trace:
            await poll(1)

    serve_and(story)


def _join(trace: Trace) -> None:
    from moldau.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
    from tests.support.coordinators import until_coordinated
    from tests.support.node import serve_and

    async def join(client: Client, group: str) -> None:
        protocol = JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\0\xff\xff\xff\xff")
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id="",
            protocol_type="consumer",
            protocols=[protocol],
        )
        while (await client.ask(request, 3)).error_code:
            pass

    async def story(node: Node) -> None:
        client = await node.connect()
        for group in ("g", "h"):
            await until_coordinated(client.ask, group)
            await join(client, group)
        with trace:
            await join(client, "i")

    serve_and(story, offsets_topic_num_partitions=1)


def _end_transaction(trace: Trace) -> None:
    from tests.support.node import serve_and
    from tests.support.transactional_producer import started, until_done

    async def story(node: Node) -> None:
        producer = await started(node)
        assert await until_done(producer.send, "t", b"a")
        assert not await producer.end(commits=True)
        for number in range(100):
            code, _ = await producer.send("t", b"b%d" % number)
            if not code:
                break
        with trace:
            assert not await producer.end(commits=True)

    serve_and(story, transaction_state_log_replication_factor=1, transaction_state_log_num_partitions=1)


def _login(trace: Trace) -> None:
    from moldau.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
    from tests.support.node import serve_and
    from tests.support.scram_login import password_of, scram_log_in

    listeners: dict[str, Any] = {
        "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093,SASL://:9094",
        "advertised_listeners": "PLAINTEXT://broker-1:9092,SASL://broker-1:9094",
        "listener_security_protocol_map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
        "sasl_enabled_mechanisms": "SCRAM-SHA-256",
        "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super_users": "User:ANONYMOUS",
    }
    question = MetadataRequest(topics=[MetadataRequestTopic(name="t")])

    async def log_in(client: Client, user: str) -> None:
        assert not (await scram_log_in(client, user, "secret")).error_code
        assert (await client.ask(question, 9)).topics[0].error_code

    async def story(node: Node) -> None:
        admin = await node.connect()
        await admin.create("t")
        for user in ("first", "second"):
            await admin.ask(password_of(user, "secret"), 0)
        await log_in(await node.connect(9094), "first")
        client = await node.connect(9094)
        with trace:
            await log_in(client, "second")

    serve_and(story, **listeners)


def _cold_read(trace: Trace) -> None:
    from tests.support.node import serve_and
    from tests.support.tiered_node import TIERED, remote_topic

    async def story(node: Node) -> None:
        client = await remote_topic(node)
        for offset in (0, 20):
            for again in range(10):
                read = client.fetch("t", offset, max_wait_ms=500)
                if offset == 20 and not again:
                    with trace:
                        answer = await read
                else:
                    answer = await read
                if answer.records:
                    break
            assert answer.records

    serve_and(story, **TIERED)


def _compaction(trace: Trace) -> None:
    import asyncio

    from tests.support.node import batch, serve_and

    async def story(node: Node) -> None:
        client = await node.connect()
        cleaner = node.broker.cleaner
        await client.create("t", cleanup_policy="compact", internal_segment_bytes=300, min_cleanable_dirty_ratio=0.01)

        async def write() -> int:
            for _ in range(20):
                await client.produce("t", batch("a", "b"))
            return cleaner.totals.logs_cleaned

        async def cleaned(before: int) -> None:
            while cleaner.totals.logs_cleaned == before:
                await asyncio.sleep(0.05)

        await cleaned(await write())
        before = await write()
        with trace:
            await cleaned(before)

    serve_and(story, log_cleaner_backoff_ms=500, log_cleaner_dedupe_buffer_size=24_000)


def _election(trace: Trace) -> None:
    from tests.support.cluster import Cluster

    async def story(cluster: Cluster) -> None:
        await cluster.settled()
        leader = cluster.leader_of_quorum()
        assert leader is not None
        leader.kill()
        with trace:
            await cluster.until(lambda: cluster.leader_of_quorum() not in (None, leader), "another leader")

    with Cluster(1, nodes=4, controllers=3) as cluster:
        cluster.live(story)


LIVES: Final = (
    Life("A produce", "Produce under acks=all on a node of one, with one record, the third of its client.", _produce),
    Life(
        "A replicated produce", "The same on two brokers, of which one follows; both are traced.", _replicated_produce
    ),
    Life("A long poll", "Fetch that waits, the Produce of another client that wakes it, and both replies.", _long_poll),
    Life("A join", "JoinGroup of the first member of a classic group, until the member has its generation.", _join),
    Life("A commit of a transaction", "EndTxn of a transaction with records in one partition.", _end_transaction),
    Life("A login", "A SCRAM exchange, and the first decision by ACLs about a Metadata request.", _login),
    Life("A cold read", "Fetch of an offset that only remote storage has.", _cold_read),
    Life(
        "A compaction", "A round of the cleaner over a log of some dirty segments, until they are swapped.", _compaction
    ),
    Life(
        "An election",
        "Three controllers and a broker: the leading controller is killed, and another one leads the quorum.",
        _election,
    ),
)


def traced() -> dict[str, list[Called]]:
    """The modules of every life, traced in a process that imports sources alone."""
    command = [sys.executable, str(Path(__file__)), "--trace"]
    said: dict[str, list[list[str]]] = json.loads(subprocess.check_output(command, cwd=ROOT, text=True))
    return {heading: [Called(*row) for row in rows] for heading, rows in said.items()}


def told(life: Life, called: list[Called]) -> str:
    """The life in lines: a file, its function that is called first, and what the module is."""
    width = max(len(each.path) for each in called)
    lines = [f"{life.heading} ({len(called)} files): {life.what}"]
    lines += [f"  {each.path:<{width}}  {each.function}: {_opening(each.path)}" for each in called]
    return "\n".join(lines)


def _opening(path: str) -> str:
    docstring = ast.get_docstring(ast.parse((ROOT / path).read_text("utf-8"))) or ""
    return " ".join(docstring.partition("\n\n")[0].split())


def _sources_alone() -> None:
    """Let imports from this checkout find sources, and no compiled modules."""
    finder = FileFinder.path_hook((SourceFileLoader, SOURCE_SUFFIXES))

    def hook(path: str) -> Any:
        if not Path(path or ".").is_relative_to(ROOT) or ".venv" in Path(path).parts:
            raise ImportError
        return finder(path)

    sys.path_hooks.insert(0, hook)
    sys.path_importer_cache.clear()


def _trace_all() -> None:
    _sources_alone()
    sys.path.insert(0, str(ROOT))
    found: dict[str, list[Called]] = {}
    for life in LIVES:
        trace = Trace()
        life.run(trace)
        found[life.heading] = list(trace.called.values())
    sys.stdout.write(json.dumps(found))


def main() -> None:
    """Print the lives whose name has the given words."""
    parser = argparse.ArgumentParser(prog="python -m docs.lives", description=(__doc__ or "").split(":")[0])
    parser.add_argument("name", nargs="*", metavar="WORD", help="; ".join(life.heading for life in LIVES))
    parser.add_argument("--trace", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.trace:
        _trace_all()
        return
    wanted = " ".join(arguments.name).lower()
    chosen = [life for life in LIVES if wanted in life.heading.lower()]
    if not chosen:
        parser.error(f"no life is named {wanted}: {', '.join(life.heading for life in LIVES)}")
    found = traced()
    for life in chosen:
        sys.stdout.write(f"{told(life, found[life.heading])}\n")


if __name__ == "__main__":
    main()
