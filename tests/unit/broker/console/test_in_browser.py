"""The console in headless Chromium, at full size: no error, no serious finding of axe-core, pages within their bars."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.request import urlopen

import pytest

from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.protocol.record_builder import Record, build_batch
from moldau.testing import Cluster
from moldau.testing.ports import free_ports
from tests.support.node import Client
from tests.support.transactional_producer import coordinator

playwright = pytest.importorskip("playwright.sync_api")
axe = pytest.importorskip("axe_playwright_python")
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = [pytest.mark.processes, pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")]

TOPICS: Final = 1_000
PARTITIONS: Final = 10
GROUPS: Final = 500
SERVER_MS_MAX: Final = 200
PAGE_SIZE_MAX: Final = 300_000
LOADS: Final = 3
"""Loads of a page that are measured, after one that is not."""
PATHS: Final = (
    "/",
    "/brokers/1",
    "/brokers/1?shows=all",
    "/directories",
    "/topics",
    "/topics?q=topic-09",
    "/topics/topic-0000",
    "/topics/topic-0000?shows=all",
    "/topics/topic-0000/records",
    "/topics/topic-0000/0/producers",
    "/groups",
    "/groups?sort=name",
    "/groups/group-000",
    "/transactions",
    "/permissions",
)
AXE: Final = Path(axe.__file__).with_name("axe.min.js")


class Filled:
    """A node with many topics and groups, and its console."""

    def __init__(self, cluster: Cluster, port: int) -> None:
        self.cluster = cluster
        self.console = f"http://127.0.0.1:{port}"
        self.port = port
        self.broker = cluster.bootstrap_servers.rpartition(":")

    def worked_ns(self) -> int:
        """The time (ns) for which the event loop's thread had a processor: what other processes do does not count."""
        return int(Path(f"/proc/{self.cluster.nodes[0].pid}/schedstat").read_text().split()[0])

    async def connect(self) -> Client:
        reader, writer = await asyncio.open_connection(self.broker[0], int(self.broker[2]), limit=1 << 26)
        return Client(reader, writer, "filler")


