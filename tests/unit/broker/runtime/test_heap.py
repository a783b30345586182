"""When the heap is given back to the system, and that it then is."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from moldau.broker.runtime.heap import GROWN_SIZE_MIN, QUIET_SIZE_MAX, USED_SIZE_MIN, HeapTrimmer

IDLE = 40 << 20
FREED = """
import ctypes
from moldau.broker.runtime.environment import Process

if not hasattr(ctypes.CDLL(None), "malloc_trim"):
    raise SystemExit("no glibc")
bytearray(30_000_000)  # malloc maps no blocks up to this size from then on
blocks = [bytearray(b"x") * 65_536 for _ in range(1_000)]
last = blocks[-1]  # the end of the heap
idle = Process.resident_bytes()
del blocks
freed = Process.resident_bytes()
Process.trim_heap()
print(idle, freed, Process.resident_bytes())
"""


REUSED = """
import ctypes, resource
from moldau.broker.runtime.environment import Process

if not hasattr(ctypes.CDLL(None), "mallopt"):
    raise SystemExit("no glibc")

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(100):
        bytes(1 << 20), bytearray(b"x") * (1 << 20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

by_itself = faults()
Process.keep_blocks()
faults()
print(by_itself, faults())
"""
"""Page faults of 100 pairs of blocks of 1 MiB, before and after."""


class Figures:
    """The memory of a process as a test says; giving the heap back leaves `used`."""

    def __init__(self) -> None:
        self.resident = self.used = IDLE
        self.given_back = 0
        self.is_keeping = 0

    def resident_bytes(self) -> int:
        return self.resident

    def keep_blocks(self) -> None:
        self.is_keeping += 1

    def trim_heap(self) -> None:
        self.resident = self.used
        self.given_back += 1


async def at_once(work: Callable[[], None]) -> None:
    work()


def looks(heap: HeapTrimmer) -> None:
    with pytest.raises(StopIteration):
        heap.check_memory().send(None)


def at(resident: int) -> tuple[Figures, HeapTrimmer]:
    """A process that has been idle, and has now so much memory."""
    figures = Figures()
    heap = HeapTrimmer(figures, at_once)
    looks(heap)
    looks(heap)
    figures.resident = resident
    return figures, heap


def test_blocks_are_kept_once_clients_use_the_node() -> None:
    figures, heap = at(IDLE + USED_SIZE_MIN - 1)
    looks(heap)
    assert figures.is_keeping == 0
    figures.resident += 1
    for _ in range(3):
        looks(heap)
    assert figures.is_keeping == 1


def test_what_a_peak_has_freed_is_given_back_when_the_process_is_quiet() -> None:
    figures, heap = at(IDLE + GROWN_SIZE_MIN)
    looks(heap)
    assert figures.given_back == 0, "it may still grow"
    looks(heap)
    assert (figures.given_back, figures.resident) == (1, IDLE)


def test_a_process_that_grows_on_is_left_alone() -> None:
    figures, heap = at(IDLE + GROWN_SIZE_MIN)
    for _ in range(5):
        looks(heap)
        figures.resident += QUIET_SIZE_MAX
    assert figures.given_back == 0


def test_a_little_growth_is_not_worth_a_call() -> None:
    figures, heap = at(IDLE + GROWN_SIZE_MIN - 1)
    for _ in range(5):
        looks(heap)
    assert figures.given_back == 0


def test_memory_that_is_used_is_not_asked_for_again() -> None:
    figures, heap = at(IDLE + 4 * GROWN_SIZE_MIN)
    figures.used = figures.resident
    for _ in range(5):
        looks(heap)
    assert figures.given_back == 1
    figures.resident += GROWN_SIZE_MIN
    looks(heap)
    looks(heap)
    assert (figures.given_back, figures.resident) == (2, figures.used)


def test_growth_counts_from_the_least_memory() -> None:
    figures, heap = at(IDLE - GROWN_SIZE_MIN)
    looks(heap)
    figures.resident = IDLE
    looks(heap)
    looks(heap)
    assert figures.given_back == 1


def test_freed_blocks_in_the_middle_of_the_heap_go_back() -> None:
    """65 MB in blocks that malloc keeps: before, they stayed with the process."""
    ran = subprocess.run([sys.executable, "-c", FREED], capture_output=True, text=True, timeout=60)
    if "no glibc" in ran.stderr:
        pytest.skip("only glibc gives its heap back on demand")
    idle, freed, left = map(int, ran.stdout.split())
    assert freed > idle - (10 << 20), "malloc has given it back by itself: the call is not needed any more"
    assert left < idle - (50 << 20)


def test_kept_blocks_are_not_faulted_in_again() -> None:
    done = subprocess.run([sys.executable, "-c", REUSED], capture_output=True, text=True, check=False)
    if "no glibc" in done.stderr:
        pytest.skip("this C library has no such call")
    assert done.returncode == 0, done.stderr
    by_itself, kept = map(int, done.stdout.split())
    assert kept * 10 < by_itself
