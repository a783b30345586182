"""The compiled loop of the load generator: `load.c`, built at first use if there is a C compiler."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import socket
import subprocess
import time
from array import array
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

from bench.frames import Frames
from bench.libssl import LibSsl
from bench.outcome import LoadFailed, Outcome

SOURCE: Final = Path(__file__).with_name("load.c")
CACHE: Final = Path(__file__).parent.parent / ".tools" / "bench"
INTERRUPTED: Final = -4
FAILURES: Final = {
    -1: "the broker closed a connection",
    -3: "no reply for 30 s",
    -5: "too many connections, or a topic's name is too long",
    -6: "libssl has given up on a connection",
}
ERROR_IN_REPLY: Final = -2
SYSTEM: Final = -1000

_POINTER = ctypes.c_void_p
_INT64 = ctypes.c_int64


class _Stream(ctypes.Structure):
    _fields_ = (
        ("frames", _POINTER),
        ("frame_size", _INT64),
        ("frames_count", _INT64),
        ("at", _INT64),
        ("to_send", _INT64),
        ("crc_of", _POINTER),
        ("crc_base", _INT64),
        ("sequence_position", _INT64),
        ("crc_position", _INT64),
        ("sent_at", _POINTER),
        ("sent_size", _INT64),
        ("received_size", _INT64),
        ("descriptor", _INT64),
        ("ssl", _POINTER),
        ("unsent", _POINTER),
        ("state", _INT64 * 6),
        ("head", ctypes.c_uint8 * 512),
    )


class _Load(ctypes.Structure):
    _fields_ = (
        ("streams", _POINTER),
        ("count", _INT64),
        ("in_flight", _INT64),
        ("requests", _INT64),
        ("error_position", _INT64),
        ("discards", _INT64),
        ("interval_ns", _INT64),
        ("latencies", _POINTER),
        ("latencies_count", _INT64),
        ("error", _INT64),
        ("ssl_write", _POINTER),
        ("ssl_read", _POINTER),
        ("ssl_error", _POINTER),
        ("began", ctypes.c_uint64),
        ("scheduled", _INT64),
    )


@cache
def compiled_loop() -> ctypes.CDLL | None:
    """Return the compiled loop; None without a compiler, or if MOLDAU_BENCH_PLAIN is set."""
    if os.environ.get("MOLDAU_BENCH_PLAIN"):
        return None
    path = build_shared_library(SOURCE, "load", "-O2", "-shared", "-fPIC", "-Wall")
    return None if path is None else ctypes.CDLL(str(path))


def build_shared_library(source: Path, name: str, *options: str) -> Path | None:
    """Compile a C source, and return the library; None without a compiler. The library is kept while the source is
    unchanged.
    """
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    path = CACHE / f"{name}-{hashlib.sha256(source.read_bytes()).hexdigest()[:16]}.so"
    if not path.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        made = path.with_suffix(f".{os.getpid()}")
        done = subprocess.run([compiler, *options, "-o", str(made), str(source)], capture_output=True, text=True)
        if done.returncode != 0:
            print(f"{source.name} is not compiled: {done.stderr[-400:]}")
            return None
        made.rename(path)
    return path


def run_compiled_load(
    compiled: ctypes.CDLL,
    ports: Sequence[int],
    frames: list[Frames],
    *,
    in_flight: int,
    requests: int,
    error_position: int,
    discards: bool = False,
    interval_ns: int = 0,
    tls: LibSsl | None = None,
) -> Outcome:
    """Do the same as `run_plain_load`. With `tls` each connection makes its handshake before the clock starts."""
    share, rest = divmod(requests, len(frames))
    sockets = [_connected(port) for port in ports]
    sessions = [] if tls is None else [tls.session(each) for each in sockets]
    kept: list[object] = []
    streams = (_Stream * len(frames))()
    for index, each in enumerate(frames):
        sent_at = array("Q", bytes(8 * in_flight))
        held = (ctypes.c_char * len(each.buffer)).from_buffer(each.buffer)
        kept += [sent_at, held]
        stream = streams[index]
        stream.frames, stream.frame_size, stream.frames_count = ctypes.addressof(held), each.frame_size, each.count
        stream.at, stream.to_send = each.first, share + (index < rest)
        stream.sent_at, stream.descriptor = sent_at.buffer_info()[0], sockets[index].fileno()
        if sessions:
            stream.ssl = sessions[index].address
        if each.sequencing is not None:
            stream.crc_of = each.sequencing.parts.buffer_info()[0]
            stream.crc_base = each.sequencing.base
            stream.sequence_position = each.sequencing.sequence_position
            stream.crc_position = each.sequencing.crc_position
    latencies = array("Q", bytes(8 * requests))
    load = _Load(ctypes.addressof(streams), len(frames), in_flight, requests, error_position, int(discards))
    load.interval_ns, load.latencies = interval_ns, latencies.buffer_info()[0]
    if tls is not None:
        load.ssl_write, load.ssl_read, load.ssl_error = tls.functions
    began, cpu_before = time.perf_counter(), time.thread_time()
    try:
        status = compiled.load_begin(ctypes.byref(load))
        while not status or status == INTERRUPTED:
            # Between two calls Python sees to signals: Ctrl-C ends the run here.
            status = compiled.load_continue(ctypes.byref(load))
            if not status:
                break
    finally:
        seconds, cpu_s = time.perf_counter() - began, time.thread_time() - cpu_before
        for session in sessions:
            session.free()
        for each_socket in sockets:
            each_socket.close()
    if status:
        raise LoadFailed(_said(status, load.error))
    sent_size = sum(stream.sent_size for stream in streams)
    received_size = sum(stream.received_size for stream in streams)
    return Outcome(requests, seconds, sent_size, received_size, array("Q", sorted(latencies)), cpu_s)


def _connected(port: int) -> socket.socket:
    connected = socket.create_connection(("127.0.0.1", port))
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # Without Python's own time limit the descriptor blocks; the loop says by itself if it does not want that.
    connected.setblocking(True)
    return connected


def _said(status: int, error: int) -> str:
    if status == ERROR_IN_REPLY:
        return f"error {error} in a reply"
    if status <= SYSTEM:
        return os.strerror(SYSTEM - status)
    return FAILURES.get(status, f"status {status}")
