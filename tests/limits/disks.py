"""Limits of disks: one that is full while it serves, one that refuses a write or a sync, one that is gone."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.frames import batch_of
from moldau.protocol.errors import ErrorCode
from moldau.protocol.record_batch import parse_header
from tests.limits.stage import Stage

BAD = "bad"
GOOD = "good"
TOPIC = "spread"
FILLER = "filler"
FILLER_SIZE = 3 << 20
REFUSED_CODES = (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE)

SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static int refused(int fd, const char *kind) {
    char trigger[4096], link[64], path[4096];
    const char *directory = getenv("REFUSED_DIRECTORY");
    if (!directory) return 0;
    snprintf(trigger, sizeof trigger, "%s.%s", directory, kind);
    if (access(trigger, F_OK)) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0) return 0;
    path[size] = 0;
    if (strncmp(path, directory, strlen(directory))) return 0;
    errno = EIO;
    return 1;
}
#define WRITES(name, parameters, arguments) \
    ssize_t name parameters { \
        ssize_t (*real) parameters = dlsym(RTLD_NEXT, #name); \
        return refused(fd, "write") ? -1 : real arguments; \
    }
WRITES(pwritev2, (int fd, const struct iovec *v, int n, off_t o, int f), (fd, v, n, o, f))
WRITES(pwritev64v2, (int fd, const struct iovec *v, int n, off_t o, int f), (fd, v, n, o, f))
WRITES(pwritev, (int fd, const struct iovec *v, int n, off_t o), (fd, v, n, o))
WRITES(pwritev64, (int fd, const struct iovec *v, int n, off_t o), (fd, v, n, o))
WRITES(pwrite, (int fd, const void *b, size_t n, off_t o), (fd, b, n, o))
WRITES(pwrite64, (int fd, const void *b, size_t n, off_t o), (fd, b, n, o))
int fdatasync(int fd) {
    int (*real)(int) = dlsym(RTLD_NEXT, "fdatasync");
    return refused(fd, "sync") ? -1 : real(fd);
}
"""


