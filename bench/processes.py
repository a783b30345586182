"""What the kernel says of a process: CPU time used and memory held."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class CpuTime(NamedTuple):
    """Seconds of CPU, of all threads of a process."""

    user_s: float
    system_s: float

    def since(self, before: CpuTime) -> CpuTime:
        return CpuTime(self.user_s - before.user_s, self.system_s - before.system_s)

    @property
    def total_s(self) -> float:
        return self.user_s + self.system_s


class Memory(NamedTuple):
    """Resident memory; anonymous is what the process itself asked for, without the pages of files."""

    resident_mb: float
    anonymous_mb: float


def cpu_time(pid: int) -> CpuTime:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return CpuTime(int(fields[11]) / _TICKS_PER_S, int(fields[12]) / _TICKS_PER_S)


def cpu_time_with_children(pid: int) -> float:
    """Seconds of CPU of a process, user and system, and of the children that it has waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / _TICKS_PER_S


def cpu_time_of_children() -> float:
    """Seconds of CPU of the processes that this one has started and waited for."""
    return cpu_time_with_children(os.getpid()) - cpu_time(os.getpid()).total_s


def children(pid: int) -> list[int]:
    """The processes that any thread of a process has started. Empty if it has ended."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += map(int, path.read_text().split())
        except (FileNotFoundError, ProcessLookupError):
            continue  # the thread has ended
    return found


def memory(pid: int) -> Memory:
    """Raises `ProcessLookupError` of one that has ended."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        text = ""
    sizes = {name: int(kb) * 1024 / 1e6 for name, kb in re.findall(r"(VmRSS|RssAnon):\s+(\d+) kB", text)}
    if not sizes:
        raise ProcessLookupError(f"process {pid} has ended")
    return Memory(sizes["VmRSS"], sizes["RssAnon"])


def peak_memory_mb() -> float:
    """The most resident memory that this process had since its program began. `ru_maxrss` would not do: for a program
    that another one started it is at least what that one had when it started it."""
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert peak is not None
    return int(peak[1]) * 1024 / 1e6
