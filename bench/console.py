"""The console: its memory, the server time of its pages at full size, and what an open live tail costs producers."""

from __future__ import annotations

import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from importlib.util import find_spec
from statistics import median
from typing import Final
from urllib.request import urlopen

from bench import load
from bench.figures import OURS, Figure
from bench.frames import Frames, batch_of, produce_error_position, produce_frame
from bench.groups import RunForm
from bench.processes import memory
from bench.subjects import Bench, RunningBroker, remove_server
from tests.support.filled_console import PATHS, filled_console

IDLE_S: Final = 10.0
TOPIC: Final = "topic-0000"
"""The topic whose pages are measured, and whose newest records the live tail shows."""
GROUP: Final = "group-000"
PRODUCED: Final = [100] * 100
"""The sizes of the records in one batch."""
INTERVAL_NS: Final = 20_000_000
"""The time between two batches, for 5,000 records a second."""
TAIL_S: Final = 10
TAIL_S_QUICK: Final = 3
LOADS: Final = 3
"""The number of measured loads of each page, after one that is not counted."""
OPENING_S: Final = 2.0
TAIL: Final = f"/topics/{TOPIC}/records/tail"


def measure(bench: Bench, form: RunForm) -> list[Figure]:
    """Measure this broker alone, because Apache Kafka has no console."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    found: dict[str, list[float]] = {}
    for _ in range(form.rounds):
        for name, value in _memory(bench).items():
            found.setdefault(name, []).append(value)
        with _node(bench, with_console=True) as (running, port):
            readers: dict[str, Callable[[], AbstractContextManager[None]]] = {"read by a client": lambda: _raw(port)}
            if chromium and find_spec("playwright") is not None:
                readers["open in a browser"] = lambda: _browser(chromium, port)
            for name, value in _produce_beside(running, readers, form).items():
                found.setdefault(f"console: live tail {name}: produce p99, times that without", []).append(value)
        found.setdefault("console: longest server time of a page at full size", []).append(_pages())
        print("  console: " + ", ".join(f"{name} {values[-1]:.3g}" for name, values in found.items()), flush=True)
    units = {"memory": "MB", "server time": "ms", "times": "x"}
    return [
        Figure(name, next(unit for word, unit in units.items() if word in name), {OURS: values})
        for name, values in found.items()
    ]


@contextmanager
def _node(bench: Bench, *, with_console: bool) -> Iterator[tuple[RunningBroker, int]]:
    """Start a node with one topic. Returns it with the port of its console."""
    port = bench.free_pair()
    settings = (f"moldau.http.listener=http://127.0.0.1:{port}", "moldau.console=true") if with_console else ()
    server = bench.new_server(OURS, extra=settings)
    server.format()
    with RunningBroker(server) as running:
        client = running.connect()
        client.create_topic(TOPIC)
        client.close()
        yield running, port
    remove_server(server)


def _memory(bench: Bench) -> dict[str, float]:
    """Measure the memory ten seconds after the start: without the console, and after each page was loaded once."""
    held = {}
    for with_console in (False, True):
        with _node(bench, with_console=with_console) as (running, port):
            time.sleep(max(0.0, IDLE_S - (time.perf_counter() - running.started)))
            if with_console:
                for path in PATHS:
                    if GROUP not in path:
                        _page(port, path)
                time.sleep(1)
            held[with_console] = memory(running.pid).resident_mb
    return {
        "console: resident memory, without a listener": held[False],
        "console: resident memory, every page seen, above that": held[True] - held[False],
    }


def _page(port: int, path: str) -> None:
    with urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
        answer.read()


def _pages() -> float:
    """Return the longest CPU time (ms) of a page in the event loop's thread."""
    with filled_console() as filled:
        longest_ms = 0.0
        for path in PATHS:
            _page(filled.port, path)
            before_ns = filled.worked_ns()
            for _ in range(LOADS):
                _page(filled.port, path)
            longest_ms = max(longest_ms, (filled.worked_ns() - before_ns) / LOADS / 1e6)
    return longest_ms


def _produce_beside(
    running: RunningBroker, readers: dict[str, Callable[[], AbstractContextManager[None]]], form: RunForm
) -> dict[str, float]:
    """Measure the p99 of produce requests while each reader follows the topic, as a ratio to the p99 without a reader
    just before and after.
    """
    seconds = TAIL_S_QUICK if form.is_quick else TAIL_S
    frame = produce_frame(TOPIC, batch_of(PRODUCED, time.time_ns() // 1_000_000))

    def p99_ms(reader: AbstractContextManager[None]) -> float:
        with reader:
            return load.run_load(
                running.server.port,
                [Frames(frame, 1)],
                in_flight=1,
                requests=seconds * 1_000_000_000 // INTERVAL_NS,
                error_position=produce_error_position(TOPIC),
                interval_ns=INTERVAL_NS,
            ).latency_ms(0.99)

    ratios = {}
    p99_ms(nullcontext())
    for name, follow in readers.items():
        before, beside, after = p99_ms(nullcontext()), p99_ms(follow()), p99_ms(nullcontext())
        print(f"  produce p99 {before:.2f} ms, {beside:.2f} with the tail {name}, {after:.2f} after", flush=True)
        ratios[name] = beside / median((before, after))
    return ratios


@contextmanager
def _raw(port: int) -> Iterator[None]:
    """Start a client that reads the events of the live tail and drops them."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(f"GET {TAIL} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())

        def read() -> None:
            while connection.recv(1 << 16):
                pass

        reading = threading.Thread(target=read)
        reading.start()
        time.sleep(OPENING_S)
        try:
            yield
        finally:
            connection.shutdown(socket.SHUT_RDWR)
            reading.join()


@contextmanager
def _browser(chromium: str, port: int) -> Iterator[None]:
    """Start headless Chromium with the page of the records, which follows the topic."""
    from playwright.sync_api import sync_playwright

    with ExitStack() as stack:
        launched = stack.enter_context(sync_playwright()).chromium.launch(
            executable_path=chromium, args=["--no-sandbox"]
        )
        stack.callback(launched.close)
        page = launched.new_page()
        page.goto(f"http://127.0.0.1:{port}{TAIL.removesuffix('/tail')}")
        page.click("#follow")
        time.sleep(OPENING_S)
        yield
