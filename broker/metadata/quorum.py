"""The node's part in the metadata quorum: drives the Raft machine, does what it wants, publishes what is committed.

peers, timers, disk ──▶ events ──▶ Raft ──▶ effects ──▶ log, quorum-state, peers, replies
                                               ├── Lead, Follow ──▶ the active controller comes and goes
                                               └── Commit ──▶ the publisher: readers, and replies that waited
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Sequence
from typing import get_args

from broker.config.catalogue_rules import CatalogueRules, SettingsInForce
from broker.config.config import Config
from broker.metadata.active_controller import ActiveController
from broker.metadata.committed_metadata import CommittedMetadata
from broker.metadata.controller_channel import ControllerChannel
from broker.metadata.metadata_log import (
    Described,
    Loaded,
    MetadataLog,
    NoRoom,
    description_of,
    save_election,
    unlink_all,
)
from broker.metadata.publisher import Listener, MetadataPublisher, Reply
from broker.metadata.quorum_start import (
    bootstrap_records,
    controller_registration,
    history_of,
    identity_of,
    metadata_log_config,
    raft_settings,
    refuse_unsupported,
)
from broker.metadata.snapshot_files import SnapshotFiles
from broker.metadata.snapshot_policy import SnapshotPolicy
from broker.network.peer_channel import NoAnswer, PeerChannels
from broker.runtime.environment import Environment
from broker.runtime.flusher import Flusher
from broker.runtime.pending import Pending
from broker.runtime.tasks import Tasks
from kraft.controller.controller import Controller
from kraft.controller.controller_registration import registration_record
from kraft.controller.partition_index import Indexed, PartitionIndex
from kraft.controller.settings import ControllerSettings
from kraft.image.metadata_image import MetadataImage, Provenance
from kraft.image.topics import TopicsImage
from kraft.raft import events
from kraft.raft.election import Election, encode_election
from kraft.raft.raft import Raft
from kraft.raft.voters.quorum_history import QuorumHistory
from kraft.snapshot.names import SnapshotId
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchRequest
from protocol.messages.fetch_snapshot import FetchSnapshotRequest
from protocol.primitives import BytesLike, MalformedMessage
from protocol.record_builder import Record
from protocol.schema import spec_of
from storage.checkpoints.meta_properties import MetaProperties
from storage.files.disk_errors import PASSING
from storage.files.port import FileLock
from storage.log.log import Log
from storage.log_directory import LOCK

log = logging.getLogger("moldau.quorum")

REFUSED_RETRY_S = 1.0
"""How long a follower waits for room on its disk before it asks for the same records again."""
STOP_PATIENCE_MS = 2_000
"""How long a clean stop may wait for the quorum to take over."""
INDEXED_AT_ONCE_MAX = 50_000
"""Partitions that a new controller indexes on the loop, in a tenth of a second."""
PROGRESS_S = 5.0
"""How often a start that waits for its peers says so."""


class Quorum:
    """`open`, then `join`, at last `stop`.

    What readers see is `image`; it never runs ahead of the high watermark. Listeners are called on the loop, in the
    order of the log, before the replies that wait for the same records.
    """

    def __init__(
        self,
        environment: Environment,
        config: Config,
        properties: MetaProperties,
        settings: SettingsInForce,
        channels: PeerChannels,
    ) -> None:
        """`properties`: of the metadata directory. `settings`: those in force, for the controller's checks."""
        self._environment = environment
        self._config = config
        self._properties = properties
        self._settings = settings
        self._channels = channels
        self._tasks = Tasks(environment.halt)
        self._flusher = Flusher(environment, Tasks(environment.halt).spawn)
        self._snapshots = SnapshotPolicy(config, environment.monotonic_ms())
        self._publisher = MetadataPublisher()
        self._controllers = ControllerChannel(self, channels, environment, channels.loop)
        self._incarnation_id = environment.entropy(16)
        self._timer: asyncio.TimerHandle | None = None
        self._lock: FileLock | None = None
        """Of a metadata directory that is no log directory; the others lock themselves."""
        self._caught_up: asyncio.Future[None] | None = None
        self._stopped: asyncio.Future[None] | None = None
        self._is_stopping = False
        self._is_over = False
        """Nothing that still comes changes anything: the logs are about to be closed."""
        self.on_shortage: Callable[[OSError], None] = lambda error: None
        """Told when the disk of the metadata log has no room."""
        self.on_failure: Callable[[], None] = lambda: None
        """Told that the disk has failed, before this node halts."""
        self._active: ActiveController | None = None
        self._former_leader_id = -1
        self._former_leader_heard_ms: int | None = None
        """When it was heard from last; None where its connection broke since."""
        self._raft: Raft
        self._history: QuorumHistory
        self._log: MetadataLog
        self._files: SnapshotFiles
        self._committed: CommittedMetadata

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
        """-1 where nobody is known to lead."""
        return self._raft.leader_id

    @property
    def leader_epoch(self) -> int:
        return self._raft.epoch

    @property
    def log_end_offset(self) -> int:
        return self._log.end_offset

    @property
    def kraft_version(self) -> int:
        return self._history.kraft_version

    def refusal_of_version(self, version: int) -> str | None:
        """Why kraft.version cannot become this; None where it can."""
        return self._raft.refusal_of_version(version)

    @property
    def flusher(self) -> Flusher:
        """What makes the metadata log durable."""
        return self._flusher

    @property
    def snapshot_ms(self) -> int:
        """When the latest snapshot began, or this node did; the loop's clock."""
        return self._snapshots.last_ms

    def decide(self, request: object, reply: Reply, given_up: Callable[[], None]) -> bool:
        """Answer here what the leader answers; False where this node does not lead. `given_up`: its term ended.

        A term may end with what it commits last, the leader's own removal: whoever asks on seeing that committed asks a
        node that leads no more, though its controller has not been told yet.
        """
        if self._active is None or not self._raft.is_leader:
            return False
        if isinstance(request, get_args(events.QuorumRequest)):
            version = spec_of(type(request)).versions.last
            self.receive(request, version, self._config.controller_listener_names[0]).listen(reply)
        else:
            self._active.submit(request, reply, given_up)
        return True

    @property
    def active_controller(self) -> ActiveController | None:
        """Where this node leads."""
        return self._active

    @property
    def leader_address(self) -> tuple[str, int] | None:
        """Of the leader's controller listener; None where nobody is known to lead."""
        return self._raft.member.leader_endpoints.get(self._config.controller_listener_names[0])

    @property
    def incarnation_id(self) -> bytes:
        """Of this node as a controller, since its start."""
        return self._incarnation_id

    def disconnected(self, broker_id: int) -> None:
        """A connection of this node broke, or nobody listens there: the controller looks whether it lives."""
        if self._active is not None:
            self._active.disconnected(broker_id)

    def leader_answered(self) -> None:
        """The other node that leads is alive."""
        self._former_leader_heard_ms = self._environment.monotonic_ms()

    def subscribe(self, listener: Listener) -> None:
        """Call the listener with every image from the next one on, and with what made it."""
        self._publisher.subscribe(listener)

    def submit(self, request: object, reply: Reply, version: int | None = None) -> None:
        """Have the active controller decide on a request, wherever it is; the reply comes once that is committed. A
        client's goes on in its own version."""
        self._controllers.submit(request, reply, version)

    def receive(self, request: events.QuorumRequest, version: int, listener: str) -> Pending[object]:
        """What a peer, or a client, asks of the quorum."""
        reply: Pending[object] = Pending()
        self._feed(events.Received(reply, request, version, listener))
        return reply

    # Life

    async def open(self) -> None:
        """Read the log; from then on peers may ask. Raises OSError, and ValueErrors that say why it is unusable."""
        now_ms = self._environment.wall_ms()
        fs, log_config = self._environment.fs, metadata_log_config(self._config)
        if self._config.metadata_log_dir not in self._config.log_dirs:
            self._lock = fs.lock(f"{self._config.metadata_log_dir}/{LOCK}")
        loaded = await self._environment.offload(
            lambda: MetadataLog.open(fs, self._config.metadata_log_dir, log_config, now_ms)
        )
        self._adopt(loaded)

    async def join(self) -> None:
        """Take part; returns once everything that was committed before is seen here. Raises `UnusableMetadata` where
        it asks for what this node cannot do, and OSError where this node was to lead and its disk has no room."""
        self._caught_up = asyncio.get_running_loop().create_future()
        self._feed(events.Started())
        await self._catch_up(self._caught_up)
        refuse_unsupported(self.image.features)

    async def stop(self) -> None:
        """Hand leadership over, decide nothing any more; what was appended is made durable."""
        self._is_stopping = True
        self._controllers.close()
        self._stopped = asyncio.get_running_loop().create_future()
        self._feed(events.Stop(STOP_PATIENCE_MS))
        await asyncio.wait([self._stopped], timeout=STOP_PATIENCE_MS / 1000)
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
        now_ms = self._environment.wall_ms()
        await self._tasks.stop()
        self._channels.close()
        await self._flusher.finish()
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
        self._log.log.on_damage = self._damaged
        self._log.log.on_shortage = self.on_shortage
        self._files = SnapshotFiles(self._environment.fs, loaded.log.directory)
        self._committed = CommittedMetadata(self._publisher, loaded.log, loaded.replay)
        self._history = history_of(self._config, loaded)
        identity = identity_of(self._config, self._properties)
        settings = raft_settings(self._config)
        self._raft = Raft(identity, settings, self._log, self._history, loaded.election, self._environment.random)
        image = loaded.replay.image
        log.info("metadata up to offset %d, epoch %d", image.provenance.end_offset, image.provenance.epoch)

    async def _catch_up(self, caught_up: asyncio.Future[None]) -> None:
        while not (await asyncio.wait([caught_up], timeout=PROGRESS_S))[0]:
            if not caught_up.done():
                leader = f"node {self.leader_id} leads" if self.leader_id >= 0 else "nobody leads yet"
                log.info("waiting for the metadata quorum: %s, epoch %d", leader, self.leader_epoch)
        caught_up.result()  # or what made it impossible: without the metadata no partition would be this broker's

    # Raft

    def _feed(self, event: events.Event) -> None:
        """What an effect brings about at once, as the new end of the log, is fed while others are still to be done."""
        if self._is_over:
            return
        environment = self._environment
        try:
            for effect in self._raft.step(event, environment.monotonic_ms(), environment.wall_ms()):
                self._perform(effect)
        except OSError as error:
            self._disk_failed(error)  # the step is half done
        self._arm()

    def _perform(self, effect: events.Effect) -> None:
        """One line an effect."""
        match effect:
            case events.SaveElection(election):
                self._tasks.spawn(self._save(election), "quorum-state")
            case events.Append(epoch, records):
                self._append_control(records, epoch)
            case events.AppendFetched(fetched, leader_epoch):
                self._append_fetched(fetched, leader_epoch)
            case events.Truncate(end_offset):
                self._truncate(end_offset)
            case events.Send():
                self._send(effect)
            case events.Reply(Pending() as reply, response):
                reply.complete(response)
            case events.ReplyRecords(Pending() as reply, response, offset, size_max):
                response.responses[0].partitions[0].records = self._log.read(offset, size_max)
                reply.complete(response)
            case events.ReplySnapshot():
                self._tasks.spawn(self._reply_snapshot(effect), "snapshot to a peer")
            case events.SnapshotPart(snapshot_id, position, data):
                self._files.write_part(snapshot_id, position, data)
            case events.SnapshotFetched(snapshot_id):
                self._tasks.spawn(self._load_snapshot(snapshot_id), "snapshot of a peer")
            case events.Lead(epoch):
                self._lead_soon(epoch)
            case events.Follow(epoch, leader_id):
                self._follow(epoch, leader_id)
            case events.Commit(high_watermark):
                self._commit(high_watermark)
            case events.Stopped():
                if self._stopped is not None and not self._stopped.done():
                    self._stopped.set_result(None)
            case _:
                raise AssertionError(f"an effect that nobody carries out: {effect}")

    def _arm(self) -> None:
        """One timer for the machine's next deadline."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline_ms = self._raft.next_deadline_ms()
        if deadline_ms is not None:
            delay_ms = max(0, deadline_ms - self._environment.monotonic_ms())
            self._timer = self._channels.loop.call_later(delay_ms / 1000, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._feed(events.Tick())

    # Peers

    def _send(self, send: events.Send) -> None:
        """A Fetch may wait at the leader for long: nothing else is to wait behind it."""
        is_fetch = isinstance(send.request, FetchRequest | FetchSnapshotRequest)
        channel = self._channels.to("quorum fetch" if is_fetch else "quorum", send.to.host, send.to.port)

        def answered(response: object) -> None:
            if send.to.node_id == self._former_leader_id:
                self._note_of_leader(response)
            if response is NoAnswer.GONE:
                self.disconnected(send.to.node_id)
            if isinstance(response, NoAnswer):
                self._feed(events.Answered(send.to, send.request, None, is_refused=response is NoAnswer.GONE))
            else:
                self._feed(events.Answered(send.to, send.request, response))  # type: ignore[arg-type]

        channel.ask(send.request, answered, send.timeout_ms)

    def _note_of_leader(self, response: object) -> None:
        if response is NoAnswer.GONE:
            self._former_leader_heard_ms = None
        elif not isinstance(response, NoAnswer):
            self.leader_answered()

    async def _reply_snapshot(self, effect: events.ReplySnapshot) -> None:
        reply = effect.token
        assert isinstance(reply, Pending)
        read, partition = self._files.read, effect.response.topics[0].partitions[0]
        try:
            partition.unaligned_records = await self._environment.offload(
                lambda: read(effect.snapshot_id, effect.size_max, effect.position)
            )
        except OSError as error:  # perhaps it was given up meanwhile
            log.warning("cannot read a metadata snapshot for a peer: %s", error)
            partition.error_code = ErrorCode.SNAPSHOT_NOT_FOUND
        reply.complete(effect.response)

    # The disk

    async def _save(self, election: Election) -> None:
        data = encode_election(election, self._history.kraft_version, self._history.voters.ids, self._config.node_id)
        fs, directory = self._environment.fs, self._log.directory
        try:
            await self._environment.offload(lambda: save_election(fs, directory, data))
        except OSError as error:
            self._halt(f"cannot make quorum-state durable: {error}")
        self._feed(events.ElectionSaved(election))

    def _append(self, records: Sequence[object], metadata_version: int) -> Provenance:
        """The controller's records. Raises `NoRoom`."""
        size_before = self._log.log.size
        provenance = self._log.append(records, metadata_version, self.leader_epoch, self._environment.wall_ms())
        self._snapshots.appended(self._log.log.size - size_before)
        self._appended([])
        return provenance

    def _append_control(self, records: Sequence[Record], epoch: int) -> None:
        base_offset, before = self._log.end_offset, self._history.description
        try:
            self._log.append_control(records, epoch, self._environment.wall_ms())
        except NoRoom as error:
            self._cannot_lead(error)
            return
        description = description_of(records, before)
        self._appended([(base_offset, description)] if description is not before else [])

    def _append_fetched(self, fetched: BytesLike, leader_epoch: int) -> None:
        now_ms = self._environment.wall_ms()
        try:
            described = self._log.append_fetched(fetched, leader_epoch, self._history.description, now_ms)
        except NoRoom as error:
            log.warning("%s; asking for the same again in %g s", error, REFUSED_RETRY_S)
            self._channels.loop.call_later(REFUSED_RETRY_S, self._nothing_appended, self.leader_epoch, self.leader_id)
            return
        self._snapshots.appended(len(fetched))
        self._appended(described)

    def _nothing_appended(self, epoch: int, leader_id: int) -> None:
        """Unless this node follows another leader by now."""
        if (self.leader_epoch, self.leader_id) == (epoch, leader_id):
            self._feed(events.Appended(self._log.end_offset))

    def _raise_version(self, version: int) -> None:
        self._feed(events.RaiseVersion(self.leader_epoch, version))

    def _cannot_lead(self, error: NoRoom) -> None:
        """The node cannot begin its term: at start it says so and ends; later another is to lead."""
        if self._caught_up is not None and not self._caught_up.done():
            self._caught_up.set_exception(OSError(errno.ENOSPC, str(error)))
        else:
            self._environment.halt(str(error))

    def _appended(self, described: Sequence[Described]) -> None:
        self._feed(events.Appended(self._log.end_offset, described))
        self._flusher.when_durable([self._log.log], self._flushed)

    def _flushed(self) -> None:
        self._feed(events.Flushed(self._log.log.synced_end_offset))

    def _truncate(self, end_offset: int) -> None:
        self._log.truncate(end_offset, self._environment.wall_ms())
        self._committed.truncated(end_offset)
        self._feed(events.Truncated(end_offset))

    def _disk_failed(self, error: OSError) -> None:
        self._halt(f"the metadata log {self._log.directory} has failed: {error}")

    def _damaged(self, damaged: Log, reason: str) -> None:
        """Who leads could send it to nobody; another does, once this node is gone."""
        self._halt(f"the metadata log {damaged.directory} is damaged: {reason}")

    def _halt(self, reason: str) -> None:
        """Nobody knows what the disk holds: stop rather than guess."""
        self.on_failure()
        self._environment.halt(reason)

    def _commit(self, high_watermark: int) -> None:
        if not self._committed.commit(high_watermark, is_active=self._active is not None):
            return
        if self._caught_up is not None and not self._caught_up.done():
            self._caught_up.set_result(None)
        self._take_snapshot_if_due()

    # The controller

    def _lead_soon(self, epoch: int) -> None:
        """At once, or where there is much to index once that was done beside the loop: until then whoever wants
        something of the controller asks again."""
        image = self._committed.nearest_image
        if image.topics.has_partitions(INDEXED_AT_ONCE_MAX):
            self._tasks.spawn(self._lead_indexed(epoch, image.topics), "index of the partitions")
        else:
            self._lead(epoch, None)

    async def _lead_indexed(self, epoch: int, topics: TopicsImage) -> None:
        index = await self._environment.offload(lambda: PartitionIndex(topics))
        if self._raft.is_leader and self.leader_epoch == epoch:
            self._lead(epoch, Indexed(topics, index))

    def _lead(self, epoch: int, indexed: Indexed | None) -> None:
        environment = self._environment
        base = self._committed.begin_term()
        bootstrap = bootstrap_records(environment.fs, self._config) if not base.image.features.levels else []
        index = None if indexed is None else indexed.brought_to(base.image.topics)
        controller = Controller(base, self._controller_settings(), environment.monotonic_ms(), index)
        self._active = ActiveController(controller, environment, self._publisher, self._append, self._raise_version)
        self._controllers.leader_changed()
        log.info("node %d leads the metadata quorum in epoch %d", self._config.node_id, epoch)
        registration = registration_record(controller_registration(self._config, self._incarnation_id))
        if not self._active.begin(controller.activate(bootstrap, registration)):
            self._cannot_lead(NoRoom("the disk of the metadata log is full"))
        if self._former_leader_id >= 0:
            self._doubt(self._active, self._former_leader_id)
            self._former_leader_id = -1

    def _doubt(self, active: ActiveController, former_leader_id: int) -> None:
        """Whoever led before was silent for long enough to be replaced, if it has not gone in peace."""
        if self._former_leader_heard_ms is None:
            active.disconnected(former_leader_id)
        else:
            active.silent_since(former_leader_id, self._former_leader_heard_ms)

    def _follow(self, epoch: int, leader_id: int) -> None:
        if self._active is not None:
            log.info("node %d resigned, epoch %d", self._config.node_id, epoch)
            self._active.resign()
            self._active = None
            self._committed.end_term()
        elif leader_id >= 0:
            log.info("node %d leads the metadata quorum in epoch %d", leader_id, epoch)
        if leader_id >= 0:
            self._former_leader_id = leader_id
            self.leader_answered()
        self._controllers.leader_changed()

    def _controller_settings(self) -> ControllerSettings:
        environment, config = self._environment, self._config
        return ControllerSettings(
            cluster_id=self._properties.cluster_id,
            config_rules=CatalogueRules(self._settings),
            random=environment.random,
            new_uuid=lambda: environment.entropy(16),
            num_partitions=config.integer("num.partitions"),
            default_replication_factor=config.integer("default.replication.factor"),
            node_id=config.node_id,
            quorum=self,
            unclean_leader_election_interval_ms=config.integer("unclean.leader.election.interval.ms"),
            auto_leader_rebalance_enable=config.flag("auto.leader.rebalance.enable"),
            leader_imbalance_check_interval_seconds=config.integer("leader.imbalance.check.interval.seconds"),
            min_insync_replicas=config.integer("min.insync.replicas"),
            unclean_leader_election_enable=config.flag("unclean.leader.election.enable"),
            delete_topic_enable=config.flag("delete.topic.enable"),
            broker_session_timeout_ms=config.integer("broker.session.timeout.ms"),
            broker_silence_fence_ms=config.integer("moldau.broker.silence.fence.ms"),
            metadata_max_idle_interval_ms=config.integer("metadata.max.idle.interval.ms"),
        )

    # Snapshots

    def _take_snapshot_if_due(self) -> None:
        now_ms = self._environment.monotonic_ms()
        newest = self._log.latest_snapshot
        is_new = newest is None or self.image.provenance.end_offset > newest.end_offset  # else nothing was committed
        if not self._is_stopping and is_new and self._snapshots.is_due(now_ms):
            self._snapshots.begun(now_ms)
            self._tasks.spawn(self._take_snapshot(self.image), "metadata snapshot")

    async def _take_snapshot(self, image: MetadataImage) -> None:
        """The image is a value: it can be written beside the loop. A disk that refuses has the next one try again."""
        environment, now_ms = self._environment, self._environment.wall_ms()
        quorum = self._history.description_at(image.provenance.end_offset)
        try:
            snapshot = await environment.offload(lambda: self._log.write_snapshot(image, quorum, now_ms))
            paths = self._log.took(snapshot, self._snapshots, now_ms)
            await environment.offload(lambda: unlink_all(environment.fs, paths))
            log.info("took metadata snapshot %s", snapshot.file_name)
        except OSError as error:
            log.error("cannot take a metadata snapshot: %s", error)
        self._snapshots.ended()

    async def _load_snapshot(self, snapshot_id: SnapshotId) -> None:
        """A leader's snapshot takes the place of the log."""
        environment = self._environment
        try:
            loaded = await environment.offload(lambda: self._files.finish(snapshot_id))
        except MalformedMessage as error:
            log.error("snapshot %s is malformed: %s", snapshot_id.file_name, error)
            self._feed(events.SnapshotRefused(snapshot_id))
            return
        except OSError as error:
            if error.errno not in PASSING:
                self._halt(f"cannot write a metadata snapshot: {error}")
                raise
            log.warning("%s; asking for snapshot %s again in %g s", error, snapshot_id.file_name, REFUSED_RETRY_S)
            await asyncio.sleep(REFUSED_RETRY_S)
            self._feed(events.SnapshotRefused(snapshot_id))
            return
        paths = self._log.start_at(snapshot_id, environment.wall_ms())
        self._committed.replaced(loaded.replay)
        log.info("took metadata snapshot %s from the leader", snapshot_id.file_name)
        self._feed(events.SnapshotLoaded(snapshot_id, loaded.quorum))
        self._flusher.when_durable([self._log.log], self._flushed)
        try:
            await environment.offload(lambda: unlink_all(environment.fs, paths))
        except OSError as error:
            log.error("cannot remove an earlier metadata snapshot: %s", error)
