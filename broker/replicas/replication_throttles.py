"""The replication quotas of this broker, from its own dynamic settings and those of its topics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from moldau.broker.config.config import Config
from moldau.kraft.image.configs import ConfigResource, ConfigsImage, ResourceType
from moldau.replication.replication_quota import ReplicationQuota, rate_of, throttled_partitions

LEADER: Final = "leader.replication.throttled."
FOLLOWER: Final = "follower.replication.throttled."


class ReplicationThrottles:
    """The two quotas: for the traffic of leaders, and for that of followers."""

    def __init__(self, config: Config) -> None:
        self._broker_id = config.node_id
        count = config.integer("replication.quota.window.num")
        sample_ms = 1000 * config.integer("replication.quota.window.size.seconds")
        self.leader = ReplicationQuota(count, sample_ms)
        self.follower = ReplicationQuota(count, sample_ms)

    def follow(self, configs: ConfigsImage, changed: Iterable[ConfigResource]) -> None:
        """Apply the current settings of the resources that changed."""
        own = configs.of(ResourceType.BROKER, str(self._broker_id))
        default = configs.of(ResourceType.BROKER, "")
        for quota, prefix in ((self.leader, LEADER), (self.follower, FOLLOWER)):
            quota.rate_max = rate_of(own, default, name=f"{prefix}rate")
            for resource in changed:
                if resource.type == ResourceType.TOPIC:
                    text = configs.of(ResourceType.TOPIC, resource.name).get(f"{prefix}replicas", "")
                    quota.throttle(resource.name, throttled_partitions(text, self._broker_id))
