"""Removes old backups: first their manifests, then the objects that no other manifest names."""

from __future__ import annotations

from typing import Final, NamedTuple

from moldau.backup.layout import backup_key
from moldau.backup.store import BackupStore, object_keys_of

UNNAMED_OBJECT_AGE_MS_MIN: Final = 86_400_000
"""The minimum age (ms) at which an object that no manifest names is removed. A younger object may belong to a run that
has not written its next unfinished manifest yet.
"""


class RemovedBackups(NamedTuple):
    """The backups and objects that were removed."""

    backup_ids: list[str]
    object_count: int
    size: int
    """The number of bytes of the removed objects."""


async def remove_all_but_newest(store: BackupStore, count: int, now_ms: int) -> RemovedBackups:
    """Remove all backups except the newest `count`. At least one backup is kept. Raises `RemoteStorageError`.

    The manifests are removed before the objects. If the process crashes in between, the next call removes the objects.
    """
    known = await store.backup_ids()
    dropped_ids = known[: -max(count, 1)]
    dropped_keys: set[str] = set()
    for backup_id in dropped_ids:
        dropped_keys |= object_keys_of(await store.read_manifest(backup_id))
    await store.delete_objects(backup_key(each) for each in dropped_ids)
    named: set[str] = set()
    for backup_id in known[-max(count, 1) :]:
        named |= object_keys_of(await store.read_manifest(backup_id))
    for run in await store.unfinished_runs():
        named |= object_keys_of(run.manifest)
    removed = [
        entry
        async for entry in store.list_objects()
        if entry.key not in named
        and (entry.key in dropped_keys or entry.modified_ms < now_ms - UNNAMED_OBJECT_AGE_MS_MIN)
    ]
    await store.delete_objects(each.key for each in removed)
    return RemovedBackups(dropped_ids, len(removed), sum(each.size for each in removed))
