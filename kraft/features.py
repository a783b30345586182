"""The features of a cluster: the levels that this node supports, and the records that a metadata version allows.

A FeatureLevelRecord finalizes a level; for kraft.version a control record does. Record versions follow the finalized
metadata.version, so that every node of the cluster can read what the controller writes.
"""

from __future__ import annotations

from typing import Final

from moldau.protocol.late_tuple import NamedTuple
from moldau.protocol.records.metadata import BrokerRegistrationChangeRecord, RegisterBrokerRecord
from moldau.protocol.schema import spec_of

METADATA_VERSION: Final = "metadata.version"
KRAFT_VERSION: Final = "kraft.version"
TRANSACTION_VERSION: Final = "transaction.version"
GROUP_VERSION: Final = "group.version"
SHARE_VERSION: Final = "share.version"
ELIGIBLE_LEADER_REPLICAS: Final = "eligible.leader.replicas.version"


class SupportedRange(NamedTuple):
    """The range of levels of a feature that a node supports; both ends inclusive."""

    first: int
    last: int


# DIVERGES: Apache Kafka supports metadata.version from 7 on, and levels above 0 of the other features. Here a level is
# supported only if this version implements what the level means.
SUPPORTED_FEATURES: Final[dict[str, SupportedRange]] = {
    METADATA_VERSION: SupportedRange(25, 33),
    KRAFT_VERSION: SupportedRange(0, 1),
    TRANSACTION_VERSION: SupportedRange(0, 2),
    GROUP_VERSION: SupportedRange(0, 1),
    SHARE_VERSION: SupportedRange(0, 2),
    "streams.version": SupportedRange(0, 1),
    ELIGIBLE_LEADER_REPLICAS: SupportedRange(0, 1),
}
"""The levels that this node supports, by feature. Level 0 means that the feature is off."""

METADATA_VERSION_NAMES: Final = {
    25: "4.0-IV3",
    26: "4.1-IV0",
    27: "4.1-IV1",
    28: "4.2-IV0",
    29: "4.2-IV1",
    30: "4.3-IV0",
    31: "4.4-IV0",
    32: "4.4-IV1",
    33: "4.4-IV2",
}
LATEST_METADATA_VERSION: Final = SUPPORTED_FEATURES[METADATA_VERSION].last
DEFAULT_METADATA_VERSION: Final = 30
"""The metadata version of a new cluster. It is not the latest version, because the tools that support later versions
are not released yet."""


class DefaultLevel(NamedTuple):
    """The level of a feature in a new cluster, from a metadata version on."""

    metadata_version: int
    """The lowest metadata version at which a new cluster begins with `level`."""
    level: int


DEFAULT_LEVELS: Final[dict[str, tuple[DefaultLevel, ...]]] = {
    TRANSACTION_VERSION: (DefaultLevel(25, 2),),
    GROUP_VERSION: (DefaultLevel(25, 1),),
    ELIGIBLE_LEADER_REPLICAS: (DefaultLevel(26, 1),),
    SHARE_VERSION: (DefaultLevel(28, 1), DefaultLevel(31, 2)),
    "streams.version": (DefaultLevel(29, 1),),
}
"""The levels with which a new cluster begins, by feature, in the order of metadata versions. They are those of Apache
Kafka 4.4.0 (`kafka-storage version-mapping`). All other features are off in a new cluster.
"""
DEAD_LETTERS_VERSION: Final = 2
"""The level of share.version from which on share groups have dead-letter queues."""
CORDONED_LOG_DIRS_VERSION: Final = 30
"""From this metadata version on, registrations name the cordoned log directories, which take no new replicas."""
NETWORK_ACLS_VERSION: Final = 32
"""From this metadata version on, the host of an ACL may be a network in CIDR notation."""
CONTROLLER_UNREGISTRATION_VERSION: Final = 33
"""From this metadata version on, the log may have an UnregisterControllerRecord."""


def refusal_of_feature(name: str, level: int) -> str | None:
    """Why this node cannot run in a cluster in which `name` is finalized at `level`; None if it can."""
    if level == 0 and name != METADATA_VERSION:
        return None
    supported = SUPPORTED_FEATURES.get(name)
    if supported is None:
        return f"{name} is finalized at level {level}, and this version does not know that feature"
    if not supported.first <= level <= supported.last:
        return f"{name} is finalized at level {level}, and this version supports {supported.first} to {supported.last}"
    return None


def record_version(record: object, metadata_version: int) -> int:
    """The schema version in which Apache Kafka's controller writes `record` at a metadata version."""
    match record:
        case RegisterBrokerRecord():
            return 4 if metadata_version >= CORDONED_LOG_DIRS_VERSION else 3
        case BrokerRegistrationChangeRecord():
            return _change_version(record)
    return spec_of(type(record)).versions.last


def _change_version(record: BrokerRegistrationChangeRecord) -> int:
    """The lowest schema version that has all fields that the record sets."""
    if record.cordoned_log_dirs is not None:
        return 3
    if record.log_dirs:
        return 2
    return 1 if record.in_controlled_shutdown else 0
