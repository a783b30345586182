"""The settings of share groups that their share partitions use."""

from __future__ import annotations

import re
from typing import Final

from moldau.broker.coordinators.group_coordinator import share_settings
from moldau.broker.metadata.cluster_view import DynamicConfig, PublishedMetadata
from moldau.broker.share_partitions.dead_letter_queue import QueueSettings
from moldau.kraft.features import DEAD_LETTERS_VERSION, SHARE_VERSION
from moldau.kraft.image.configs import ResourceType
from moldau.protocol.late_tuple import NamedTuple
from moldau.replication.share.changes import ShareLimits

DURATION: Final = re.compile(
    r"by_duration:P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?",
    re.IGNORECASE,
)
GROUPS_MAX: Final = 10_000
"""The most groups whose settings are cached. Clients choose the names of groups."""


class ShareSettings(NamedTuple):
    """The settings of a share group. A setting that the group does not have is the broker's."""

    limits: ShareLimits
    reads_committed: bool
    """Whether share.isolation.level is read_committed."""
    offset_reset: str
    """share.auto.offset.reset."""
    queue: QueueSettings = QueueSettings()


class GroupSettings:
    """The settings of share groups by group id. They are cached until the metadata or the broker's configuration
    changes.
    """

    def __init__(self, published: PublishedMetadata, settings: DynamicConfig) -> None:
        self._published = published
        self._settings = settings
        self._of: dict[str, ShareSettings] = {}
        self._made_of: tuple[object, object, object] = (None, None, None)

    def settings_of(self, group_id: str) -> ShareSettings:
        image, features = self._published.image.configs, self._published.image.features
        config = self._settings.config
        if self._made_of != (image, features, config):
            self._of.clear()
            self._made_of = (image, features, config)
        found = self._of.get(group_id)
        if found is None:
            if len(self._of) >= GROUPS_MAX:
                self._of.clear()
            own = share_settings(config).of_group(image.settings_of(ResourceType.GROUP, group_id))
            found = self._of[group_id] = ShareSettings(
                ShareLimits(
                    own.delivery_count_limit,
                    own.partition_max_record_locks,
                    own.record_lock_duration_ms,
                    own.is_renew_acknowledge_enabled,
                    bool(own.dead_letter_topic) and features.levels.get(SHARE_VERSION, 0) >= DEAD_LETTERS_VERSION,
                ),
                own.is_read_committed,
                own.auto_offset_reset,
                QueueSettings(own.dead_letter_topic, own.copies_dead_letters),
            )
        return found


def duration_ms(strategy: str) -> int:
    """The duration (ms) in a share.auto.offset.reset of the form `by_duration:P...`."""
    match = DURATION.fullmatch(strategy)
    assert match is not None, "the settings of a group are valid"
    days, hours, minutes, seconds = (float(match[name] or 0) for name in ("days", "hours", "minutes", "seconds"))
    return int(((days * 24 + hours) * 60 + minutes) * 60_000 + seconds * 1_000)
