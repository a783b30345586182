"""The choice of the backup to restore for a time that a user asks for, and of the time to which the restore takes the
logs back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from moldau.backup.manifest import Manifest
from moldau.backup.observed import Moment

SURE_MS: Final = 60_000
"""The age limit (ms) of the log ends in a backup: when a backup asks for the end of a log, that end is at most this
old. So every log has what was decided longer than this before the backup began."""


class BeyondBackups(Exception):
    """No backup began at or after the time that the user asked for."""


def backup_of(backups: Sequence[Manifest], time_ms: int) -> Manifest:
    """Return the first backup that began at or after `time_ms`. `backups`: their manifests, the oldest first. Raises
    `BeyondBackups`."""
    for manifest in backups:
        if manifest.began_ms >= time_ms:
            return manifest
    raise BeyondBackups


def moment_of(manifest: Manifest, time_ms: int | None) -> Moment:
    """The moment to which a restore takes the logs back: the time that the user asked for, or the begin of the backup
    if `time_ms` is None."""
    if time_ms is None:
        return Moment(manifest.began_ms)
    return Moment(time_ms, is_asked=True, asked_ms=manifest.asked_ms)


def is_sure(manifest: Manifest, moment: Moment) -> bool:
    """Whether the backup has all records of the transactions that were decided at the restored moment, whatever the
    order in which the backup asked for the ends of logs."""
    return moment.is_asked and moment.time_ms <= manifest.began_ms - SURE_MS
