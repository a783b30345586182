"""The node's part in the metadata quorum: drives Raft and the controller, and publishes what is committed."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Iterator, Sequence

from broker.background import Tasks
from broker.config.catalogue_rules import CatalogueRules, SettingsInForce
from broker.config.config import Config
from broker.environment import Environment
from broker.flusher import Flusher
from broker.metadata_log import Loaded, MetadataLog, NoRoom, save_election, unlink_all
from broker.metadata_publisher import Listener, MetadataPublisher, Reply
from broker.metadata_snapshots import SnapshotPolicy
from broker.quorum_start import (
    bootstrap_records,
    controller_registration,
    history_of,
    identity_of,
    metadata_log_config,
    quorum_of,
)
from kraft.controller.controller import Controller
from kraft.controller.decision import Decision
from kraft.controller.settings import ControllerSettings
from kraft.image.metadata_image import EMPTY_IMAGE, MetadataDelta, MetadataImage, Provenance
from kraft.image.replay import Replay
from kraft.raft.election import Election, encode_election
from kraft.raft.events import (
    Append,
    Appended,
    Commit,
    Effect,
    ElectionSaved,
    Event,
    Flushed,
    Lead,
    SaveElection,
    Started,
)
from kraft.raft.quorum import Quorum as QuorumFacts
from kraft.raft.raft import Raft
from kraft.raft.settings import RaftSettings
from storage.files import FileLock
from storage.log_directory import LOCK
from storage.meta_properties import MetaProperties

log = logging.getLogger("moldau.quorum")

REFUSED_RETRY_MS = 1000
BATCH_RECORDS_MAX = 10_000
"""Of a decision that need not be atomic."""


def batches_of(decision: Decision) -> Iterator[Sequence[object]]:
    """The records of a decision as they go into the log."""
    size = max(1, len(decision.records)) if decision.is_atomic else BATCH_RECORDS_MAX
    for start in range(0, len(decision.records), size):
        yield decision.records[start : start + size]


class Quorum:
    """`start` returns once this node leads and everything that its log holds is committed.

    What readers see is `image`; it never runs ahead of the high watermark. Listeners are called on the loop, in the
    order of the log, before the replies that wait for the same records.
    """

    def __init__(
        self, environment: Environment, config: Config, properties: MetaProperties, settings: SettingsInForce
    ) -> None:
        """`properties`: of the metadata directory. `settings`: those in force, for the controller's checks."""
        self._environment = environment
        self._config = config
        self._properties = properties
        self._settings = settings
        self._tasks = Tasks(environment.halt)
        self._flusher = Flusher(environment, self._tasks.spawn)
        self._snapshots = SnapshotPolicy(config, environment.monotonic_ms())
        self._publisher = MetadataPublisher()
        self._timer: asyncio.TimerHandle | None = None
        self._lock: FileLock | None = None
        """Of a metadata directory that is no log directory; the others lock themselves."""
        self._ready: asyncio.Future[None] | None = None
        self._is_stopping = False
        self._is_refused = False
        """The disk had no room for what time asked for: it is asked again after a while."""
        self.on_shortage: Callable[[OSError], None] = lambda error: None
        """Told when the disk of the metadata log has no room."""
        self._bootstrap: list[object] = []
        """The first records of a log that has none."""
        self._controller: Controller | None = None
        self._raft: Raft
        self._facts: QuorumFacts
        self._log: MetadataLog
        self._loaded_replay: Replay

    # What the broker asks

    @property
    def image(self) -> MetadataImage:
        """The committed metadata."""
        return self._publisher.image

    @property
    def high_watermark(self) -> int:
        return self._publisher.high_watermark

    @property
    def leader_id(self) -> int:
        return self._raft.leader_id

    @property
    def leader_epoch(self) -> int:
        return self._raft.epoch

    @property
    def log_end_offset(self) -> int:
        return self._log.log.end_offset

    @property
    def kraft_version(self) -> int:
        return self._facts.kraft_version

    @property
    def flusher(self) -> Flusher:
        """What makes the metadata log durable."""
        return self._flusher

    @property
    def snapshot_ms(self) -> int:
        """When the latest snapshot began, or this node did; the loop's clock."""
        return self._snapshots.last_ms

    @property
    def facts(self) -> QuorumFacts:
        """The voters, and what else the quorum is."""
        return self._facts

    def subscribe(self, listener: Listener) -> None:
        """Call the listener with every image from the next one on, and with what made it."""
        self._publisher.subscribe(listener)

    def submit(self, request: object, reply: Reply) -> None:
        """Have the active controller decide on a request; its answer is given to `reply` once it is committed."""
        controller = self._controller
        assert controller is not None, "the quorum has not been started"
        if self._is_stopping:
            return  # who waits is being stopped too
        self._carry_out(controller.step(request, self._environment.monotonic_ms()), reply)
        self._arm()

    # Life

    async def start(self) -> None:
        """Load, elect, begin the term. Raises OSError, and ValueErrors that say why the directory cannot be used."""
        now_ms = self._environment.wall_ms()
        fs, log_config = self._environment.fs, metadata_log_config(self._config)
        if self._config.metadata_log_dir not in self._config.log_dirs:
            self._lock = fs.lock(f"{self._config.metadata_log_dir}/{LOCK}")
        loaded = await self._environment.offload(
            lambda: MetadataLog.open(fs, self._config.metadata_log_dir, log_config, now_ms)
        )
        self._adopt(loaded)
        if not loaded.replay.image.features.levels:
            self._bootstrap = bootstrap_records(fs, self._config)
        self._ready = asyncio.get_running_loop().create_future()
        self._feed(Started())
        await self._ready

    async def stop(self) -> None:
        """Nothing is decided any more; what was appended is made durable."""
        self._is_stopping = True
        if self._timer is not None:
            self._timer.cancel()
        now_ms = self._environment.wall_ms()
        idle = asyncio.get_running_loop().create_future()
        self._flusher.when_durable([self._log.log], lambda: idle.set_result(None))
        await idle
        await self._tasks.stop()
        try:
            await self._environment.offload(lambda: self._log.log.close(now_ms, clean=True))
        except OSError as error:
            log.error("the metadata log was not closed cleanly: %s", error)
            self._log.log.close(now_ms, clean=False)
        if self._lock is not None:
            self._lock.release()

    def _adopt(self, loaded: Loaded) -> None:
        self._log = loaded.log
        self._log.log.on_failure = self._disk_failed
        self._log.log.on_shortage = self.on_shortage
        self._loaded_replay = loaded.replay
        self._facts = quorum_of(self._config, self._properties, loaded)
        identity, history = identity_of(self._config, self._properties), history_of(self._facts)
        self._raft = Raft(identity, RaftSettings(), loaded.log, history, loaded.election, self._environment.random)
        image = loaded.replay.image
        log.info("metadata up to offset %d, epoch %d", image.provenance.end_offset, image.provenance.epoch)

    # Raft

    def _feed(self, event: Event) -> None:
        environment = self._environment
        for effect in self._raft.step(event, environment.monotonic_ms(), environment.wall_ms()):
            self._perform(effect)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case SaveElection(election):
                self._tasks.spawn(self._save(election), "quorum-state")
            case Append(epoch, records):
                try:
                    provenance = self._log.append_control(records, epoch, self._environment.wall_ms())
                except NoRoom as error:
                    return self._cannot_start(error)
                self._loaded_replay.replay([], provenance)
                self._appended(provenance)
            case Lead(epoch):
                self._lead(epoch)
            case Commit(high_watermark):
                self._publisher.commit(high_watermark)
                self._take_snapshot_if_due()

    async def _save(self, election: Election) -> None:
        data = encode_election(election, self._facts.kraft_version, self._facts.voters.ids)
        fs, directory = self._environment.fs, self._log.directory
        try:
            await self._environment.offload(lambda: save_election(fs, directory, data))
        except OSError as error:
            self._environment.halt(f"cannot make quorum-state durable: {error}")
        self._feed(ElectionSaved(election))

    def _appended(self, provenance: Provenance) -> None:
        self._feed(Appended(provenance.end_offset))
        self._flusher.when_durable([self._log.log], self._flushed)

    def _flushed(self) -> None:
        self._feed(Flushed(self._log.log.synced_end_offset))

    def _disk_failed(self, error: OSError) -> None:
        """After a failed sync nobody knows what the disk holds: stop rather than guess."""
        self._environment.halt(f"the metadata log {self._log.directory} has failed: {error}")

    # The controller

    def _lead(self, epoch: int) -> None:
        environment, config = self._environment, self._config
        settings = ControllerSettings(
            cluster_id=self._properties.cluster_id,
            config_rules=CatalogueRules(self._settings),
            random=environment.random,
            new_uuid=lambda: environment.entropy(16),
            num_partitions=config.integer("num.partitions"),
            default_replication_factor=config.integer("default.replication.factor"),
            delete_topic_enable=config.flag("delete.topic.enable"),
            broker_session_timeout_ms=config.integer("broker.session.timeout.ms"),
            metadata_max_idle_interval_ms=config.integer("metadata.max.idle.interval.ms"),
        )
        replay = self._loaded_replay
        self._controller = Controller(replay, settings, environment.monotonic_ms())
        self._publisher.publish_later(replay.image, MetadataDelta(EMPTY_IMAGE))
        log.info("node %d leads the metadata quorum in epoch %d", self._facts.node_id, epoch)
        registration = controller_registration(config, environment.entropy(16))
        for decision in self._controller.activate(self._bootstrap, registration):
            if not self._carry_out(decision, None):
                return self._cannot_start(NoRoom("the disk of the metadata log is full"))
        self._publisher.reply_when_committed(self.log_end_offset, self._started, None)
        self._arm()

    def _started(self, _: object) -> None:
        assert self._ready is not None
        self._ready.set_result(None)

    def _cannot_start(self, error: NoRoom) -> None:
        assert self._ready is not None
        if not self._ready.done():
            self._ready.set_exception(OSError(errno.ENOSPC, str(error)))

    def _carry_out(self, decision: Decision, reply: Reply | None) -> bool:
        """Write what was decided, and reply when it is committed. Where there is no room for it, nothing was decided,
        and the reply says so; of a decision that is not atomic, its beginning may stand.

        DIVERGES: in Apache Kafka a full disk under the metadata log stops the node.
        """
        answer = decision.reply
        is_written = True
        try:
            for records in batches_of(decision):
                self._append(records)
        except NoRoom as error:
            is_written = False
            if answer is not None:
                from broker.refused_decision import refused_decision

                answer = refused_decision(answer, str(error))
        if reply is not None:
            self._publisher.reply_when_committed(self.log_end_offset, reply, answer)
        return is_written

    def _append(self, records: Sequence[object]) -> None:
        controller = self._controller
        assert controller is not None
        metadata_version = controller.image.features.metadata_version
        size_before = self._log.log.size
        provenance = self._log.append(records, metadata_version, self.leader_epoch, self._environment.wall_ms())
        self._snapshots.appended(self._log.log.size - size_before)
        delta = controller.replay(records, provenance, self._environment.monotonic_ms())
        self._publisher.publish_later(controller.image, delta)
        self._appended(provenance)

    # Time

    def _arm(self) -> None:
        """One timer; it may come early, for what it waited for may have been put off."""
        deadline_ms = self._controller.next_deadline_ms() if self._controller is not None else None
        if deadline_ms is None or self._timer is not None or self._is_stopping:
            return
        delay_ms = max(0, deadline_ms - self._environment.monotonic_ms())
        if self._is_refused:
            delay_ms = max(delay_ms, REFUSED_RETRY_MS)
        self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._tick)

    def _tick(self) -> None:
        self._timer = None
        controller = self._controller
        assert controller is not None
        decisions = controller.tick(self._environment.monotonic_ms())
        self._is_refused = not all(self._carry_out(decision, None) for decision in decisions)
        self._arm()

    # Snapshots

    def _take_snapshot_if_due(self) -> None:
        now_ms = self._environment.monotonic_ms()
        if not self._is_stopping and self._snapshots.is_due(now_ms):
            self._snapshots.begun(now_ms)
            self._tasks.spawn(self._take_snapshot(self.image), "metadata snapshot")

    async def _take_snapshot(self, image: MetadataImage) -> None:
        """The image is a value: it can be written beside the loop. A disk that refuses has the next one try again."""
        environment, quorum, now_ms = self._environment, self._facts.description, self._environment.wall_ms()
        try:
            snapshot = await environment.offload(lambda: self._log.write_snapshot(image, quorum, now_ms))
            paths = self._log.took(snapshot, self._snapshots, now_ms)
            await environment.offload(lambda: unlink_all(environment.fs, paths))
            log.info("took metadata snapshot %s", snapshot.file_name)
        except OSError as error:
            log.error("cannot take a metadata snapshot: %s", error)
        self._snapshots.ended()
