"""Counts the calls of a simulated disk. A call may be refused, take long, or be the last one before the power is cut.

`steps` counts the calls that change something, so that a test may cut the power at each of them in turn.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import NoReturn


class SimulatedCrash(BaseException):
    """Raised if the power of the host is cut. `except Exception` does not catch it; calls of the disk while it
    propagates have no effect."""


class Operation(Enum):
    READ = "read"
    WRITE = "write"
    SYNC = "sync"
    NAME = "name"


@dataclass(slots=True)
class DiskFaults:
    """The probability of each kind of fault per call, and the durations of calls. A test may change them while the disk
    runs.
    """

    read_error: float = 0.0
    write_error: float = 0.0
    sync_error: float = 0.0
    name_error: float = 0.0
    cold_read: float = 0.0  # pread_cached says None
    capacity_bytes: int = 1 << 40
    descriptors_max: int = 1 << 20  # The most files that may be open at a time.
    sync_ns_min: int = 50_000
    sync_ns_max: int = 2_000_000
    slow_factor: int = 1
    write_stall_ns: int = 0  # The additional time of every write and sync.

    def probability(self, operation: Operation) -> float:
        match operation:
            case Operation.READ:
                return self.read_error
            case Operation.WRITE:
                return self.write_error
            case Operation.SYNC:
                return self.sync_error
            case Operation.NAME:
                return self.name_error


class DiskCalls:
    """Counts every call of a disk, and decides whether it fails and how long it takes. The same seed and the same calls
    give the same faults.
    """

    def __init__(self, seed: int | str) -> None:
        self.random = Random(f"{seed}/disk/faults")
        self.faults = DiskFaults()
        self.steps = 0
        self.counts = dict.fromkeys(Operation, 0)
        self.crash_at_step: int | None = None
        self.on_power_cut: Callable[[], None] | None = None  # the host dies with its disk
        self.may_change: Callable[[], bool] = lambda: True  # False while the stack of a dead process unwinds
        self.open_count = 0
        self.used_bytes = 0
        self.cost_ns = 0  # what the calls since the last `take_cost_ns` took
        self._latency = Random(f"{seed}/disk/latency")
        self._scripted: dict[tuple[Operation, int], int] = {}
        self._broken: tuple[str, ...] = ()
        self._refused: set[str] = set()
        self._powered = True

    def fail(self, operation: Operation, call: int, error: int = errno.EIO) -> None:
        """Let the `call`-th call of an operation fail. Calls are counted from 1 since the disk was made; `counts` has
        the current numbers.
        """
        self._scripted[operation, call] = error

    def forgive(self, operation: Operation, call: int) -> None:
        """Cancel a failure that was set by `fail` and has not happened yet."""
        self._scripted.pop((operation, call), None)

    def break_directory(self, path: str) -> None:
        """Let every call below `path` fail with EIO from now on."""
        self._broken = (*self._broken, path.rstrip("/") + "/")

    def mend_directories(self) -> None:
        self._broken = ()

    def has_refused(self, path: str) -> bool:
        """Whether any call for exactly this path has failed. For checks."""
        return path in self._refused

    def power_on(self) -> None:
        self._powered = True
        self.crash_at_step = None

    def _power_cut(self) -> NoReturn:
        self._powered = False
        step = self.steps
        if self.on_power_cut is not None:
            self.on_power_cut()
        raise SimulatedCrash(f"power cut at step {step}")

    def require_power(self) -> None:
        """Raise `SimulatedCrash` if the power was cut."""
        if not self._powered:
            raise SimulatedCrash("the power is off")

    def perform(self, operation: Operation, path: str, *, may_fail: bool = True) -> None:
        """Count a call. Raises OSError if the call is to fail, and `SimulatedCrash` if the power is to be cut at it."""
        error = self.count_call(operation, path, may_fail)
        if error:
            raise OSError(error, os.strerror(error), path)

    def count_call(self, operation: Operation, path: str, may_fail: bool = True) -> int:
        """Count a call. Returns the errno with which it is to fail, or 0. Raises `SimulatedCrash` if the power is to be
        cut at it.
        """
        self.require_power()
        if operation is not Operation.READ and not self.may_change():
            raise SimulatedCrash("the process is gone")
        self.counts[operation] += 1
        if operation is not Operation.READ:
            self.steps += 1
            if self.steps == self.crash_at_step:
                self._power_cut()
        self._charge(operation)
        if not may_fail:
            return 0
        error = self._refusal(operation, path)
        if error:
            self._refused.add(path)
        return error

    def _refusal(self, operation: Operation, path: str) -> int:
        if self._broken and f"{path}/".startswith(self._broken):
            return errno.EIO
        if self._scripted and (operation, self.counts[operation]) in self._scripted:
            return self._scripted.pop((operation, self.counts[operation]))
        probability = self.faults.probability(operation)
        return errno.EIO if probability and self.random.random() < probability else 0

    def admit(self, path: str, size: int, growth: int) -> tuple[int, int]:
        """Count a write of `size` bytes that makes a file longer by `growth` bytes. Returns an errno or 0, and the
        number of bytes that the disk takes.
        """
        error = self.count_call(Operation.WRITE, path)
        taken = int(self.random.random() * size) if error else size
        room = self.faults.capacity_bytes - self.used_bytes
        if growth > room:
            error = errno.ENOSPC
            taken = min(taken, max(0, size - growth + room))
        return error, taken

    def need_descriptor(self, path: str) -> None:
        """Raise OSError (EMFILE) if as many files are open as the limit allows."""
        if self.open_count >= self.faults.descriptors_max:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)

    def is_cold(self) -> bool:
        cold = self.faults.cold_read
        return bool(cold) and self.random.random() < cold

    def _charge(self, operation: Operation) -> None:
        faults = self.faults
        if operation is Operation.SYNC:
            spread = faults.sync_ns_max - faults.sync_ns_min
            cost = (faults.sync_ns_min + int(self._latency.random() * spread)) * faults.slow_factor
            self.cost_ns += cost + faults.write_stall_ns
        elif operation is Operation.WRITE:
            self.cost_ns += faults.write_stall_ns

    def take_cost_ns(self) -> int:
        cost, self.cost_ns = self.cost_ns, 0
        return cost
