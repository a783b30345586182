"""Makes the parts that exist once the metadata log is open: the Raft machine, and the parts that carry out its
effects.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial

from moldau.broker.config.catalogue_rules import CatalogueRules, SettingsInForce
from moldau.broker.config.config import Config
from moldau.broker.metadata.controller_channel import PURPOSE
from moldau.broker.metadata.metadata_log import DiskFull, LoadedMetadata, MetadataLog
from moldau.broker.metadata.publisher import CommittedMetadata, MetadataPublisher
from moldau.broker.metadata.quorum_start import (
    bootstrap_records,
    controller_registration,
    controller_settings,
    history_of,
    identity_of,
    raft_settings,
)
from moldau.broker.metadata.raft.controller_terms import ControllerTerms, FormerLeader
from moldau.broker.metadata.raft.log_writer import MetadataLogWriter
from moldau.broker.metadata.raft.metadata_snapshots import MetadataSnapshots
from moldau.broker.metadata.raft.quorum_peers import Address, ClusterCheck, QuorumPeers
from moldau.broker.metadata.raft.raft_driver import CatchUpWait, EventFeed, RaftDriver
from moldau.broker.metadata.snapshot_files import MetadataSnapshotFiles, SnapshotPolicy
from moldau.broker.network.peer_channel import PeerChannels
from moldau.broker.runtime.environment import Environment
from moldau.broker.runtime.flusher import Flusher
from moldau.broker.runtime.tasks import Tasks
from moldau.kraft.controller.nodes.controller_registration import registration_record
from moldau.kraft.quorum.quorum_history import QuorumHistory
from moldau.kraft.raft.raft import Raft
from moldau.protocol.late_dataclass import dataclass
from moldau.storage.checkpoints.meta_properties import MetaProperties
from moldau.storage.log.log import Log


@dataclass(frozen=True, slots=True)
class QuorumDependencies:
    """The parts of the quorum that exist before the log is opened."""

    environment: Environment
    config: Config
    properties: MetaProperties
    """The meta.properties of the metadata directory."""
    settings: SettingsInForce
    """The settings in force, with which the controller checks new settings."""
    channels: PeerChannels
    tasks: Tasks
    flusher: Flusher
    policy: SnapshotPolicy
    publisher: MetadataPublisher
    incarnation_id: bytes
    halt: Callable[[str], None]
    """Ends the node, with a reason: its disk cannot be trusted any more."""
    disk_is_full: Callable[[OSError], None]


@dataclass(frozen=True, slots=True)
class OpenedQuorum:
    """The parts of a quorum whose log is open."""

    log: MetadataLog
    files: MetadataSnapshotFiles
    history: QuorumHistory
    raft: Raft
    writer: MetadataLogWriter
    snapshots: MetadataSnapshots
    terms: ControllerTerms
    former_leader: FormerLeader
    catch_up: CatchUpWait
    driver: RaftDriver


def opened_quorum(around: QuorumDependencies, loaded: LoadedMetadata) -> OpenedQuorum:
    """Make the parts of the quorum, each after those that it uses. Raises `UnusableMetadata`.

    The parts report events to the event feed, to which the driver subscribes.
    """
    environment, config, publisher, tasks = around.environment, around.config, around.publisher, around.tasks
    loop, metadata_log, policy, halt = around.channels.loop, loaded.log, around.policy, around.halt

    event_feed = EventFeed()
    feed = event_feed.feed
    catch_up = CatchUpWait(loop)
    cluster_check = ClusterCheck(around.properties.cluster_id, other_controllers(config))

    def cannot_lead(error: DiskFull) -> None:
        """End the node, because its disk has no room for what a leader of the quorum has to write.

        A node that is still starting ends with this error. Otherwise it halts, so that another node is elected.
        """
        if catch_up.is_over:
            environment.halt(str(error))
        else:
            catch_up.fail(full_disk(error))

    def answered(address: Address, response: object) -> None:
        refusal = cluster_check.count_response(address, response)
        if refusal is not None and not catch_up.is_over:
            catch_up.fail(refusal)

    files = MetadataSnapshotFiles(environment.fs, metadata_log.directory)
    committed = CommittedMetadata(publisher, metadata_log, loaded.replay)
    history = history_of(config, loaded)
    identity = identity_of(config, around.properties)
    raft = Raft(identity, raft_settings(config), metadata_log, history, loaded.election, environment.random)
    former_leader = FormerLeader(environment.monotonic_ms)
    writer = MetadataLogWriter(
        environment, loop, raft, history, metadata_log, committed, around.flusher, policy, feed, halt, cannot_lead
    )
    report_failures(metadata_log.log, writer, around)
    snapshots = MetadataSnapshots(
        environment, tasks, metadata_log, files, history, policy, publisher, committed, feed, writer.flush, halt
    )
    terms = ControllerTerms(
        environment,
        tasks,
        raft,
        controller_settings(config, around.properties, environment, CatalogueRules(around.settings), raft),
        registration_record(controller_registration(config, around.incarnation_id)),
        partial(bootstrap_records, environment.fs, config),
        committed,
        publisher,
        writer,
        former_leader,
        feed,
        partial(around.channels.close, PURPOSE),
        cannot_lead,
    )
    peers = QuorumPeers(around.channels, former_leader, terms.note_disconnected, feed, answered)
    driver = RaftDriver(
        environment, loop, tasks, raft, metadata_log, committed, writer, snapshots, terms, peers, catch_up, event_feed
    )
    return OpenedQuorum(metadata_log, files, history, raft, writer, snapshots, terms, former_leader, catch_up, driver)


def report_failures(disk_log: Log, writer: MetadataLogWriter, around: QuorumDependencies) -> None:
    """Let the metadata log report failures, damage and a full disk, whichever reader or writer finds them, to the
    writer and the node.
    """
    disk_log.on_failure = writer.on_disk_failed
    disk_log.on_damage = writer.on_damage
    disk_log.on_shortage = around.disk_is_full


def other_controllers(config: Config) -> list[str]:
    """The configured addresses (`host:port`) of the quorum's other controllers."""
    voters = [f"{each.host}:{each.port}" for each in config.controller_quorum_voters if each.node_id != config.node_id]
    own = {f"{each.host}:{each.port}" for each in config.advertised_controller_listeners}
    return voters or [each for each in config.controller_quorum_bootstrap_servers if each not in own]


def full_disk(error: DiskFull) -> OSError:
    """The error with which a start ends if the disk has no room for the first batch of this node's term."""
    return OSError(errno.ENOSPC, str(error))
