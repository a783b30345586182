"""Removes old backups: first their manifests, then the objects that no other manifest names."""

from __future__ import annotations

from typing import Final, NamedTuple

from moldau.backup.layout import backup_key
from moldau.backup.store import BackupStore, object_keys_of

RUN_AGE_MS_MAX: Final = 86_400_000
"""The maximum age (ms) of the unfinished manifest of a run that may be in progress."""
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

    No object is removed while another run may be in progress: the run may have found an object in the store, which it
    therefore does not store again, and name it only in a later manifest.
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
    runs = await store.unfinished_runs()
    if any(run.modified_ms >= now_ms - RUN_AGE_MS_MAX for run in runs):
        return RemovedBackups(dropped_ids, 0, 0)
    for run in runs:
        named |= object_keys_of(run.manifest)
    removed = [
        entry
        async for entry in store.list_objects()
        if entry.key not in named
        and (entry.key in dropped_keys or entry.modified_ms < now_ms - UNNAMED_OBJECT_AGE_MS_MIN)
    ]
    await store.delete_objects(each.key for each in removed)
    return RemovedBackups(dropped_ids, len(removed), sum(each.size for each in removed))
