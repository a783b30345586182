"""Computes what a node's start passes to the quorum: voters, settings of log and controller, the first records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from moldau.broker.config.config import Config, object_of_settings
from moldau.broker.config.sasl import token_key
from moldau.broker.metadata.metadata_log import BATCH_SIZE_MAX, LoadedMetadata, read_snapshot_file
from moldau.broker.runtime.environment import Environment
from moldau.kraft.controller.settings import ConfigRules, ControllerSettings, QuorumVersion, SecuritySettings
from moldau.kraft.features import DEFAULT_METADATA_VERSION, METADATA_VERSION, SUPPORTED_FEATURES, refusal_of_feature
from moldau.kraft.image.finalized_features import FeaturesImage
from moldau.kraft.image.metadata_image import MetadataImage
from moldau.kraft.image.replay import Replay
from moldau.kraft.quorum.quorum_history import QuorumHistory
from moldau.kraft.quorum.voter_set import Address, VoterNode, VoterSet
from moldau.kraft.raft.settings import QuorumIdentity, RaftSettings
from moldau.kraft.snapshot.names import BOOTSTRAP_CHECKPOINT
from moldau.protocol.messages.controller_registration import ControllerRegistrationRequest, Feature, Listener
from moldau.protocol.records.metadata import FeatureLevelRecord
from moldau.security.quotas.sampled_rate import QuotaWindows
from moldau.storage.checkpoints.meta_properties import MetaProperties
from moldau.storage.files.port import FileSystem
from moldau.storage.log_config import LogConfig

SECURITY_PROTOCOL_IDS: Final = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
"""The numbers of the security protocols in Kafka's protocol."""


class UnusableMetadata(ValueError):
    """The metadata directory needs something that this version of Moldau does not support; the text names it."""


class UnsupportedFeatures(UnusableMetadata):
    """The metadata finalizes features at levels that this version does not support."""

    def __init__(self, levels: Mapping[str, int]) -> None:
        """`levels`: each unsupported feature, with its finalized level."""
        refusals = (refusal_of_feature(name, level) for name, level in levels.items())
        super().__init__("; ".join(text for text in refusals if text is not None))
        self.supported = {
            name: SUPPORTED_FEATURES[name].last if name in SUPPORTED_FEATURES else 0 for name in sorted(levels)
        }
        """For each feature: the highest level that this version supports, to which the cluster has to downgrade the
        feature.
        """
        self.is_too_old = 0 < levels.get(METADATA_VERSION, 0) < SUPPORTED_FEATURES[METADATA_VERSION].first
        """Whether the finalized metadata.version is older than the first that this version supports, so that the
        cluster has to be upgraded instead.
        """


def history_of(config: Config, loaded: LoadedMetadata) -> QuorumHistory:
    """The voters that the log describes. With kraft.version 0 the log describes none, and the voters of the
    configuration are used. Raises `UnusableMetadata`.
    """
    refuse_unsupported(loaded.replay.image.features)
    static = VoterSet.from_voters(
        VoterNode(each.node_id, endpoints=((config.controller_listener_names[0], (each.host, each.port)),))
        for each in config.controller_quorum_voters
    )
    history = QuorumHistory(static, loaded.descriptions)
    if not history.voters.ids and not config.controller_quorum_bootstrap_servers:
        raise UnusableMetadata(
            "the metadata log names no voters: set controller.quorum.voters, or format with --standalone"
        )
    return history


def identity_of(config: Config, properties: MetaProperties) -> QuorumIdentity:
    """The identity of this node in the quorum: its ids, its directory id and its endpoints."""
    endpoints = {each.name: (each.host, each.port) for each in config.advertised_controller_listeners}
    return QuorumIdentity(
        node_id=config.node_id,
        cluster_id=properties.cluster_id,
        directory_id=properties.directory_id or bytes(16),
        endpoints=endpoints if config.is_controller else {},
        listener=config.controller_listener_names[0],
    )


def raft_settings(config: Config) -> RaftSettings:
    return object_of_settings(
        RaftSettings,
        config.settings,
        "controller.quorum.",
        bootstrap_servers=tuple(map(address_of, config.controller_quorum_bootstrap_servers)),
        fetch_size_max=config.integer("controller.quorum.fetch.max.bytes"),
        snapshot_fetch_size_max=config.integer("controller.quorum.fetch.snapshot.max.bytes"),
        auto_join=config.flag("controller.quorum.auto.join.enable"),
    )


def address_of(server: str) -> Address:
    """Parse `host:port`, with the host in brackets if it is an IPv6 address."""
    host, _, port = server.rpartition(":")
    return host.strip("[]"), int(port)


