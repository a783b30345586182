"""Carries out `moldau backup STORE --list` and `--verify`."""

from __future__ import annotations

from typing import Final

from moldau.backup.manifest import BackupManifest
from moldau.backup.store import NoSuchBackup
from moldau.backup.verification import verify_backup
from moldau.broker.cli.backups.command import BackupCommand
from moldau.broker.cli.daily.failures import EXIT_FAILED
from moldau.broker.cli.daily.output import size_text, time_text
from moldau.broker.reasons.words import count_with_noun

COLUMNS: Final = ("backup", "time", "topics", "partitions", "total_bytes", "new_bytes")
LATEST: Final = "latest"


async def list_backups(command: BackupCommand) -> int:
    """Print the backups in the store, the oldest first. Returns the exit status."""
    store = command.store
    cluster_id = await store.read_cluster_id()
    rows, before = [], set[tuple[object, ...]]()
    for backup_id in await store.backup_ids():
        manifest = await store.read_manifest(backup_id)
        pieces = {(*key[1:], piece): piece.size for key, each in manifest.partitions() for piece in each.pieces}
        rows.append(
            {
                "backup": backup_id,
                "time": time_text(manifest.ends_known_ms),
                "cluster_id": cluster_id,
                "topics": len(manifest.topics),
                "partitions": sum(len(topic.partitions) for topic in manifest.topics),
                "total_bytes": manifest.size,
                "new_bytes": sum(size for piece, size in pieces.items() if piece not in before),
            }
        )
        before = set(pieces)
    command.output.rows(rows, COLUMNS, empty="there are no backups here yet")
    return 0


async def verify(command: BackupCommand) -> int:
    """Read a whole backup, and check it. Returns the exit status: 1 if a part of it is damaged."""
    await command.store.read_cluster_id()
    manifest = await _chosen(command)
    found = await verify_backup(
        command.store.storage,
        manifest,
        lambda size, total: command.progress(f"{size_text(size)} of {size_text(total)} verified"),
    )
    for problem in found.problems:
        command.output.object({"backup": manifest.backup_id, "problem": problem})
        command.output.say(problem, "red")
    command.output.object(
        {
            "backup": manifest.backup_id,
            "objects": found.object_count,
            "verified_bytes": found.size,
            "damaged": len(found.problems),
        }
    )
    outcome = f"{len(found.problems)} damaged or missing" if found.problems else "all as they were written"
    command.output.say(
        f"backup {manifest.backup_id}: {count_with_noun(found.object_count, 'object')}, "
        f"{size_text(found.size)}: {outcome}"
    )
    return EXIT_FAILED if found.problems else 0


async def _chosen(command: BackupCommand) -> BackupManifest:
    if command.arguments.verify != LATEST:
        return await command.store.read_manifest(command.arguments.verify)
    newest = await command.store.read_latest_manifest()
    if newest is None:
        raise NoSuchBackup("there are no backups here yet")
    return newest
