"""The load generator: ready-made requests over several connections, in a closed loop or at set times.

It spends next to nothing itself, so that on a small machine the broker is measured and not the client: requests are
built before, replies are counted and their error codes looked at. What it does spend is in the outcome.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench import native_load, plain_load
from bench.frames import Frames
from bench.libssl import Library, Suite
from bench.outcome import LoadFailed, Outcome


def run(
    port: int | Sequence[int],
    frames: list[Frames],
    *,
    in_flight: int,
    requests: int,
    error_position: int,
    discards: bool = False,
    interval_ns: int = 0,
    tls: Suite | None = None,
) -> Outcome:
    """Send so many requests in all, spread over one connection for each of the frames, and wait for every reply.

    `port` is that of all connections, or there is one for each. With `interval_ns` requests leave at that distance,
    answered or not; without, `in_flight` are under way on each connection. With `discards` the kernel throws away what
    follows the head of a reply. With `tls` the connections are under TLS of that version and suite; the handshakes are
    over before the clock starts. Raises `LoadFailed`, also if TLS is asked for and the loop is not compiled.
    """
    ports = [port] * len(frames) if isinstance(port, int) else port
    compiled = native_load.loop()
    if compiled is None:
        if tls is not None:
            raise LoadFailed("loads under TLS need a C compiler")
        return plain_load.run(
            ports,
            frames,
            in_flight=in_flight,
            requests=requests,
            error_position=error_position,
            interval_ns=interval_ns,
        )
    return native_load.run(
        compiled,
        ports,
        frames,
        in_flight=in_flight,
        requests=requests,
        error_position=error_position,
        discards=discards,
        interval_ns=interval_ns,
        tls=None if tls is None else Library(tls),
    )


def language() -> str:
    """What the loop runs in: how much it spends follows from that."""
    return "Python" if native_load.loop() is None else "C"
