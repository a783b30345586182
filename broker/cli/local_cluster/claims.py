"""The checks before a local cluster writes anything: no other cluster uses its directory or its ports."""

from __future__ import annotations

import errno
import socket
from pathlib import Path
from typing import Final

from moldau.broker.cli.invocation import CommandError
from moldau.broker.cli.local_cluster.layout import Layout
from moldau.storage.files.port import FileLock, FileSystem

LOCK: Final = ".lock"


def claim_directory(files: FileSystem, layout: Layout) -> FileLock:
    """Lock the directory until this process ends: a second cluster would assign other ports to the nodes."""
    try:
        Path(layout.directory).mkdir(parents=True, exist_ok=True)
        return files.lock(f"{layout.directory}/{LOCK}")
    except BlockingIOError:
        raise CommandError(f"a cluster runs in {layout.directory} already: stop it, or give another --data") from None
    except OSError as problem:
        raise CommandError(f"{layout.directory} cannot be written: {problem.strerror}") from None


def refuse_taken_ports(layout: Layout) -> None:
    taken = [str(port) for port in layout.ports if not _is_free(layout.host, port)]
    if taken:
        which = f"port {taken[0]} is" if len(taken) == 1 else f"ports {', '.join(taken)} are"
        last = layout.ports[-1]
        raise CommandError(
            f"{which} taken on {layout.host}, and {layout.port} to {last} are needed: give another --port"
        )


def _is_free(host: str, port: int) -> bool:
    """Whether the address can be bound, as far as this can be known before the node listens. True for a malformed
    address: the node refuses it."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError:
        return True
    with socket.socket(family, kind) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # Connections of former clients do not count.
        try:
            probe.bind(address)
        except OSError as problem:
            return problem.errno != errno.EADDRINUSE
    return True
