"""What a planted bug is: a replacement of text in one file, and what is run until it fails."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from tests.simulation.cluster.plan import Fault


class Hunt(Enum):
    """What is run until it fails."""

    RAFT = "raft"
    """Seeds of the pure quorum."""
    SWARM = "swarm"
    """Seeds of whole clusters."""
    CONTROLLER = "controller"
    """Seeds of the controller alone."""
    GROUPS = "groups"
    """Seeds of a coordinator of groups alone."""
    CONSUMER_GROUPS = "consumer-groups"
    """Seeds of a coordinator of consumer groups alone; likewise the next two."""
    SHARE_GROUPS = "share-groups"
    STREAMS_GROUPS = "streams-groups"
    CONVERSIONS = "group-conversions"
    """Seeds of one group whose members change between the classic and the consumer protocol."""
    SHARE_RECORDS = "share-records"
    """Seeds of one partition that a share group shares, and the share coordinator."""
    TRANSACTIONS = "transactions"
    """Seeds of a coordinator of transactions alone."""
    METADATA = "metadata"
    """Seeds of the quorum's nodes without partitions."""
    LOG_CLEANER = "log-cleaner"
    """Seeds of the log cleaner without a cluster."""
    LOG_ERASER = "log-eraser"
    """Seeds of the log eraser without a cluster."""
    REMOTE_ERASER = "remote-eraser"
    """Seeds of the eraser of one partition in remote storage, without a cluster."""
    BACKUPS = "backups"
    """Seeds of backups, restores and captures without a cluster."""
    QUOTAS = "quotas"
    """Seeds of the client quotas of one broker."""
    SESSIONS = "sessions"
    """Seeds of clients that log in, renew their sessions, and stop."""
    TABLES = "tables"
    """The unit tests of tables."""
    WAITS = "waits"
    """Seeds of consumers that wait for records."""
    TURNS = "turns"
    """Seeds of connections that ask one broker for more than it has time for."""
    REPLICAS = "replicas"
    """Seeds of the replicas of one partition alone."""
    SCENARIOS = "scenarios"
    """Scripted stories, if chance would need too long."""
    SOCKETS = "sockets"
    """Tests of replies over real sockets: the simulated network has none."""
    STORIES = "stories"
    """Files of tests, of whole clusters or nodes."""


class Mutant(NamedTuple):
    number: int
    name: str
    path: str
    old: str
    new: str
    hunt: Hunt = Hunt.SWARM
    faults: tuple[Fault, ...] = ()
    """Those that bring it out soonest; none: as the seed draws."""
    flushes: bool | None = None
    shape: tuple[tuple[str, object], ...] = ()
    """What a plan needs besides to bring it out: fields and their values."""
