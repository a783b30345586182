"""The choice of the backup for a time that a user asks for, and of the moment to which its logs are restored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from moldau.backup.manifest import Manifest
from moldau.backup.observed import Moment

SURE_MS: Final = 60_000
"""A log's end is at most this old (ms) when a backup asks for it. So every log has what was decided longer than this
before the backup began.
"""


class BeyondBackups(Exception):
    """No backup was taken after the time that was asked for."""


def backup_of(backups: Sequence[Manifest], time_ms: int) -> Manifest:
    """Return the first backup that was begun at or after a time. `backups`: the oldest first. Raises
    `BeyondBackups`.
    """
    for manifest in backups:
        if manifest.began_ms >= time_ms:
            return manifest
    raise BeyondBackups


def moment_of(manifest: Manifest, time_ms: int | None) -> Moment:
    """The moment of a restore: a time that was asked for, or that of the backup."""
    if time_ms is None:
        return Moment(manifest.began_ms)
    return Moment(time_ms, is_asked=True, asked_ms=manifest.asked_ms)


def is_sure(manifest: Manifest, moment: Moment) -> bool:
    """Whether the backup has all records of the transactions that were decided at the moment, whatever the order in
    which it asked for the ends of logs.
    """
    return moment.is_asked and moment.time_ms <= manifest.began_ms - SURE_MS
