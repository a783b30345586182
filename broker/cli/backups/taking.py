"""Carries out `moldau backup STORE`: takes a backup."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from moldau.backup.retention import UNNAMED_OBJECT_AGE_MS_MIN, remove_all_but_newest
from moldau.backup.taking import BackupProgress, BackupResult, BackupShell, take_backup
from moldau.backup.throttle import CopyThrottle
from moldau.broker.cli.backups.command import BackupCommand, positive
from moldau.broker.cli.daily.failures import WrongArguments
from moldau.broker.cli.daily.output import size_text
from moldau.broker.cli.daily.settings import client_properties
from moldau.broker.reasons.words import count_with_noun, duration_text
from moldau.broker.runtime.environment import Process
from moldau.storage.tiered.opening import RetryingStorage
from moldau.tables.client.settings import Address, parse_address
from moldau.tables.refusals import Refused

if TYPE_CHECKING:
    from moldau.backup.sources.port import BackupSource

KEPT_SIZE: Final = 64 << 20
"""The bytes of freed memory that the process keeps for the next pieces of the backup, because memory that is given back
to the system after each piece costs page faults for the next one."""

THREADS_MAX: Final = 24
"""The most executor threads of the process: one for each of the four logs that are cut at the same time, and one for
each piece that waits for the disk.
"""


async def take(command: BackupCommand) -> int:
    """Take a backup, and remove older ones if `--keep` says so. Returns the exit status."""
    given = command.arguments
    keep = positive("--keep", given.keep)
    rate = positive("--max-bytes-per-second", given.max_bytes_per_second)
    loop = asyncio.get_running_loop()
    Process.keep_blocks(KEPT_SIZE)
    loop.set_default_executor(Process.new_executor(THREADS_MAX))
    source = await asyncio.to_thread(source_of, command)
    shell = BackupShell(
        command.now_ms, asyncio.to_thread, CopyThrottle(rate, loop.time, asyncio.sleep), _reporter(command, loop.time)
    )
    try:
        taken = await take_backup(command.store, source, shell)
    except asyncio.CancelledError:
        command.note("stopped: no backup was made, and the next one goes on from here", "yellow")
        raise
    if isinstance(command.store.storage, RetryingStorage):
        await command.store.storage.remove_uploads(command.now_ms() - UNNAMED_OBJECT_AGE_MS_MIN)
    _show(command, taken)
    if keep is not None:
        dropped = await remove_all_but_newest(command.store, keep, command.now_ms())
        command.output.object({"dropped": dropped.backup_ids, "freed_bytes": dropped.size})
        if dropped.backup_ids:
            command.output.say(
                f"{count_with_noun(len(dropped.backup_ids), 'older backup')} removed, {size_text(dropped.size)}"
            )
    return 0


def source_of(command: BackupCommand) -> BackupSource:
    """The source of a backup that the arguments name: log directories, or a running cluster. Raises `CommandError`."""
    given = command.arguments
    if given.path is None:
        return _cluster(command)
    if given.bootstrap_server is not None or given.bootstrap_controller is not None:
        raise WrongArguments("--path reads directories and asks no broker: leave out --bootstrap-server")
    from moldau.backup.sources.directories import DirectorySource
    from moldau.storage.files.local_files import LocalFiles

    paths = [each.rstrip("/") or "/" for each in given.path.split(",") if each]
    return DirectorySource(LocalFiles(), paths, command.now_ms)


def _cluster(command: BackupCommand) -> BackupSource:
    """A running cluster as the source of a backup. Raises `Failure`, with the reason, if the cluster cannot be
    reached.
    """
    from moldau.backup.sources.cluster import ClusterSource
    from moldau.broker.cli.daily.client import Client

    settings = client_properties(command.arguments, command.invocation)
    with Client(settings) as client:
        client.retry("the cluster", lambda: client.topics([]))
    controllers = [address(each) for each in (command.arguments.bootstrap_controller or "").split(",") if each]
    return ClusterSource(settings, controllers, command.now_ms)


def address(text: str) -> Address:
    """Parse an address in `--bootstrap-controller`, of the form host:port. Raises `WrongArguments`."""
    try:
        return parse_address(text.strip())
    except Refused:
        raise WrongArguments(f"--bootstrap-controller {text} is not of the form host:port") from None


def _reporter(command: BackupCommand, now_s: Callable[[], float]) -> Callable[[BackupProgress], None]:
    began_s = now_s()

    def report(progress: BackupProgress) -> None:
        rate = size_text(round(progress.copied_size / max(now_s() - began_s, 1)))
        command.progress(
            f"{progress.logs_done} of {count_with_noun(progress.log_count, 'partition')};"
            f" {size_text(progress.copied_size)} copied, {rate}/s"
        )

    return report


def _show(command: BackupCommand, taken: BackupResult) -> None:
    manifest, progress = taken.manifest, taken.progress
    command.output.object(
        {
            "backup": manifest.backup_id,
            "cluster_id": manifest.cluster_id,
            "began_ms": manifest.began_ms,
            "asked_ms": manifest.ends_known_ms,
            "ended_ms": manifest.ended_ms,
            "topics": len(manifest.topics),
            "partitions": progress.log_count,
            "copied_bytes": progress.copied_size,
            "kept_bytes": progress.kept_size,
            "pieces": taken.piece_count,
            "read_from": {str(key): place for key, place in taken.places.items()},
        }
    )
    command.output.say(
        f"backup {manifest.backup_id}: {count_with_noun(len(manifest.topics), 'topic')},"
        f" {count_with_noun(progress.log_count, 'partition')}; {size_text(progress.copied_size)} copied,"
        f" {size_text(progress.kept_size)} in earlier backups;"
        f" {duration_text(manifest.ended_ms - manifest.began_ms)}"
    )
