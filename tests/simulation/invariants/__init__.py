"""What must hold at every moment of a simulated cluster: one invariant a file, all of them in `ALL`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from tests.simulation.invariants.aborted_transactions import AbortedTransactions
from tests.simulation.invariants.as_assigned import AsAssigned
from tests.simulation.invariants.commits_answered import CommitsAnswered
from tests.simulation.invariants.committed_prefix import CommittedPrefix
from tests.simulation.invariants.compacted_tables import CompactedTables
from tests.simulation.invariants.confirmed_set import ConfirmedSet
from tests.simulation.invariants.controller_state import ControllerState
from tests.simulation.invariants.dead_are_fenced import DeadAreFenced
from tests.simulation.invariants.decided_by_acls import DecidedByAcls
from tests.simulation.invariants.decided_first import DecidedFirst
from tests.simulation.invariants.epochs_of_log import EpochsOfLog
from tests.simulation.invariants.epochs_rise import EpochsRise
from tests.simulation.invariants.equal_images import EqualImages
from tests.simulation.invariants.high_watermark_bound import HighWatermarkBound
from tests.simulation.invariants.high_watermark_rises import HighWatermarkRises
from tests.simulation.invariants.in_sync_complete import InSyncComplete
from tests.simulation.invariants.metadata_epochs import MetadataEpochs
from tests.simulation.invariants.metadata_logs import MetadataLogs
from tests.simulation.invariants.observation import Observation
from tests.simulation.invariants.one_controller import OneController
from tests.simulation.invariants.one_coordinator import OneCoordinator
from tests.simulation.invariants.one_fetcher import OneFetcher
from tests.simulation.invariants.one_leader import OneLeader
from tests.simulation.invariants.producer_sequences import ProducerSequences
from tests.simulation.invariants.producer_state import ProducerState
from tests.simulation.invariants.quorum_state import QuorumState
from tests.simulation.invariants.registered_first import RegisteredFirst
from tests.simulation.invariants.roles_follow_metadata import RolesFollowMetadata
from tests.simulation.invariants.sound_image import SoundImage
from tests.simulation.invariants.sound_log import SoundLog
from tests.simulation.invariants.stable_offset import StableOffset
from tests.simulation.invariants.start_bound import StartBound
from tests.simulation.invariants.true_snapshots import TrueSnapshots


class Invariant(Protocol):
    """Keeps what it must remember from one moment to the next."""

    def check(self, seen: Observation) -> None:
        """Raises `Violation`."""


ALL: Final[tuple[Callable[[], Invariant], ...]] = (
    AbortedTransactions,
    AsAssigned,
    CommittedPrefix,
    CommitsAnswered,
    CompactedTables,
    ConfirmedSet,
    ControllerState,
    EpochsOfLog,
    DeadAreFenced,
    DecidedByAcls,
    DecidedFirst,
    EpochsRise,
    EqualImages,
    HighWatermarkBound,
    HighWatermarkRises,
    InSyncComplete,
    MetadataEpochs,
    MetadataLogs,
    OneController,
    OneCoordinator,
    OneFetcher,
    OneLeader,
    ProducerSequences,
    ProducerState,
    QuorumState,
    RegisteredFirst,
    RolesFollowMetadata,
    SoundImage,
    SoundLog,
    StableOffset,
    StartBound,
    TrueSnapshots,
)
