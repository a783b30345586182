"""The settings of a controller, and the functions of its environment that it uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Protocol

from moldau.kraft.controller.decision import ApiError
from moldau.kraft.image.configs import ConfigResource
from moldau.protocol.late_tuple import NamedTuple
from moldau.security.quotas.sampled_rate import QuotaWindows

if TYPE_CHECKING:
    from moldau.protocol.messages.create_topics import CreatableTopicConfigs


class ConfigRules(Protocol):
    """The rules for settings of resources that the controller needs. The broker's catalogue of settings implements
    them."""

    def refusal(
        self, resource: ConfigResource, settings: Mapping[str, str], existing: Mapping[str, str]
    ) -> ApiError | None:
        """The error of a change after which the resource would have `settings` (all of them) in place of `existing`;
        None if it may be made."""

    def is_list(self, resource_type: int, name: str) -> bool:
        """Whether the setting is a list, so that APPEND and SUBTRACT are defined for it."""

    def default_of(self, resource: ConfigResource, name: str) -> str:
        """The default value of a setting for the resource; an empty text if there is none."""

    def describe_topic(self, settings: Mapping[str, str]) -> Sequence[CreatableTopicConfigs]:
        """All settings of a topic with these overrides, as the reply to CreateTopics lists them."""


class QuorumVersion(Protocol):
    """The kraft.version of the quorum, as the controller reads it."""

    @property
    def kraft_version(self) -> int: ...

    def refusal_of_version(self, version: int) -> str | None:
        """Why kraft.version cannot be changed to `version`; None if it can, or has that level already."""


class StaticQuorum:
    """A `QuorumVersion` for a quorum whose voters are fixed by the configuration: kraft.version is 0."""

    kraft_version = 0

    def refusal_of_version(self, version: int) -> str | None:
        return None if version == 0 else "the voters are static"


def no_wall_clock() -> int:
    """The wall clock of a controller without delegation tokens; such a controller never reads it."""
    return 0


class SecuritySettings(NamedTuple):
    """The settings on which the controller's decisions about ACLs and delegation tokens depend."""

    has_authorizer: bool = False
    token_key: bytes | None = None
    """`delegation.token.secret.key`, in UTF-8; None if there are no delegation tokens."""
    token_life_ms_max: int = 604_800_000
    token_life_ms: int = 86_400_000
    """Time (ms) after which a token that is not renewed expires."""
    token_check_interval_ms: int = 3_600_000
    """Time (ms) between two searches for expired tokens."""
    wall_clock_ms: Callable[[], int] = no_wall_clock

    def __repr__(self) -> str:
        return f"SecuritySettings with{'' if self.has_authorizer else 'out'} an authorizer"


class ControllerSettings(NamedTuple):
    """The settings of the controller, with the names and defaults of Kafka's configuration."""

    cluster_id: str
    config_rules: ConfigRules
    random: Random
    """The source of randomness that chooses the broker at which the placement of replicas begins."""
    new_uuid: Callable[[], bytes]
    """Generates ids of topics, ACLs and delegation tokens."""
    node_id: int = 0
    quorum: QuorumVersion = StaticQuorum()
    num_partitions: int = 1
    default_replication_factor: int = 1
    min_insync_replicas: int = 1
    unclean_leader_election_enable: bool = False
    unclean_leader_election_interval_ms: int = 300_000
    auto_leader_rebalance_enable: bool = True
    leader_imbalance_check_interval_seconds: int = 300
    delete_topic_enable: bool = True
    replicas_share_rack: bool = True
    """Whether two replicas of a partition may be in one rack if there are fewer racks than replicas."""
    broker_session_timeout_ms: int = 9_000
    broker_silence_fence_ms: int = 0
    """Time (ms) without a heartbeat after which the controller fences a broker before its session ends; 0 switches this
    off.
    """
    metadata_max_idle_interval_ms: int = 500
    """The time (ms) without an append after which the controller appends a NoOpRecord; 0 switches this off."""
    security: SecuritySettings = SecuritySettings()
    quota_windows: QuotaWindows = QuotaWindows()
    """The windows over which the quotas of controller mutations are measured."""
