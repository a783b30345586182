"""Runs the actions of `moldau backup` and `moldau restore`: opens the store that the arguments name, and turns failures
into messages and exit statuses.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import time_ns
from typing import Final

from moldau.backup.store import BackupStore, NoSuchBackup, NotABackupStore
from moldau.backup.taking import DamagedLog
from moldau.broker.cli.daily.failures import (
    EXIT_DENIED,
    EXIT_FAILED,
    EXIT_UNKNOWN,
    EXIT_UNREACHABLE,
    Failure,
    WrongArguments,
    refused,
)
from moldau.broker.cli.daily.output import Output
from moldau.broker.cli.invocation import Invocation, text_of
from moldau.protocol.primitives import MalformedMessage
from moldau.storage.checkpoints.text_checkpoint import CorruptCheckpoint
from moldau.storage.tiered.object_options import ObjectStoreOptions
from moldau.storage.tiered.opening import RetryingStorage, open_storage
from moldau.storage.tiered.port import (
    AccessRefused,
    RemoteStorage,
    RemoteStorageError,
    StorageMissing,
    StorageUnavailable,
    WrongCluster,
)
from moldau.tables.client.cluster import BrokersUnavailable, RefusedByBroker
from moldau.tables.client.connection import Disconnected, LoginRefused
from moldau.tables.refusals import Refused

STATUSES: Final[dict[type[Exception], int]] = {
    NoSuchBackup: EXIT_UNKNOWN,
    NotABackupStore: EXIT_UNKNOWN,
    StorageMissing: EXIT_UNKNOWN,
    AccessRefused: EXIT_DENIED,
    PermissionError: EXIT_DENIED,
    StorageUnavailable: EXIT_UNREACHABLE,
    LoginRefused: EXIT_DENIED,
    Disconnected: EXIT_UNREACHABLE,
    BrokersUnavailable: EXIT_UNREACHABLE,
}
"""The exit statuses by class of exception. The first class that fits counts; other exceptions give 1."""
REMEDIES: Final[dict[type[Exception], str]] = {
    StorageMissing: ": make it first, so that a mount that is missing is not taken for an empty store",
    WrongCluster: ": give each cluster a store of its own",
}


SHOWN_EVERY_S: Final = 0.2
"""The time (s) between two updates of the progress."""


@dataclass(slots=True)
class BackupCommand:
    """One run of `moldau backup`, `moldau restore` or `moldau capture`: its arguments, its store and its output."""

    arguments: argparse.Namespace
    invocation: Invocation
    store: BackupStore
    output: Output
    _shown_s: float = -SHOWN_EVERY_S

    def now_ms(self) -> int:
        """The wall clock, in ms since 1970."""
        return time_ns() // 1_000_000

    def progress(self, text: str) -> None:
        """Show the progress of the command in one line of the terminal, at most once in `SHOWN_EVERY_S`. Nothing is
        shown if standard error is not a terminal.
        """
        now_s = asyncio.get_running_loop().time()
        if self.invocation.errors.is_terminal and now_s - self._shown_s >= SHOWN_EVERY_S:
            self._shown_s = now_s
            self.invocation.errors.show(text)

    def note(self, text: str, *styles: str) -> None:
        """Write a line to standard error."""
        self.invocation.errors.say(text, *styles)


Action = Callable[[BackupCommand], Awaitable[int]]


def run_command(arguments: argparse.Namespace, invocation: Invocation) -> int:
    """Carry out `moldau backup`: take a backup, or list or verify the backups of a store. Returns the exit status.
    Raises `CommandError`.
    """
    from moldau.broker.cli.backups.looking import list_backups, verify
    from moldau.broker.cli.backups.taking import take

    action: Action = take
    if arguments.list:
        action = list_backups
    elif arguments.verify is not None:
        action = verify
    return run_action(action, arguments, invocation, writes=action is take)


def run_action(action: Action, arguments: argparse.Namespace, invocation: Invocation, *, writes: bool = False) -> int:
    """Open the store that the arguments name, and run `action` with it. `writes`: whether the action may write to the
    store. Returns the exit status. Raises `CommandError`.
    """
    check_store(arguments.store, invocation, writes=writes)
    with failures(arguments.store):
        return asyncio.run(_run(action, arguments, invocation))


async def _run(action: Action, arguments: argparse.Namespace, invocation: Invocation) -> int:
    storage = _opened(arguments)
    uploads = storage.uploads if isinstance(storage, RetryingStorage) else None
    output = Output(invocation.out, is_json=arguments.json)
    try:
        return await action(BackupCommand(arguments, invocation, BackupStore(storage, uploads), output))
    finally:
        invocation.errors.erase()
        await storage.close()


def check_store(store: str, invocation: Invocation, *, writes: bool) -> None:
    """Check that the packages for a store are installed and, unless `writes`, that the store exists. Raises
    `CommandError`.
    """
    is_url = "://" in store
    if not (is_url or writes or Path(store).exists()):
        raise Failure(f"{store}: no such file or directory", status=EXIT_UNKNOWN)
    if not Path(store).is_file():
        invocation.require(("obstore",) if is_url else ("aiofiles",), "tiered")


def _opened(arguments: argparse.Namespace) -> RemoteStorage:
    """Open the store that the arguments name: a directory, the URL of an object store, or the file of a capture. Raises
    `RemoteStorageError`.
    """
    path = Path(arguments.store)
    if path.is_file():
        from moldau.backup.capture.packed import ZipStore

        return ZipStore.open_existing(path)
    url = arguments.store if "://" in arguments.store else str(path.absolute())
    options = ObjectStoreOptions(endpoint=arguments.endpoint, region=arguments.region)
    return open_storage(url, random.Random(), asyncio.sleep, options=options)


@contextmanager
def failures(store: str) -> Iterator[None]:
    """A context that turns the exceptions of a store, of a broker and of files into a `Failure`: one sentence and an
    exit status.
    """
    try:
        yield
    except RemoteStorageError as problem:
        raise Failure(f"{store}: {problem}{REMEDIES.get(type(problem), '')}", status=_status_of(problem)) from None
    except RefusedByBroker as problem:
        raise refused(problem.code, None, problem.what) from None
    except (Refused, CorruptCheckpoint, MalformedMessage, DamagedLog) as problem:
        raise Failure(str(problem), status=_status_of(problem)) from None
    except OSError as problem:
        if isinstance(problem, BrokenPipeError):
            raise
        raise Failure(text_of(problem), status=_status_of(problem)) from None


def _status_of(problem: Exception) -> int:
    return next((status for kind, status in STATUSES.items() if isinstance(problem, kind)), EXIT_FAILED)


def positive(name: str, value: int | None) -> int | None:
    """Check that the value of the option `name` is above 0, and return it. None, for an option that is not given, is
    returned unchanged. Raises `WrongArguments`.
    """
    if value is not None and value < 1:
        raise WrongArguments(f"{name} {value} is not a number above 0")
    return value
