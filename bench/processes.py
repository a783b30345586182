"""CPU time and memory of processes, as the kernel reports them."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class CpuTime(NamedTuple):
    """The CPU time (s) of a process, over all its threads."""

    user_s: float
    system_s: float

    def since(self, before: CpuTime) -> CpuTime:
        return CpuTime(self.user_s - before.user_s, self.system_s - before.system_s)

    @property
    def total_s(self) -> float:
        return self.user_s + self.system_s


class Memory(NamedTuple):
    """The resident memory of a process. Anonymous memory is that which the process itself has allocated, without pages
    of files.
    """

    resident_mb: float
    anonymous_mb: float


def cpu_time(pid: int) -> CpuTime:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return CpuTime(int(fields[11]) / _TICKS_PER_S, int(fields[12]) / _TICKS_PER_S)


def cpu_time_with_children(pid: int) -> float:
    """The CPU time (s), user and system, of a process and of those of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / _TICKS_PER_S


def cpu_time_of_children() -> float:
    """The CPU time (s) of the children of this process that have ended."""
    return cpu_time_with_children(os.getpid()) - cpu_time(os.getpid()).total_s


def children(pid: int) -> list[int]:
    """The ids of the child processes of a process; empty if it has ended."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += map(int, path.read_text().split())
        except (FileNotFoundError, ProcessLookupError):
            continue  # the thread has ended
    return found


def memory(pid: int) -> Memory:
    """The memory of a process. Raises `ProcessLookupError` if it has ended."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        text = ""
    sizes = {name: int(kb) * 1024 / 1e6 for name, kb in re.findall(r"(VmRSS|RssAnon):\s+(\d+) kB", text)}
    if not sizes:
        raise ProcessLookupError(f"process {pid} has ended")
    return Memory(sizes["VmRSS"], sizes["RssAnon"])


def peak_memory_mb() -> float:
    """The peak of the resident memory of this process (MB) since its program began. `ru_maxrss` is not used, because it
    includes the memory of the parent process at the time of the exec."""
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert peak is not None
    return int(peak[1]) * 1024 / 1e6