def refuse_unsupported(features: FeaturesImage) -> None:
    """Check the finalized features.

    Raises `UnsupportedFeatures`, which names every feature with a level that this node does not support.
    """
    levels = {name: level for name, level in features.levels.items() if refusal_of_feature(name, level) is not None}
    if levels:
        raise UnsupportedFeatures(levels)


def metadata_log_config(config: Config) -> LogConfig:
    """The settings of the metadata log. Its segments are deleted when a snapshot replaces them, never by age."""
    return LogConfig(
        segment_bytes=config.settings.integer_or_none("internal.metadata.log.segment.bytes")
        or config.integer("metadata.log.segment.bytes"),
        segment_ms=config.integer("metadata.log.segment.ms"),
        retention_ms=-1,
        retention_bytes=-1,
        max_message_bytes=BATCH_SIZE_MAX,
        is_always_flushed=True,
    )


def bootstrap_records(fs: FileSystem, config: Config) -> list[object]:
    """The first records of the metadata log, which `format` left in the bootstrap checkpoint for the first leader.

    If there is no such file, the records give a new cluster the default metadata.version.
    """
    path = f"{config.metadata_log_dir}/{BOOTSTRAP_CHECKPOINT}"
    if not fs.exists(path):
        return [FeatureLevelRecord(name="metadata.version", feature_level=DEFAULT_METADATA_VERSION)]
    records = read_snapshot_file(fs, path).records
    levels = {record.name: record.feature_level for record in records if isinstance(record, FeatureLevelRecord)}
    refuse_unsupported(FeaturesImage(levels))
    return records


def first_image(fs: FileSystem, config: Config, loaded: LoadedMetadata) -> MetadataImage:
    """The metadata with which a node starts: that of its log, whether committed or not. On a controller with an empty
    log it is made from the records that `format` left for the first leader.
    """
    image = loaded.replay.image
    if image.features.levels or not config.is_controller:
        return image
    replay = Replay()
    replay.replay(bootstrap_records(fs, config), image.provenance)
    return replay.image


def controller_registration(config: Config, incarnation_id: bytes) -> ControllerRegistrationRequest:
    """The request with which this controller registers: its listeners and the features that it supports."""
    return ControllerRegistrationRequest(
        controller_id=config.node_id,
        incarnation_id=incarnation_id,
        zk_migration_ready=False,
        listeners=[
            Listener(
                name=each.name,
                host=each.host,
                port=each.port,
                security_protocol=SECURITY_PROTOCOL_IDS[each.security_protocol],
            )
            for each in config.advertised_controller_listeners
        ],
        features=[
            Feature(name=name, min_supported_version=first, max_supported_version=last)
            for name, (first, last) in SUPPORTED_FEATURES.items()
            if last > 0
        ],
    )


def controller_settings(
    config: Config, properties: MetaProperties, environment: Environment, rules: ConfigRules, quorum: QuorumVersion
) -> ControllerSettings:
    """The settings of the controller that this node makes for each of its terms."""
    return ControllerSettings(
        cluster_id=properties.cluster_id,
        config_rules=rules,
        random=environment.random,
        new_uuid=lambda: environment.entropy(16),
        num_partitions=config.integer("num.partitions"),
        default_replication_factor=config.integer("default.replication.factor"),
        node_id=config.node_id,
        quorum=quorum,
        unclean_leader_election_interval_ms=config.integer("unclean.leader.election.interval.ms"),
        auto_leader_rebalance_enable=config.flag("auto.leader.rebalance.enable"),
        leader_imbalance_check_interval_seconds=config.integer("leader.imbalance.check.interval.seconds"),
        min_insync_replicas=config.integer("min.insync.replicas"),
        unclean_leader_election_enable=config.flag("unclean.leader.election.enable"),
        replicas_share_rack=config.flag("moldau.replicas.share.rack"),
        delete_topic_enable=config.flag("delete.topic.enable"),
        broker_session_timeout_ms=config.integer("broker.session.timeout.ms"),
        broker_silence_fence_ms=config.integer("moldau.broker.silence.fence.ms"),
        metadata_max_idle_interval_ms=config.integer("metadata.max.idle.interval.ms"),
        security=security_settings(config, environment),
        quota_windows=QuotaWindows(
            config.integer("controller.quota.window.num"), 1000 * config.integer("controller.quota.window.size.seconds")
        ),
    )


def security_settings(config: Config, environment: Environment) -> SecuritySettings:
    """The settings on which the controller's decisions about ACLs and delegation tokens depend."""
    return SecuritySettings(
        has_authorizer=bool(config.text("authorizer.class.name")),
        token_key=token_key(config),
        token_life_ms_max=config.integer("delegation.token.max.lifetime.ms"),
        token_life_ms=config.integer("delegation.token.expiry.time.ms"),
        token_check_interval_ms=config.integer("delegation.token.expiry.check.interval.ms"),
        wall_clock_ms=environment.wall_ms,
    )
