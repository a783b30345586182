"""Another client beside a measurement: it asks a small question again and again, and remembers how long each took."""

from __future__ import annotations

import threading
import time
from statistics import quantiles

from bench.client import Client


class Pinger:
    """One connection in a thread of its own, one request at a time, a pause between them."""

    def __init__(self, port: int, frame: bytes, pause_s: float = 0.002) -> None:
        self._client = Client(port)
        self._frame = frame
        self._pause_s = pause_s
        self._is_over = False
        self.latencies_ms: list[float] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over:
            began = time.perf_counter()
            self._client.exchange(self._frame)
            self.latencies_ms.append((time.perf_counter() - began) * 1000)
            time.sleep(self._pause_s)

    def end(self) -> None:
        self._is_over = True
        self._thread.join()
        self._client.close()

    @property
    def slowest_ms(self) -> float:
        return max(self.latencies_ms)

    @property
    def p99_ms(self) -> float:
        return quantiles(self.latencies_ms, n=100)[98]
