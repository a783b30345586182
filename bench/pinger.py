"""A client beside a measurement: it sends a small request again and again, and reports how long each took.

It is a process of its own: in a thread it would wait for the interpreter while the measurement computes, and that wait
would look like the broker's.
"""

from __future__ import annotations

import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from statistics import quantiles

from bench.client import Client

LATENCY = struct.Struct("=d")
ROOT = Path(__file__).resolve().parents[1]


class Pinger:
    """Sends one request at a time over one connection, with a pause between requests."""

    def __init__(self, port: int, frame: bytes, pause_s: float = 0.002) -> None:
        """Returns after the first answer. Raises `ChildProcessError` if none comes."""
        command = [sys.executable, "-m", "bench.pinger", str(port), frame.hex(), str(pause_s)]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.latencies_ms: list[float] = []
        if not self._read():
            raise ChildProcessError("the client beside the measurement has no answer")
        self._thread = threading.Thread(target=self._read_all, daemon=True)
        self._thread.start()

    def _read(self) -> bool:
        assert self._process.stdout is not None
        data = self._process.stdout.read(LATENCY.size)
        if len(data) < LATENCY.size:
            return False
        self.latencies_ms.append(LATENCY.unpack(data)[0])
        return True

    def _read_all(self) -> None:
        while self._read():
            pass

    def end(self) -> None:
        """Stop sending. A second call has no effect."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._thread.join()
        self._process.wait()

    @property
    def slowest_ms(self) -> float:
        return max(self.latencies_ms)

    @property
    def p99_ms(self) -> float:
        return quantiles(self.latencies_ms, n=100)[98]


def main(port: int, frame: bytes, pause_s: float) -> None:
    """Write the latencies (ms) to the standard output until the standard input ends."""
    client = Client(port)
    is_over = threading.Event()

    def await_end() -> None:
        sys.stdin.buffer.read()
        is_over.set()

    threading.Thread(target=await_end, daemon=True).start()
    while not is_over.wait(pause_s):
        began = time.perf_counter()
        client.exchange(frame)
        sys.stdout.buffer.write(LATENCY.pack((time.perf_counter() - began) * 1000))
        sys.stdout.buffer.flush()
    client.close()


if __name__ == "__main__":
    main(int(sys.argv[1]), bytes.fromhex(sys.argv[2]), float(sys.argv[3]))
