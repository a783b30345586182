"""Pages of the console whose values cost much to decode or to show: what they ask for is bounded, and an honest client
beside is served in time.

No value here goes far beyond a bound: a decoder without the bound would only take longer.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, NamedTuple

from bench.processes import memory
from moldau.protocol.compression import Codec
from moldau.protocol.errors import ErrorCode
from moldau.protocol.record_builder import Record, build_batch
from moldau.tables.values.bounds import DEPTH_MAX, VALUES_MAX
from tests.limits.stage import HOST, Stage
from tests.limits.storms import BASELINE_S, P99_MS_MAX, SLOWEST_MS_MAX, check_memory

ATTACK_S: Final = 10.0
ASKERS: Final = 4
LEFT: Final = 8
"""How often a page is asked for by clients that leave at once."""
BATCHES: Final = 64
BATCH_VALUES: Final = 16
VALUE_SIZE: Final = 1_000_000
JSON_SIZE: Final = 800_000
MESSAGE_MAX: Final = 2_000_000
UNREAD: Final = "was not decoded"
NODES: Final = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
NULLS: Final = {"type": "array", "items": "null"}
SCHEMAS: Final = {1: NODES, 2: NULLS}


class Attack(NamedTuple):
    """A topic, the batches in it, and what is asked of its page of records."""

    topic: str
    batches: Callable[[], list[bytes]]
    query: str
    leaves: bool = False
    """The client does not wait for the page."""
    says: str = ""
    """What a page must say, unless its turn took too long."""


class _Registry(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps({"schema": json.dumps(SCHEMAS[int(self.path.rpartition("/")[2])])}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextlib.contextmanager
def console_settings() -> Iterator[list[str]]:
    """The settings of a console, beside a schema registry with `SCHEMAS`."""
    with ThreadingHTTPServer((HOST, 0), _Registry) as registry:
        threading.Thread(target=registry.serve_forever, daemon=True).start()
        yield ["moldau.console=true", f"moldau.console.schema.registry=http://{HOST}:{registry.server_port}"]
        registry.shutdown()


def _one_batch(*values: bytes) -> list[bytes]:
    now_ms = time.time_ns() // 1_000_000
    return [build_batch([Record(value=each, timestamp=now_ms) for each in values], codec=Codec.ZSTD)]


def _framed(schema: int, payload: bytes) -> bytes:
    return struct.pack(">bi", 0, schema) + payload


def _zigzag(number: int) -> bytes:
    number, out = number * 2, b""
    while number > 0x7F:
        out, number = out + bytes([number & 0x7F | 0x80]), number >> 7
    return out + bytes([number])


def _nested_avro() -> list[bytes]:
    return _one_batch(*[_framed(1, b"\2" * DEPTH_MAX + b"\0")] * 100)


def _claims() -> list[bytes]:
    return _one_batch(*[_framed(2, _zigzag(VALUES_MAX + 1) + b"\0")] * 100)


def _nested_json() -> list[bytes]:
    return _one_batch(*[b"[" * (DEPTH_MAX + 1) + b"]" * (DEPTH_MAX + 1)] * 1_000)


def _long_json() -> list[bytes]:
    return _one_batch(b"[" + b"1," * (JSON_SIZE // 2) + b"1]")


def _expanding() -> list[bytes]:
    return _one_batch(*[b"a" * VALUE_SIZE] * BATCH_VALUES) * BATCHES


ATTACKS: Final = (
    Attack("nested-avro", _nested_avro, "limit=500", says=f"nested deeper than {DEPTH_MAX}"),
    Attack("claims", _claims, "limit=500", says="claims more than"),
    Attack("nested-json", _nested_json, "limit=500"),
    Attack("long-json", _long_json, "whole=yes", leaves=True),
    Attack("long-json-shown", _long_json, "whole=yes"),
    Attack("expanding", _expanding, "limit=500&whole=yes"),
    Attack("expanding-searched", _expanding, "limit=500&whole=yes&find=absent"),
)


def console_pages(stage: Stage) -> None:
    """Each page, asked for by several clients again and again for a while."""
    _prepare(stage)
    time.sleep(BASELINE_S)
    bar_ms = P99_MS_MAX + stage.honest_p99_ms(0)
    idle_mb = memory(stage.node.pid).resident_mb
    failures = []
    for attack in ATTACKS:
        first, began = stage.honest_count, time.monotonic()
        with ThreadPoolExecutor(ASKERS) as askers:
            until = began + ATTACK_S
            counts = list(
                askers.map(lambda _, attack=attack, until=until: _attack(stage, attack, until), range(ASKERS))
            )
        stage.await_honest(stage.honest_count + 1)
        p99_ms, slowest_ms = stage.honest_p99_ms(first), stage.honest_slowest_ms(first)
        print(f"  {attack.topic:20} {sum(counts):5} pages, p99 {p99_ms:6.1f} ms, slowest {slowest_ms:6.1f}", flush=True)
        if p99_ms > bar_ms or slowest_ms > SLOWEST_MS_MAX:
            failures.append(f"{attack.topic}: p99 {p99_ms:.0f}, slowest {slowest_ms:.0f} ms")
        check_memory(stage, idle_mb, attack.topic)
    stage.check(not failures, f"bar {bar_ms:.0f} ms: {'. '.join(failures)}")


def a_few_console_pages(stage: Stage) -> None:
    """Each page once, and one by clients that leave: nobody waits long, though other trials use the machine."""
    _prepare(stage)
    first, idle_mb = stage.honest_count, memory(stage.node.pid).resident_mb
    for attack in ATTACKS:
        _attack(stage, attack, 0.0)
    stage.await_honest(first + 10)
    slowest_ms = stage.honest_slowest_ms(first)
    stage.check(slowest_ms < 2 * SLOWEST_MS_MAX, f"an honest produce waited for {slowest_ms:.0f} ms")
    check_memory(stage, idle_mb, "the pages")


def _prepare(stage: Stage) -> None:
    for attack in ATTACKS:
        stage.check(stage.create(attack.topic, max_message_bytes=MESSAGE_MAX) is ErrorCode.NONE, "no topic")
        for each in attack.batches():
            stage.check(stage.produce(attack.topic, each) is ErrorCode.NONE, f"{attack.topic} takes no batch")
    status, text = stage.http("/")
    stage.check(status == 200, f"the console answers {status}: {text[:200]}")


def _attack(stage: Stage, attack: Attack, until: float) -> int:
    """Ask until a time of the clock, once at least. Returns how often."""
    count = 0
    while True:
        path = f"/topics/{attack.topic}/records?begin=oldest&{attack.query}"
        if attack.leaves:
            for _ in range(LEFT):
                _ask_and_leave(stage.http_port, path)
            time.sleep(0.1)
        else:
            status, text = stage.http(path)
            is_told = attack.says in text or UNREAD in text
            stage.check(status == 200 and is_told, f"{path} answers {status}: {text[-500:]}")
        count += 1
        if time.monotonic() >= until:
            return count


def _ask_and_leave(port: int, path: str) -> None:
    with socket.create_connection((HOST, port), timeout=5) as client:
        client.sendall(f"GET {path} HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
