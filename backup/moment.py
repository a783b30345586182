"""Chooses the backup to restore for a requested time, and the time to which the logs are restored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from moldau.backup.manifest import BackupManifest
from moldau.backup.observed import RestoreMoment

LOG_END_AGE_MS_MAX: Final = 60_000
"""The maximum age (ms) of a log end that a backup reads. Every log therefore has all transactions that were decided
more than this time before the backup began.
"""


class NoBackupForTime(Exception):
    """Raised if no backup began at or after the requested time."""


def backup_for_time(backups: Sequence[BackupManifest], time_ms: int) -> BackupManifest:
    """Return the first backup that began at or after `time_ms`. `backups`: their manifests, the oldest first. Raises
    `NoBackupForTime`."""
    for manifest in backups:
        if manifest.began_ms >= time_ms:
            return manifest
    raise NoBackupForTime


def restore_moment(manifest: BackupManifest, time_ms: int | None) -> RestoreMoment:
    """Return the moment to which the logs are restored: the requested time `time_ms`, or, if it is None, the start of
    the backup.
    """
    if time_ms is None:
        return RestoreMoment(manifest.began_ms)
    return RestoreMoment(time_ms, is_requested_time=True, ends_known_ms=manifest.ends_known_ms)


def has_all_decided_transactions(manifest: BackupManifest, moment: RestoreMoment) -> bool:
    """Whether the backup is known to have all records of every transaction that was decided before the restore moment.

    This is known if a requested time is so long before the backup that all logs were read after these records were
    written. False does not mean that records are missing.
    """
    return moment.is_requested_time and moment.time_ms <= manifest.began_ms - LOG_END_AGE_MS_MAX
