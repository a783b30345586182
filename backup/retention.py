"""Retention of backups: the manifests of old backups are removed, then the objects that no manifest names any more."""

from __future__ import annotations

from typing import Final, NamedTuple

from moldau.backup.layout import backup_key
from moldau.backup.store import BackupStore, keys_of

DAY_MS: Final = 86_400_000
"""An object that no manifest and no unfinished run has named may be of a run that has not noted it yet. It is kept for
this long (ms).
"""


class Dropped(NamedTuple):
    """The backups and objects that were removed."""

    backup_ids: list[str]
    object_count: int
    size: int
    """Bytes of the objects."""


async def keep_newest(store: BackupStore, count: int, now_ms: int) -> Dropped:
    """Keep the newest `count` backups, at least one. Raises `RemoteStorageError`.

    The manifests go first: a crash leaves objects that nothing names, which the next run removes.
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