def shim(directory: Path) -> Path | None:
    """A library that refuses what is written, or synced, below REFUSED_DIRECTORY; None without a C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    source, library = directory / "refuse.c", directory / "refuse.so"
    source.write_text(SHIM)
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-w", "-o", library, source, "-ldl"], check=True)
    return library


def directories(directory: Path) -> str:
    """The setting of two of them; metadata lies in the good one."""
    return f"log.dirs={directory / GOOD},{directory / BAD}"


@contextmanager
def small_disk(directory: Path, size: str) -> Iterator[None]:
    """The bad directory is a disk of its own, for those who may mount."""
    path = directory / BAD
    path.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", path], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", path], check=True)


def _spread(stage: Stage, **settings: object) -> tuple[int, int]:
    """A topic in both directories: a partition in the good one, and one in the bad one."""
    stage.check(stage.create(TOPIC, 4, **settings) is ErrorCode.NONE, "no topic")
    there = [(stage.directory / BAD / f"{TOPIC}-{index}").exists() for index in range(4)]
    stage.check(any(there) and not all(there), f"the partitions are not spread: {there}")
    return there.index(False), there.index(True)


def _batch(size: int = 100) -> bytes:
    return batch_of([1000] * max(1, size // 1000), time.time_ns() // 1_000_000)


def full_disk(stage: Stage) -> None:
    """Produce is refused, reads go on, what lies elsewhere goes on, and all resumes when there is room."""
    good, bad = _spread(stage)
    (stage.directory / BAD / FILLER).write_bytes(bytes(FILLER_SIZE))
    large, taken = _batch(300_000), 0
    while (code := stage.produce(TOPIC, large, bad)) is ErrorCode.NONE:
        taken += 1
        stage.check(taken < 100, "the disk does not get full")
    stage.check(code is ErrorCode.KAFKA_STORAGE_ERROR, f"a full disk answers {code.name}")
    stage.check(stage.metric("moldau_log_directories_full") == 1, "the metric does not show it")
    stage.check(stage.metric("moldau_disk_full_refusals_total") >= 1, "the refusal is not counted")
    stage.check(stage.produce(TOPIC, large, good) is ErrorCode.NONE, "the other directory takes nothing")
    status, text = stage.http("/readyz")
    stage.check(status == 200 and BAD in text, f"/readyz answers {status} {text}")
    stage.check(_read(stage, bad, large) == taken, "what was acknowledged cannot be read while it is full")
    (stage.directory / BAD / FILLER).unlink()
    stage.eventually("it is taken again", lambda: stage.produce(TOPIC, large, bad) is ErrorCode.NONE)
    stage.eventually("nothing is full", lambda: stage.metric("moldau_log_directories_full") == 0)
    stage.check(_read(stage, bad, large) == taken + 1, "something was lost, or is there twice")
    stage.check(stage.metric("kafka_log_logmanager_offlinelogdirectorycount") == 0, "the directory went offline")


def write_error(stage: Stage) -> None:
    """An error of a write takes that directory offline and no other; a restart brings it back, nothing lost."""
    good, bad = _spread(stage)
    batch = _batch()
    for partition in (good, bad):
        stage.check(stage.produce(TOPIC, batch, partition) is ErrorCode.NONE, "not taken")
    trigger = stage.directory / f"{BAD}.write"
    trigger.touch()
    _offline(stage, good, bad, batch)
    trigger.unlink()
    stage.check(stage.produce(TOPIC, batch, bad) in REFUSED_CODES, "it comes back without a restart")
    stage.restart()
    stage.eventually("it is back", lambda: stage.produce(TOPIC, batch, bad) is ErrorCode.NONE)
    stage.check(_read(stage, bad, batch) == 2, "an acknowledged batch is lost, or a refused one is there")


def sync_error(stage: Stage) -> None:
    """So does an error of a sync: what waited for it is refused, and no sync is tried again."""
    good, bad = _spread(stage, flush_messages=1)
    batch = _batch()
    stage.check(stage.produce(TOPIC, batch, bad) is ErrorCode.NONE, "not taken")
    trigger = stage.directory / f"{BAD}.sync"
    trigger.touch()
    _offline(stage, good, bad, batch)


def _offline(stage: Stage, good: int, bad: int, batch: bytes) -> None:
    code = stage.produce(TOPIC, batch, bad)
    stage.check(code is ErrorCode.KAFKA_STORAGE_ERROR, f"a disk that refuses answers {code.name}")
    offline = "kafka_log_logmanager_offlinelogdirectorycount"
    stage.eventually("the directory is offline", lambda: stage.metric(offline) == 1)
    stage.check(stage.produce(TOPIC, batch, bad) in REFUSED_CODES, "it takes records")
    stage.check(stage.produce(TOPIC, batch, good) is ErrorCode.NONE, "the other directory takes nothing")


def removed_directory(stage: Stage) -> None:
    """One that is taken away while it serves is offline with the next file it needs; a start goes on without it."""
    good, bad = _spread(stage, segment_bytes=1 << 20)
    while (stage.directory / BAD).exists():  # The broker removes and writes files there as well.
        shutil.rmtree(stage.directory / BAD, ignore_errors=True)
    large = _batch(400_000)
    codes = [stage.produce(TOPIC, large, bad) for _ in range(4)]
    stage.check(codes[-1] in REFUSED_CODES, f"the produces answer {[code.name for code in codes]}")
    offline = "kafka_log_logmanager_offlinelogdirectorycount"
    stage.eventually("the directory is offline", lambda: stage.metric(offline) == 1)
    stage.check(stage.produce(TOPIC, large, good) is ErrorCode.NONE, "the other directory takes nothing")
    stage.restart()
    stage.check(stage.metric(offline) == 1, "the start does not say that it is gone")
    stage.eventually("the others are there", lambda: stage.produce(TOPIC, large, good) is ErrorCode.NONE)


def read_only_directory(stage: Stage) -> None:
    """One that cannot be written at a start is offline from then on."""
    good, bad = _spread(stage)
    stage.check(stage.produce(TOPIC, _batch(), good) is ErrorCode.NONE, "not taken")
    mount = ["mount", "-o", "remount,ro", str(stage.directory / BAD)]
    stage.restart(lambda: subprocess.run(mount, check=True))
    offline = "kafka_log_logmanager_offlinelogdirectorycount"
    stage.check(stage.metric(offline) == 1, "the start does not say that it cannot be written")
    stage.eventually("the others are there", lambda: stage.produce(TOPIC, _batch(), good) is ErrorCode.NONE)
    stage.check(stage.produce(TOPIC, _batch(), bad) in REFUSED_CODES, "it takes records")


def _read(stage: Stage, partition: int, batch: bytes) -> int:
    """How many batches of this size there are, read from the first to the last."""
    count = offset = 0
    records_count = parse_header(batch).last_offset_delta + 1
    while records := stage.fetch(TOPIC, offset, 1 << 24, partition):
        stage.check(len(records) % len(batch) == 0, "half a batch is read")
        count += len(records) // len(batch)
        offset = count * records_count
    return count
