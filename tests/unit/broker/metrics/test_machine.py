"""The metrics of several processes as one page, over real sockets of the file system."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from moldau.broker.config.listeners import LocalAddress
from moldau.broker.http.local import NoAnswer, get_response
from moldau.broker.http.server import HttpRequest, HttpResponse, HttpServer, plain_response
from moldau.broker.metrics.catalogue import metrics
from moldau.broker.metrics.exposition import CONTENT_TYPE, Histogram, Page
from moldau.broker.metrics.machine import Processes, label_by_broker, samples, sum_pages
from moldau.broker.runtime.place import MachineProcesses
from moldau.broker.runtime.tasks import Tasks

BYTES = "kafka_server_brokertopicmetrics_bytesin_total"
SIZE = "moldau_log_size_bytes"


def page_of(size: int, uptime: float, lag: int, topic: str) -> str:
    page = Page()
    page.add(SIZE, size)
    page.add("moldau_uptime_seconds", uptime)
    page.add("moldau_replica_lag_max", lag)
    page.add(BYTES, size)
    page.add(BYTES, size, (("topic", topic),))
    times = Histogram((1.0, 5.0))
    times.observe(size)
    page.add_histogram("kafka_network_requestmetrics_totaltimems", times, (("request", "Fetch"),))
    return page.text()


PAGES = {1: page_of(2, 60.5, 7, "a"), 2: page_of(3, 5, 9, 'b " }'), 3: None}


def values_in(page: str) -> dict[str, float]:
    return {series: value for _, series, value in samples(page)}


def test_values_are_added_up_and_of_ages_and_lags_the_worst_stands() -> None:
    found = values_in(sum_pages(PAGES))
    assert (found[SIZE], found["moldau_uptime_seconds"], found["moldau_replica_lag_max"]) == (5, 5, 9)
    assert (found[BYTES], found[f'{BYTES}{{topic="a"}}'], found[f'{BYTES}{{topic="b \\" }}"}}']) == (5, 2, 3)
    times = "kafka_network_requestmetrics_totaltimems"
    assert [found[f'{times}_bucket{{request="Fetch",le="{bound}"}}'] for bound in ("1", "5", "+Inf")] == [0, 2, 2]
    assert (found[f'{times}_count{{request="Fetch"}}'], found[f'{times}_sum{{request="Fetch"}}']) == (2, 5)


def test_each_process_has_its_series_under_its_node_id() -> None:
    found = values_in(label_by_broker(PAGES))
    assert (found[f'{SIZE}{{broker="1"}}'], found[f'{SIZE}{{broker="2"}}']) == (2, 3)
    assert found[f'{BYTES}{{broker="2",topic="b \\" }}"}}'] == 3
    assert SIZE not in found


@pytest.mark.parametrize("merge", [sum_pages, label_by_broker])
def test_a_page_says_who_answered_and_declares_every_metric_once(merge: object) -> None:
    assert callable(merge)
    text = merge(PAGES)
    found = values_in(text)
    assert [found[f'moldau_core_up{{broker="{each}"}}'] for each in (1, 2, 3)] == [1, 1, 0]
    declared = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert declared == list(metrics())


def test_a_metric_of_another_version_is_left_out() -> None:
    newer = f"# TYPE moldau_brand_new gauge\nmoldau_brand_new 1\n{PAGES[1]}"
    assert values_in(sum_pages({1: newer})) == values_in(sum_pages({1: PAGES[1]}))


def test_a_page_of_one_process_is_the_sum_of_one() -> None:
    assert values_in(sum_pages({1: PAGES[1]})) == values_in(str(PAGES[1])) | {'moldau_core_up{broker="1"}': 1}


def test_the_other_processes_are_asked_at_their_sockets(tmp_path: Path) -> None:
    place = MachineProcesses((1, 2, 3, 4), str(tmp_path))

    async def metrics_of_2(request: HttpRequest) -> HttpResponse:
        return HttpResponse(200, CONTENT_TYPE, str(PAGES[2]))

    async def ready(request: HttpRequest) -> HttpResponse:
        return plain_response(200, "ok")

    async def starting(request: HttpRequest) -> HttpResponse:
        return plain_response(503, "the node is starting\nthe metadata quorum has no leader")

    async def ask() -> tuple[dict[int, str | None], list[str]]:
        loop = asyncio.get_running_loop()
        tasks = Tasks(lambda text: None)
        second = HttpServer(loop, {"/metrics": {"GET": metrics_of_2}, "/readyz": {"GET": ready}}, tasks.spawn)
        third = HttpServer(loop, {"/readyz": {"GET": starting}}, tasks.spawn)
        await second.start_local(LocalAddress(place.socket_of(2)))
        await third.start_local(LocalAddress(place.socket_of(3)))
        others = Processes(1, place)
        found = await others.pages("own"), await others.not_ready()
        second.stop()
        third.stop()
        await tasks.stop()
        return found

    pages, lines = asyncio.run(ask())
    assert {node_id: page is not None for node_id, page in pages.items()} == {1: True, 2: True, 3: False, 4: False}
    assert pages[1] == "own" and values_in(str(pages[2])) == values_in(str(PAGES[2]))
    assert lines == [
        "node 3: the node is starting",
        "node 3: the metadata quorum has no leader",
        "node 4: No such file or directory",
    ]


def test_a_process_that_hangs_is_given_up(tmp_path: Path) -> None:
    async def ask() -> None:
        async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await asyncio.sleep(60)

        server = await asyncio.start_unix_server(hang, str(tmp_path / "s"))
        try:
            await get_response(LocalAddress(str(tmp_path / "s")), "/metrics", 0.05)
        finally:
            server.close()

    with pytest.raises(NoAnswer, match=r"no answer in 0\.05 s"):
        asyncio.run(ask())
