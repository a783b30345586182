"""Guards a simulation against the real world: real time, randomness, threads, sockets and files raise `RealityTouched`.

There are three checks, none of them complete: stubs that replace functions of `time`, `random`, `os`, `uuid`,
`threading`; the audit hook for what those miss (`open`, sockets, processes); the project's lint for what was bound at
import. Imports and the reading of source lines for tracebacks are allowed: they give the same result in every run.
"""

from __future__ import annotations

import asyncio
import linecache
import logging
import os
import random
import sys
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Mapping
from types import FrameType, TracebackType
from typing import Any, Final

_TIME = (
    *("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns"),
    *("clock_gettime", "clock_gettime_ns", "sleep"),
)
_RANDOM = (
    *("random", "uniform", "triangular", "randint", "choice", "randrange", "sample", "shuffle", "choices", "seed"),
    *("normalvariate", "lognormvariate", "expovariate", "vonmisesvariate", "gammavariate", "gauss", "betavariate"),
    *("paretovariate", "weibullvariate", "getrandbits", "randbytes", "_urandom"),
)
_OS = (
    *("urandom", "getrandom", "open", "stat", "fsync", "fdatasync", "pread", "preadv", "pwrite", "pwritev", "writev"),
    *("rename", "replace", "unlink", "remove", "mkdir", "makedirs", "rmdir", "listdir", "scandir", "truncate"),
    *("ftruncate", "statvfs", "kill", "fork", "_exit"),
)
_AUDITED = (
    *("open", "socket.", "subprocess.", "os.listdir", "os.scandir", "os.mkdir", "os.rename", "os.remove", "os.rmdir"),
    *("os.truncate", "os.system", "os.exec", "os.fork", "os.posix_spawn", "os.kill", "shutil.", "tempfile."),
    *("mmap.", "sqlite3.", "_thread.start_new_thread", "signal."),
)
_EXCUSED_FILES = frozenset(
    {
        *("<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>"),
        *(linecache.__file__, traceback.__file__),  # CPython 3.13 parses the lines, and opens `<unknown>`.
    }
)


_LOADER_OF_PYTEST: Final = "/_pytest/assertion/rewrite.py"
"""The path of pytest's import hook, which may touch the real world: it loads the modules of a package with a plugin,
and the files beside them.
"""


def virtual_functions(wall_ns: Callable[[], int], generator: random.Random) -> dict[str, Callable[..., Any]]:
    """Make functions that replace functions of the modules `time` and `random`, by names such as `time.monotonic`. The
    clocks show virtual time, and the random functions are those of `generator`."""

    def wall_s() -> float:
        return wall_ns() / 1_000_000_000

    found: dict[str, Callable[..., Any]] = {}
    for clock in ("time", "monotonic", "perf_counter"):
        found[f"time.{clock}"] = wall_s
        found[f"time.{clock}_ns"] = wall_ns
    for name in _RANDOM:
        if hasattr(generator, name) and name != "seed":
            found[f"random.{name}"] = getattr(generator, name)
    found["uuid.uuid4"] = lambda: uuid.UUID(int=generator.getrandbits(128), version=4)
    return found


class RealityTouched(BaseException):
    """Raised if simulated code uses the real world. `except Exception` does not catch it."""


# An audit hook cannot be taken back, so there is one for the process, which asks whether a guard stands.
_standing: list[RealityGuard] = []
_hooked: list[bool] = []


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    is_memory = event == "mmap.__new__" and arguments[0] == -1  # This path is not a file.
    if _standing and event.startswith(_AUDITED) and not is_memory:
        _standing[-1].touched(f"{event}{arguments!r:.200}")


class _VirtualTime:
    """Replaces the module `time` in `logging`, so that log records have virtual timestamps."""

    def __init__(self, wall_ns: Callable[[], int]) -> None:
        self.time_ns = wall_ns

    def time(self) -> float:
        return self.time_ns() / 1_000_000_000

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


class RealityGuard:
    """A context manager that makes the use of the real world raise `RealityTouched`, in the thread that enters it.

    `report` is called with each violation before the exception is raised, because the code that caused it may catch all
    exceptions. `virtual` has functions that replace real ones, by names such as `time.monotonic`. A real function
    without a replacement raises.
    """

    def __init__(
        self,
        report: Callable[[BaseException], None],
        wall_ns: Callable[[], int],
        virtual: Mapping[str, Callable[..., Any]] | None = None,
    ) -> None:
        self._report = report
        self._virtual = virtual or {}
        self._wall_ns = wall_ns
        self._thread = 0
        self._originals: list[tuple[Any, str, Any]] = []

    def __enter__(self) -> RealityGuard:
        self._thread = threading.get_ident()
        for module, names in ((time, _TIME), (random, _RANDOM), (os, _OS), (uuid, ("uuid1", "uuid4"))):
            for name in names:
                if hasattr(module, name):
                    self._replace(module, name, self._stub(f"{module.__name__}.{name}", getattr(module, name)))
        self._replace(threading.Thread, "start", self._stub("threading.Thread.start", threading.Thread.start))
        self._replace(random.Random, "seed", self._seed(random.Random.seed))
        self._replace(asyncio, "all_tasks", self._stub("asyncio.all_tasks (of all hosts)", asyncio.all_tasks))
        self._replace(logging, "time", _VirtualTime(self._wall_ns))
        if not _hooked:
            sys.addaudithook(_audit)
            _hooked.append(True)
        _standing.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _standing.remove(self)
        while self._originals:
            owner, name, original = self._originals.pop()
            setattr(owner, name, original)

    def _replace(self, owner: Any, name: str, value: Any) -> None:
        self._originals.append((owner, name, vars(owner)[name]))
        setattr(owner, name, value)

    def _stub(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        virtual = self._virtual.get(name)

        def stub(*args: Any, **options: Any) -> Any:
            if virtual is not None and threading.get_ident() == self._thread:
                return virtual(*args, **options)
            self.touched(name)
            return original(*args, **options)

        return stub

    def _seed(self, original: Callable[..., None]) -> Callable[..., None]:
        def seed(generator: random.Random, value: Any = None, version: int = 2) -> None:
            if value is None:
                self.touched("random.Random() without a seed")
            original(generator, value, version)

        return seed

    def touched(self, what: str) -> None:
        """Report and raise `RealityTouched`, unless the call comes from another thread or from the interpreter
        itself.
        """
        if threading.get_ident() != self._thread or _is_excused(sys._getframe()):
            return
        error = RealityTouched(f"{what} was called inside the simulation")
        self._report(error)
        raise error


def _is_excused(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename in _EXCUSED_FILES or frame.f_code.co_filename.endswith(_LOADER_OF_PYTEST):
            return True
        frame = frame.f_back
    return False
