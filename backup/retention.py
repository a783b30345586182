"""Retention of backups: it removes the manifests of old backups, then the objects that no manifest names any more."""

from __future__ import annotations

from typing import Final, NamedTuple

from moldau.backup.layout import backup_key
from moldau.backup.store import BackupStore, keys_of

DAY_MS: Final = 86_400_000
"""How long (ms) an object is kept that no manifest names. A run may have written the object and not named it in its
unfinished manifest yet."""


class Dropped(NamedTuple):
    """The backups and objects that retention removed."""

    backup_ids: list[str]
    object_count: int
    size: int
    """The number of bytes of the removed objects."""


async def keep_newest(store: BackupStore, count: int, now_ms: int) -> Dropped:
    """Remove all backups but the newest `count`, at least one. Raises `RemoteStorageError`.

    The manifests are removed first: a crash leaves objects that no manifest names, which the next call removes.
    """
    known = await store.backup_ids()
    dropped_ids = known[: -max(count, 1)]
    dropped_keys: set[str] = set()
    for backup_id in dropped_ids:
        dropped_keys |= keys_of(await store.manifest(backup_id))
    await store.delete(backup_key(each) for each in dropped_ids)
    named: set[str] = set()
    for backup_id in known[-max(count, 1) :]:
        named |= keys_of(await store.manifest(backup_id))
    for run in await store.unfinished():
        named |= keys_of(run.manifest)
    removed = [
        entry
        async for entry in store.objects()
        if entry.key not in named and (entry.key in dropped_keys or entry.modified_ms < now_ms - DAY_MS)
    ]
    await store.delete(each.key for each in removed)
    return Dropped(dropped_ids, len(removed), sum(each.size for each in removed))
