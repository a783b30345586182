"""From the time that a user asks for to the backup that has it, and to the moment of a settlement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from moldau.backup.manifest import Manifest
from moldau.backup.observed import Moment

SURE_MS: Final = 60_000
"""No end that a backup asked for is older than this (ms) when it begins: every log has what was decided before."""


class BeyondBackups(Exception):
    """No backup has the time that was asked for; the message says which have what."""


def backup_of(backups: Sequence[Manifest], time_ms: int) -> Manifest:
    """The first of the backups, given the oldest first, that was taken after a time. Raises `BeyondBackups`."""
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
    """Whether the backup has all records of what was decided at the moment, in whatever order it asked for ends."""
    return moment.is_asked and moment.time_ms <= manifest.began_ms - SURE_MS
