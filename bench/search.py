"""The console's search for records by a field of their JSON values in a whole topic: its rate, and the time to stop."""

from __future__ import annotations

import json
import socket
import time
from random import Random
from typing import Final
from urllib.request import urlopen

from bench.client import Client
from bench.figures import OURS, Figure
from bench.frames import produce_frame
from bench.groups import RunForm
from bench.processes import children, cpu_time
from bench.rows import SEARCH_STOP, search_of
from bench.subjects import Bench, RunningBroker, remove_server
from moldau.protocol.compression import Codec
from moldau.protocol.record_builder import Record, build_batch

SIZE: Final = 1 << 29
SIZE_QUICK: Final = 1 << 27
"""The stored size (bytes) of a topic in the quick form."""
SMALLER: Final = 4
"""A topic whose search is slow is smaller by this factor."""
PLAIN: Final = "plain"
TOPICS: Final = {PLAIN: Codec.NONE, "lz4": Codec.LZ4, "zstd": Codec.ZSTD, "gzip": Codec.GZIP, "masked": Codec.NONE}
RECORDS_A_BATCH: Final = 200
BEFORE_STOP_S: Final = 0.3
LOOKS_S: Final = 2.0
"""How long the processes are observed after a stop."""


def measure(bench: Bench, form: RunForm) -> list[Figure]:
    """Measure this broker alone, because Apache Kafka has no console."""
    found: dict[str, list[float]] = {}
    port = bench.free_pair()
    listener = (f"moldau.http.listener=http://127.0.0.1:{port}", "moldau.console=true")
    server = bench.new_server(OURS, extra=(*listener, "moldau.console.masks=masked:value.customer.name"))
    server.format()
    size = SIZE_QUICK if form.is_quick else SIZE
    with RunningBroker(server) as running:
        client = running.connect()
        for topic, codec in TOPICS.items():
            fill_topic(client, topic, codec, size if topic == PLAIN else size // SMALLER)
            name = search_of(topic)
            found[name] = [search_mb_per_cpu_s(running.pid, port, topic) for _ in range(form.rounds)]
            print(f"  {name}: {' '.join(f'{each:.0f}' for each in found[name])} MB/s", flush=True)
        found[SEARCH_STOP] = [stop_seconds(running.pid, port) for _ in range(form.rounds)]
        client.close()
    remove_server(server)
    return [Figure(name, "s" if name == SEARCH_STOP else "MB/s", {OURS: values}) for name, values in found.items()]


def fill_topic(client: Client, topic: str, codec: Codec, size: int) -> None:
    """Produce different JSON values of about 1 KiB, with a stored size of `size` bytes in all."""
    client.create_topic(topic)
    noise = Random(topic)
    stored = number = 0
    while stored < size:
        values = [
            {"id": n, "customer": {"id": n % 977, "name": f"Anna {n}"}, "text": noise.randbytes(450).hex()}
            for n in range(number, number + RECORDS_A_BATCH)
        ]
        now_ms = time.time_ns() // 1_000_000
        records = [Record(key=b"k", value=json.dumps(each).encode(), timestamp=now_ms) for each in values]
        batch = build_batch(records, codec=codec)
        client.exchange(produce_frame(topic, batch, 0))
        stored, number = stored + len(batch), number + RECORDS_A_BATCH


def search_path(topic: str) -> str:
    """The path of a search for a value that no record has."""
    return f"/topics/{topic}/records/search?field=customer.id%3Dnobody"


def search_mb_per_cpu_s(pid: int, port: int, topic: str) -> float:
    """The rate of a search in MB for each second of CPU time of the node and of the worker process."""
    before_s = cpu_used_s(pid)
    with urlopen(f"http://127.0.0.1:{port}{search_path(topic)}", timeout=600) as answer:
        lines = [line for line in answer.read().decode().splitlines() if line.startswith("data: ")]
    last = json.loads(lines[-1].removeprefix("data: "))
    assert last["end"] == "all was looked at" and not last["errors"], last
    return float(last["bytes"] / 1e6 / (cpu_used_s(pid) - before_s))


def stop_seconds(pid: int, port: int) -> float:
    """The time (s) from the client's disconnect until no process works for the search any more."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(f"GET {search_path(PLAIN)} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        time.sleep(BEFORE_STOP_S)
        working = children(pid)
        began, used = time.monotonic(), search_cpu_s(working)
    last_s = 0.0
    while (now_s := time.monotonic() - began) < LOOKS_S:
        now_used = search_cpu_s(working)
        if now_used > used:
            used, last_s = now_used, now_s
        time.sleep(0.01)
    return last_s


def cpu_used_s(pid: int) -> float:
    return cpu_time(pid).total_s + search_cpu_s(children(pid))


def search_cpu_s(pids: list[int]) -> float:
    """The CPU time (s) of processes; 0 for a process that has ended."""
    total = 0.0
    for pid in pids:
        try:
            total += cpu_time(pid).total_s
        except FileNotFoundError:
            continue
    return total