async def fill(node: Filled) -> None:
    client = await node.connect()
    names = [f"topic-{number:04}" for number in range(TOPICS)]
    for begin in range(0, TOPICS, 50):
        topics = [
            CreatableTopic(name=name, num_partitions=PARTITIONS, replication_factor=1)
            for name in names[begin : begin + 50]
        ]
        reply = await client.ask(CreateTopicsRequest(topics=topics, timeout_ms=60_000), 7)
        assert not any(each.error_code for each in reply.topics)
    await asyncio.sleep(1)
    batch = build_batch([Record(key=b"k", value=b'{"paid": true}', timestamp=time.time_ns() // 1_000_000)] * 20)
    for name in names[::10]:
        for index in range(PARTITIONS):
            assert (await client.produce(name, batch, partition=index)).error_code == 0
    for number in range(GROUPS):
        group = f"group-{number:03}"
        await coordinator(client, group, 0)
        commits = [OffsetCommitRequestPartition(partition_index=at, committed_offset=0) for at in range(PARTITIONS)]
        topics_of_group = [
            OffsetCommitRequestTopic(name=names[(number * 2 + at) % TOPICS], partitions=commits) for at in range(2)
        ]
        request = OffsetCommitRequest(
            group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=topics_of_group
        )
        for _ in range(100):
            reply = await client.ask(request, 8)
            if not reply.topics[0].partitions[0].error_code:
                break
            await asyncio.sleep(0.1)
    client.close()


@pytest.fixture(scope="module")
def node() -> Iterator[Filled]:
    (port,) = free_ports(1)
    settings = {
        "moldau.console": "true",
        "moldau.console.writes": "true",
        "moldau.http.listener": f"http://127.0.0.1:{port}",
        "auto.create.topics.enable": "false",
    }
    with Cluster(settings=settings) as cluster:
        filled = Filled(cluster, port)
        asyncio.run(fill(filled))
        yield filled


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        launched = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        launched.close()


def watched(context: Any, errors: list[str]) -> Any:
    """A page whose errors are collected."""
    page = context.new_page()
    page.on("console", lambda said: errors.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("requestfailed", lambda request: errors.append(request.url) if "/tail" not in request.url else None)
    return page


def test_every_page_is_fast_small_and_without_an_error(node: Filled, browser: Any) -> None:
    errors: list[str] = []
    context = browser.new_context()
    page = watched(context, errors)
    for path in PATHS:
        page.goto(node.console + path)
        before_ns = node.worked_ns()
        for _ in range(LOADS):
            response = page.goto(node.console + path)
        server_ms = (node.worked_ns() - before_ns) / LOADS / 1e6
        assert response.status == 200, path
        assert server_ms <= SERVER_MS_MAX, f"{path}: {server_ms} ms"
        assert len(response.body()) <= PAGE_SIZE_MAX, path
        assert page.locator("h1").count() == 1
    context.close()
    assert errors == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_has_no_serious_finding(node: Filled, browser: Any, scheme: str) -> None:
    context = browser.new_context(color_scheme=scheme, bypass_csp=True)
    page = context.new_page()
    for path in PATHS:
        page.goto(node.console + path)
        page.add_script_tag(content=AXE.read_text("utf-8"))
        found = page.evaluate("axe.run().then((result) => result.violations)")
        serious = [
            f"{each['id']}: {each['nodes'][0]['html'][:200]}"
            for each in found
            if each["impact"] in ("serious", "critical")
        ]
        assert serious == [], path
    context.close()


def test_the_live_tail_of_5000_records_a_second_shows_the_newest_and_ends_where_it_is_told(
    node: Filled, browser: Any
) -> None:
    errors: list[str] = []
    context = browser.new_context()
    page = watched(context, errors)
    page.goto(f"{node.console}/topics/topic-0001/records")
    page.click("#follow")

    async def produce() -> None:
        client = await node.connect()
        began = time.monotonic()
        for turn in range(150):
            now_ms = time.time_ns() // 1_000_000
            records = [Record(value=f"{turn}-{at}".encode(), timestamp=now_ms) for at in range(100)]
            assert (await client.produce("topic-0001", build_batch(records))).error_code == 0
            await asyncio.sleep(max(began + turn / 50 - time.monotonic(), 0))
        client.close()

    run_beside(produce)
    page.locator("#records tbody tr", has_text="149-99").first.wait_for(timeout=20_000)
    assert page.locator("#records tbody tr").count() <= 500
    page.click("#follow")
    assert page.locator("#follow").get_attribute("aria-pressed") == "false"
    context.close()
    assert errors == []


def run_beside(work: Any) -> None:
    """Run a coroutine in a thread of its own: the thread of the test has playwright's loop."""
    import threading

    failed: list[BaseException] = []

    def run() -> None:
        try:
            asyncio.run(work())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert not failed, failed


def test_a_thousand_idle_connections_disturb_no_probe_and_no_client(node: Filled) -> None:
    idle = []
    for number in range(1_000):
        made = socket.create_connection(("127.0.0.1", node.port), timeout=5)
        if number % 2:
            made.sendall(b"GET /topics HTTP/1.1\r\nHost: lo")
        idle.append(made)

    async def works() -> None:
        client = await node.connect()
        began = time.monotonic()
        for _ in range(20):
            assert (await client.produce("topic-0002", build_batch([Record(value=b"v", timestamp=1)]))).error_code == 0
        assert time.monotonic() - began < 5
        client.close()

    try:
        for path in ("/healthz", "/readyz", "/metrics", "/topics?format=json"):
            with urlopen(node.console + path, timeout=5) as answer:
                assert answer.status == 200
        run_beside(works)
        assert json.loads(urlopen(f"{node.console}/?format=json", timeout=5).read())["problems"] == []
    finally:
        for each in idle:
            each.close()


def test_a_record_of_a_stranger_runs_nothing(node: Filled, browser: Any) -> None:
    hostile = b"<script>document.title='run'</script><img src=x onerror=\"document.title='run'\">"

    async def produce() -> None:
        client = await node.connect()
        record = Record(key=hostile, value=hostile, timestamp=time.time_ns() // 1_000_000, headers=(("h", hostile),))
        assert (await client.produce("topic-0003", build_batch([record]))).error_code == 0
        client.close()

    errors: list[str] = []
    context = browser.new_context()
    page = watched(context, errors)
    page.goto(f"{node.console}/topics/topic-0003/records")
    page.click("#follow")
    page.wait_for_timeout(1_000)
    run_beside(produce)
    page.locator("#records tbody tr", has_text="onerror").wait_for(timeout=20_000)
    page.reload()
    assert page.locator("#records tbody tr").count() == 1
    assert page.title().startswith("Records of topic-0003")
    assert page.locator("#records img, #records script").count() == 0
    context.close()
    assert errors == []


def test_a_form_is_taken_from_a_browser(node: Filled, browser: Any) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{node.console}/topics")
    page.locator("summary", has_text="Create a topic").click()
    page.fill("input[name=name]", "made-by-hand")
    page.locator("form", has=page.locator("input[name=replicas]")).locator("button").click()
    page.wait_for_url("**/topics/made-by-hand")
    assert page.locator("h1").inner_text() == "Topic made-by-hand"
    context.close()
