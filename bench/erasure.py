"""`moldau erase` of 1,000 keys from a topic of three replicas, beside the log cleaner over the same bytes.

Three topics with the same bytes are measured one after the other:

    erased          the records of 1,000 keys are erased
    compacted       the cleaner keeps one record in ten
    compacted alike the cleaner drops as many records as were erased, so that it writes as many bytes as the erasure

A measured time ends when all three replicas have done their work. Meanwhile produce requests leave at set times, and
their p99 is compared with the p99 while nothing else happens. A measurement begins when the disk has written all
earlier data.

The time of the erasure is that of the command, minus that of the same command as a dry run, because both search the
topic. `--case` is the number of gigabytes of a topic.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka import Producer

from bench import load
from bench.compaction_latency import LatencySamples
from bench.dirty_logs import POLL_S, make_compacted
from bench.figures import OURS, Figure
from bench.frames import Frames, batch_for_frame_size, produce_error_position, produce_frame
from bench.groups import RunForm
from bench.subjects import Bench
from bench.trio import NODES, ThreeNodeCluster
from moldau.storage.checkpoints.text_checkpoint import CLEANER_OFFSET_CHECKPOINT, read_offsets
from moldau.storage.files.local_files import LocalFiles

GIGABYTES: Final = 2.0
GIGABYTES_QUICK: Final = 0.25
VALUE_SIZE: Final = 1024
ERASED_KEYS: Final = 1_000
RECORDS_OF_KEY: Final = 10
PRODUCED_TOPIC: Final = "produced"
PRODUCE_SIZE: Final = 200
PRODUCES_A_SECOND: Final = 500
IN_FLIGHT: Final = 5
IDLE_S: Final = 10.0
PIECE_S: Final = 1.0
DONE_S_MAX: Final = 3600.0
BROKER_SETTINGS: Final = ("moldau.erase.enable=true", "log.cleaner.backoff.ms=50", "log.retention.ms=-1")
SEGMENT_SIZE_MAX: Final = 128 << 20
QUIET_TIMES: Final = 3
SETTLE_S_MAX: Final = 60.0
UNWRITTEN_MB_MAX: Final = 8.0
"""The limit on dirty pages in the page cache (MB). The disk counts as idle if three samples are below it. Other
programs always have some dirty pages."""
MEMORY: Final = Path("/proc/meminfo")
SEGMENTS_MIN: Final = 16
"""The least number of segments of a topic: the cleaner leaves the last segment as it is, which must be a small part."""


class ErasureRound(NamedTuple):
    """The result of one round: durations in seconds, and p99 latencies in milliseconds."""

    erased_s: float
    cleaned_s: float
    cleaned_alike_s: float
    idle_ms: float
    erasing_ms: float
    cleaning_ms: float
    cleaning_alike_ms: float


def measure(bench: Bench, form: RunForm) -> list[Figure]:
    gigabytes = float(form.case) if form.case else GIGABYTES_QUICK if form.is_quick else GIGABYTES
    count = round(gigabytes * 1e9 / VALUE_SIZE)
    load.loop_language()
    rounds = []
    for _ in range(form.rounds):
        with ThreeNodeCluster(bench, OURS, extra=BROKER_SETTINGS) as trio:
            rounds.append(_round(trio, count))
            print(f"  {rounds[-1]}", flush=True)
    note = (
        f"{gigabytes:g} GB, values of {VALUE_SIZE:,} B, {count // RECORDS_OF_KEY:,} keys, three replicas, one machine"
    )
    rate = f"{PRODUCES_A_SECOND:,} produces of {PRODUCE_SIZE} B a second, acks=all"

    def figure(name: str, unit: str, of: Callable[[ErasureRound], float], note: str = "") -> Figure:
        return Figure(name, unit, {OURS: [of(each) for each in rounds]}, note=note)

    return [
        figure("erase 1,000 keys: time", "s", lambda each: each.erased_s, note),
        figure("the cleaner over the same bytes: time", "s", lambda each: each.cleaned_s),
        figure("erase 1,000 keys: time, times that of the cleaner", "x", lambda each: each.erased_s / each.cleaned_s),
        figure("the cleaner that drops as many records: time", "s", lambda each: each.cleaned_alike_s),
        figure(
            "erase 1,000 keys: time, times that of the cleaner that drops as many records",
            "x",
            lambda each: each.erased_s / each.cleaned_alike_s,
        ),
        figure("produce without other work: p99", "ms", lambda each: each.idle_ms, rate),
        figure("produce while records are erased: p99", "ms", lambda each: each.erasing_ms, rate),
        figure(
            "produce while records are erased: p99, times that of idle",
            "x",
            lambda each: each.erasing_ms / each.idle_ms,
        ),
        figure(
            "produce while the same bytes are cleaned: p99, times that of idle",
            "x",
            lambda each: each.cleaning_ms / each.idle_ms,
        ),
        figure(
            "produce while the cleaner drops as many records: p99, times that of idle",
            "x",
            lambda each: each.cleaning_alike_ms / each.idle_ms,
        ),
    ]


def _round(trio: ThreeNodeCluster, count: int) -> ErasureRound:
    trio.create_topic(PRODUCED_TOPIC, 1)
    with _filled(trio, "erased", count, count // RECORDS_OF_KEY):
        _settle()
        idle_ms, _ = _beside(trio, lambda: time.sleep(IDLE_S))
        _, searched_s = _beside(trio, lambda: _erase(trio))
        receipt = str(trio.directory / "receipt")
        erasing_ms, both_s = _beside(trio, lambda: _erase(trio, "--execute", "--receipt", receipt))
    with _filled(trio, "cleaned", count, count // RECORDS_OF_KEY):
        _settle()
        cleaning_ms, cleaned_s = _beside(trio, lambda: _clean(trio, "cleaned"))
    with _filled(trio, "alike", count, count - ERASED_KEYS * RECORDS_OF_KEY):
        _settle()
        alike_ms, alike_s = _beside(trio, lambda: _clean(trio, "alike"))
    return ErasureRound(both_s - searched_s, cleaned_s, alike_s, idle_ms, erasing_ms, cleaning_ms, alike_ms)


@contextmanager
def _filled(trio: ThreeNodeCluster, topic: str, count: int, keys: int) -> Iterator[None]:
    """A context with a topic of `count` records over `keys` keys in turn, which is deleted at the end. The records of
    1,000 keys have a header.
    """
    segment_size = min(SEGMENT_SIZE_MAX, count * VALUE_SIZE // SEGMENTS_MIN)
    trio.create_topic(topic, 1, config={"segment.bytes": str(segment_size), "min.cleanable.dirty.ratio": "0.01"})
    producer = Producer(
        {"bootstrap.servers": _servers(trio), "linger.ms": 20, "acks": "all", "queue.buffering.max.messages": 200_000}
    )
    filler = bytes(range(256)) * (VALUE_SIZE // 256 + 1)
    for number in range(count):
        key = number * 7_368_787 % keys
        headers: dict[str, str | bytes | None] = {"person": b"1"} if key < ERASED_KEYS else {}
        value = filler[number % 97 : number % 97 + VALUE_SIZE]
        while True:
            try:
                producer.produce(topic, value, b"key-%012d" % key, headers=headers)
                break
            except BufferError:
                producer.poll(0.1)
    assert not producer.flush(DONE_S_MAX)
    trio.await_in_sync(topic, 1)
    yield
    trio.delete_topic(topic)


def _settle() -> None:
    """Wait until the disk has written everything, including the deletions of earlier files. Prints a note if other
    programs keep the disk busy for `SETTLE_S_MAX`.
    """
    deadline, quiet = time.monotonic() + SETTLE_S_MAX, 0
    while quiet < QUIET_TIMES:
        if time.monotonic() > deadline:
            print(f"  the disk is not at rest: {_unwritten_mb():.0f} MB wait for it", flush=True)
            return
        subprocess.run(["sync"], check=True)
        time.sleep(PIECE_S)
        quiet = quiet + 1 if _unwritten_mb() < UNWRITTEN_MB_MAX else 0


def _unwritten_mb() -> float:
    """The size (MB) of the dirty page cache; 0 if the system does not report it."""
    if not MEMORY.exists():
        return 0.0
    fields = dict(line.split(":", 1) for line in MEMORY.read_text().splitlines())
    return sum(int(fields[name].split()[0]) for name in ("Dirty", "Writeback")) / 1024


def _beside(trio: ThreeNodeCluster, work: Callable[[], object]) -> tuple[float, float]:
    """Produce while `work` runs. Returns the p99 of the produces (ms) and the duration of the work (s)."""
    leader = trio.partitions(PRODUCED_TOPIC)[0].leader_id
    frame = produce_frame(
        PRODUCED_TOPIC, batch_for_frame_size(PRODUCED_TOPIC, PRODUCE_SIZE, time.time_ns() // 1_000_000)
    )
    latencies = LatencySamples()
    with ThreadPoolExecutor(1) as threads:
        working = threads.submit(_seconds_of, work)
        while not working.done():
            latencies.add(
                load.run_load(
                    trio.servers[leader].port,
                    [Frames(frame, IN_FLIGHT)],
                    in_flight=IN_FLIGHT,
                    requests=int(PRODUCES_A_SECOND * PIECE_S),
                    error_position=produce_error_position(PRODUCED_TOPIC),
                    interval_ns=round(1e9 / PRODUCES_A_SECOND),
                )
            )
        return latencies.p99_ms, working.result()


def _seconds_of(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def _erase(trio: ThreeNodeCluster, *words: str) -> None:
    command = [sys.executable, "-m", "moldau", "erase", "erased", "--header", "person=1", "-b", _servers(trio), *words]
    subprocess.run(command, check=True, capture_output=True)


def _clean(trio: ThreeNodeCluster, topic: str) -> None:
    client = trio.client()
    make_compacted(client, [topic])
    client.close()
    deadline = time.monotonic() + DONE_S_MAX
    while not all(_is_cleaned(trio, topic, node_id) for node_id in NODES):
        assert time.monotonic() < deadline, "a replica was not cleaned"
        time.sleep(POLL_S)


def _is_cleaned(trio: ThreeNodeCluster, topic: str, node_id: int) -> bool:
    """Whether the cleaner has reached the active segment."""
    data = trio.servers[node_id].data
    active = max(int(path.stem) for path in (data / f"{topic}-0").glob("*.log"))
    assert active, "the topic has one segment, and nothing to clean"
    return read_offsets(LocalFiles(), str(data), CLEANER_OFFSET_CHECKPOINT).get((topic, 0), 0) >= active


def _servers(trio: ThreeNodeCluster) -> str:
    return ",".join(f"127.0.0.1:{server.port}" for server in trio.servers.values())
