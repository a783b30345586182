"""A storm of small requests, in a process of its own: many connections, each with many requests in a row."""

from __future__ import annotations

import json
import selectors
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60.0


class StormCounts(NamedTuple):
    """What a storm has done."""

    requests: int
    """Those that were answered."""
    closed: int
    """Connections that the node has closed."""


class Storm:
    """`count` connections to a port; each sends `data`, which is `requests` requests, waits for their replies, and
    sends it again. With 0 requests it has no end and no reply, and is sent byte by byte.
    """

    def __init__(self, port: int, count: int, data: bytes, requests: int, *, before: bytes = b"") -> None:
        """`before` is what a connection sends once, before: requests with a reply each, as a login."""
        command = [sys.executable, "-m", "tests.limits.storm", str(port), str(count), str(requests)]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{data.hex()} {before.hex()}\n")
        self._process.stdin.flush()
        if self._process.stdout.readline().strip() != "begun":
            raise ChildProcessError("the storm has not begun")

    def end(self) -> StormCounts:
        output, _ = self._process.communicate()
        return StormCounts(**json.loads(output))


class _Client:
    """One connection of a storm."""

    def __init__(self, port: int, data: bytes, requests: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        self._data, self._requests = memoryview(data), requests
        self._sent = self._answered = 0
        self._received = b""
        self.is_sending = True
        self.requests = 0

    def log_in(self, before: bytes) -> None:
        """Send what comes first, one request after the other."""
        while before:
            size = 4 + struct.unpack_from(">i", before)[0]
            self.socket.sendall(before[:size])
            (left,) = struct.unpack(">i", self.socket.recv(4, socket.MSG_WAITALL))
            self.socket.recv(left, socket.MSG_WAITALL)
            before = before[size:]

    def write(self) -> None:
        step = 1 if not self._requests else len(self._data)
        self._sent += self.socket.send(self._data[self._sent : self._sent + step])
        if self._sent == len(self._data):
            self._sent = 0
            self.is_sending = not self._requests

    def read(self) -> bool:
        """Count the replies; whether the connection is open."""
        data = self.socket.recv(1 << 18)
        received, position = self._received + data, 0
        while len(received) - position >= 4:
            end = position + 4 + struct.unpack_from(">i", received, position)[0]
            if end > len(received):
                break
            position = end
            self.requests += 1
            self._answered += 1
        self._received = received[position:]
        if self._answered == self._requests:
            self._answered = 0
            self.is_sending = True
        return bool(data)


def main(port: int, count: int, requests: int) -> None:
    """Send until the standard input ends, then tell the counts."""
    data, before = (bytes.fromhex(each) for each in (sys.stdin.readline().rstrip("\n") + " ").split(" ")[:2])
    clients = [_Client(port, data, requests) for _ in range(count)]
    selector = selectors.DefaultSelector()
    selector.register(sys.stdin, selectors.EVENT_READ)
    for each in clients:
        each.log_in(before)
        each.socket.setblocking(False)
        selector.register(each.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, each)
    sys.stdout.write("begun\n")
    sys.stdout.flush()
    closed, is_over = 0, False
    while not is_over:
        for key, events in selector.select(1.0):
            client = key.data
            if client is None:
                is_over = True
                break
            try:
                is_open = not events & selectors.EVENT_READ or client.read()
                if is_open and client.is_sending:
                    client.write()
            except BlockingIOError:
                is_open = True
            except ConnectionError:
                is_open = False
            if not is_open:
                closed += 1
                selector.unregister(client.socket)
                client.socket.close()
                continue
            wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if client.is_sending else 0)
            if wanted != key.events:
                selector.modify(client.socket, wanted, client)
        if not requests:
            time.sleep(0.01)
    sys.stdout.write(json.dumps(StormCounts(sum(each.requests for each in clients), closed)._asdict()))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
