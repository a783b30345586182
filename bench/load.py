"""The load generator: sends encoded requests over several connections, in a closed loop or at set times.

It uses very little CPU time itself, so that on a small machine the broker is measured and not the client. Requests are
encoded before the run; of a reply only the end and the error code are read. The generator's own CPU time is part of the
outcome.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench import native_load, plain_load
from bench.frames import Frames
from bench.libssl import LibSsl, TlsSuite
from bench.outcome import LoadFailed, Outcome


def run_load(
    port: int | Sequence[int],
    frames: list[Frames],
    *,
    in_flight: int,
    requests: int,
    error_position: int,
    discards: bool = False,
    interval_ns: int = 0,
    tls: TlsSuite | None = None,
) -> Outcome:
    """Send `requests` requests, spread over one connection for each of `frames`, and wait for every reply.

    `port` is that of all connections, or there is one port for each. With `interval_ns` requests leave at that
    distance, answered or not. Without it, `in_flight` requests are outstanding on each connection. With `discards` the
    kernel drops what follows the head of a reply. With `tls` the connections are under TLS of that version and suite,
    and the handshakes are complete before the clock starts. Raises `LoadFailed`, also if TLS is requested and the loop
    is not compiled.
    """
    ports = [port] * len(frames) if isinstance(port, int) else port
    compiled = native_load.compiled_loop()
    if compiled is None:
        if tls is not None:
            raise LoadFailed("loads under TLS need a C compiler")
        return plain_load.run_plain_load(
            ports,
            frames,
            in_flight=in_flight,
            requests=requests,
            error_position=error_position,
            interval_ns=interval_ns,
        )
    return native_load.run_compiled_load(
        compiled,
        ports,
        frames,
        in_flight=in_flight,
        requests=requests,
        error_position=error_position,
        discards=discards,
        interval_ns=interval_ns,
        tls=None if tls is None else LibSsl(tls),
    )


def loop_language() -> str:
    """The language of the loop (C or Python), on which the generator's own CPU time depends."""
    return "Python" if native_load.compiled_loop() is None else "C"
