"""A node without what Python has on Linux alone: it formats a directory, writes, compacts, stops and starts again. It
stands in for one on macOS, on which these tests do not run.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from moldau.testing.ports import free_ports
from tests.support.daily_command import DailyCommand
from tests.support.daily_stories import until

pytestmark = pytest.mark.processes
SERVE: Final = """
import fcntl, os, resource, select, signal, sys

of_linux = {
    os: (
        "copy_file_range eventfd eventfd_read eventfd_write fdatasync getrandom memfd_create pidfd_open pipe2"
        " posix_fadvise posix_fallocate sched_getaffinity sched_setaffinity splice waitid O_DIRECT O_PATH O_TMPFILE"
        " POSIX_FADV_DONTNEED RWF_DSYNC RWF_HIPRI RWF_NOWAIT RWF_SYNC"
    ),
    resource: "prlimit",
    select: "epoll EPOLLIN EPOLLOUT EPOLLET",
    signal: "pidfd_send_signal",
}
for module, names in of_linux.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
full_sync, control = 51, fcntl.fcntl
fcntl.F_FULLFSYNC = full_sync
fcntl.fcntl = lambda file, command, *rest: os.fsync(file) if command == full_sync else control(file, command, *rest)
sys.platform = "darwin"

from moldau.broker.cli.command import main

sys.exit(main(["serve", "--greeting", "json", "--until-eof", *sys.argv[1:]]))
"""


@contextmanager
def node(data: Path, port: int, log: Path) -> Iterator[dict[str, Any]]:
    """A node that serves, with its greeting. It stops cleanly at the end."""
    words = [sys.executable, "-c", SERVE, "--data", str(data), "--port", str(port)]
    words += ["--override", "log.cleaner.backoff.ms=200", "--override", "log.initial.task.delay.ms=200"]
    with (
        log.open("ab") as errors,
        subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors) as process,
    ):
        assert process.stdin is not None and process.stdout is not None
        line = process.stdout.readline()
        assert line, log.read_text()
        yield json.loads(line)
        process.stdin.close()
        assert process.wait(60) == 0, log.read_text()
    assert "Traceback" not in log.read_text()


def test_a_node_on_a_disk_writes_compacts_and_finds_its_records_again(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    run = DailyCommand(f"127.0.0.1:{port}")

    def records() -> str:
        return run.done("consume", "orders", "-e", "-f", "%k:%S\\n")

    log = tmp_path / "log"
    settings = ("flush.messages=1", "cleanup.policy=compact", "segment.bytes=1048576", "min.cleanable.dirty.ratio=0")
    compacted = "ada:4\nlarge:600000\nlarge:600000\n"
    with node(tmp_path / "data", port, log) as greeting:
        assert greeting["formatted"]
        run.done("topic", "create", "orders", *(word for each in settings for word in ("--config", each)))
        run.done("produce", "orders", "-K", ":", given="ada:rolls\nada:loaf\n")
        for value in ("x", "y"):
            run.done("produce", "orders", "-k", "large", given=value * 600_000)
        assert until(records, compacted) == compacted
    with node(tmp_path / "data", port, log) as greeting:
        assert greeting["recovered"]["was_clean"] and records() == compacted
