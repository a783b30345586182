"""This node's part in the metadata quorum: the committed metadata, the leader, and requests to the controller."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, get_args

from moldau.broker.config.catalogue_rules import SettingsInForce
from moldau.broker.config.config import Config
from moldau.broker.metadata.active_controller import ActiveController
from moldau.broker.metadata.controller_channel import ClientService, ControllerChannel
from moldau.broker.metadata.enveloping import ForwardedClient
from moldau.broker.metadata.metadata_log import ACCEPT_LOSS, LoadedMetadata, MetadataLog
from moldau.broker.metadata.publisher import Listener, MetadataPublisher, Reply
from moldau.broker.metadata.quorum_start import first_image, metadata_log_config, refuse_unsupported
from moldau.broker.metadata.raft.opened_quorum import OpenedQuorum, QuorumDependencies, opened_quorum
from moldau.broker.metadata.snapshot_files import SnapshotPolicy
from moldau.broker.network.peer_channel import PeerChannels
from moldau.broker.runtime.environment import Environment
from moldau.broker.runtime.flusher import Flusher
from moldau.broker.runtime.pending import DATA, OTHER, Pending
from moldau.broker.runtime.tasks import Tasks
from moldau.kraft.image.metadata_image import MetadataImage
from moldau.kraft.raft import events
from moldau.protocol.messages.fetch import FetchRequest
from moldau.protocol.schema import spec_of
from moldau.security.principal import NODE, Requester
from moldau.storage.checkpoints.meta_properties import MetaProperties
from moldau.storage.directory.log_directory import LOCK_FILE
from moldau.storage.directory.previous_run import PreviousRun
from moldau.storage.files.port import FileLock

log = logging.getLogger("moldau.quorum")

STOP_PATIENCE_MS: Final = 2_000
"""The time (ms) for which a clean stop waits for another node to become leader."""


class Quorum:
    """This node's part in the quorum. Calls come in the order `open`, `join`, `stop`; listeners subscribe before
    `join`.

    Readers use `image`, which never includes records past the high watermark. Listeners are called on the event loop,
    in the order of the log, before the replies that wait for the same records.
    """

    def __init__(
        self,
        environment: Environment,
        config: Config,
        properties: MetaProperties,
        settings: SettingsInForce,
        publisher: MetadataPublisher,
        channels: PeerChannels,
        on_shortage: Callable[[OSError], None],
        on_failure: Callable[[], None],
        previous_run: PreviousRun | None = None,
    ) -> None:
        """`properties`: the meta.properties of the metadata directory. `settings`: the settings in force, for the
        controller's checks. `publisher`: publishes the metadata that this quorum commits.

        `on_shortage`: called when the disk of the metadata log has no room. `on_failure`: called when this disk has
        failed, before the node halts. `previous_run`: how the previous process, which wrote the metadata log, ended.
        """
        self._previous_run = previous_run
        self._environment = environment
        self._config = config
        self._on_failure = on_failure
        self._publisher = publisher
        self._around = QuorumDependencies(
            environment,
            config,
            properties,
            settings,
            channels,
            tasks=Tasks(environment.halt),
            flusher=Flusher(environment, Tasks(environment.halt).spawn),
            policy=SnapshotPolicy(config, environment.monotonic_ms()),
            publisher=self._publisher,
            incarnation_id=environment.entropy(16),
            halt=self._halt,
            disk_is_full=on_shortage,
        )
        self._controllers = ControllerChannel(self, channels, environment, channels.loop)
        self._lock: FileLock | None = None
        """The lock of a metadata directory that is not a log directory; a log directory holds its own lock."""
        self._opened: OpenedQuorum | None = None

    # State

    @property
    def image(self) -> MetadataImage:
        """The committed metadata."""
        return self._publisher.image

    @property
    def high_watermark(self) -> int:
        """The high watermark of the metadata log."""
        return self._publisher.high_watermark

    @property
    def leader_id(self) -> int:
        """The id of the quorum's leader; -1 if this node knows none."""
        return -1 if self._opened is None else self._opened.raft.leader_id

    @property
    def leader_epoch(self) -> int:
        """The epoch that this node is in; 0 before the log is open."""
        return 0 if self._opened is None else self._opened.raft.epoch

    @property
    def leader_address(self) -> tuple[str, int] | None:
        """Host and port of the leader's controller listener; None if this node knows no leader."""
        listener = self._config.controller_listener_names[0]
        return None if self._opened is None else self._opened.raft.leader_endpoints.get(listener)

    @property
    def log_end_offset(self) -> int:
        """The end offset of this node's metadata log; 0 before it is open."""
        return 0 if self._opened is None else self._opened.log.end_offset

    @property
    def kraft_version(self) -> int:
        return 0 if self._opened is None else self._opened.raft.kraft_version

    @property
    def active_controller(self) -> ActiveController | None:
        """The active controller, if this node leads; otherwise None."""
        return None if self._opened is None else self._opened.terms.active

    @property
    def incarnation_id(self) -> bytes:
        """A random id of this start of the node, as a controller."""
        return self._around.incarnation_id

    @property
    def flusher(self) -> Flusher:
        """Syncs the metadata log."""
        return self._around.flusher

    @property
    def snapshot_begun_ms(self) -> int:
        """The time (ms, monotonic clock) at which the newest snapshot was begun; before the first snapshot, the time at
        which this node started.
        """
        return self._around.policy.last_ms

    @property
    def is_open(self) -> bool:
        """Whether the log has been read, so that requests of peers can be handled."""
        return self._opened is not None

    @property
    def opened(self) -> OpenedQuorum:
        """The parts of the quorum that exist only once the log is open."""
        assert self._opened is not None, "the metadata log is not open yet"
        return self._opened

    def subscribe(self, listener: Listener) -> None:
        """Call the listener with every later image, and with the delta that produced it."""
        self._publisher.subscribe(listener)

    # Requests

    def submit(
        self, request: object, reply: Reply, version: int | None = None, client: ForwardedClient | None = None
    ) -> None:
        """Pass a request to the active controller, on this node or another. `reply` gets the response once the decision
        is committed. `version` is the version in which a client sent the request; it is forwarded in the same version.
        """
        self._controllers.submit(request, reply, version, client)

    def serve_clients(self, service: ClientService) -> None:
        """Pass requests of clients to `service` while this node leads."""
        self._controllers.serve_clients(service)

    @property
    def is_active(self) -> bool:
        """Whether this node is the active controller: it leads the metadata quorum, and its controller handles
        requests.
        """
        return self.active_controller is not None and self.opened.raft.is_leader

    def receive(self, request: events.QuorumRequest, version: int, listener: str) -> Pending[object]:
        """Let the Raft machine handle a quorum request of a peer or of a client. Returns its pending response."""
        waits_for = DATA if isinstance(request, FetchRequest) else OTHER
        reply: Pending[object] = Pending(waits_for=waits_for)
        self.opened.driver.feed(events.RequestReceived(reply, request, version, listener))
        return reply

    def decide(
        self,
        request: object,
        reply: Reply,
        given_up: Callable[[], None],
        requester: Requester = NODE,
    ) -> bool:
        """Pass a request to the controller of this node. Returns False if this node does not lead. `given_up` is called
        if the term ends before the response.

        A term may end with the commit of the leader's own removal. A listener that submits a request when it sees this
        commit finds that this node does not lead any more, although its controller has not resigned yet. The request
        then goes to the next leader.
        """
        active = self.active_controller
        if active is None or not self.opened.raft.is_leader:
            return False
        if isinstance(request, get_args(events.QuorumRequest)):
            version = spec_of(type(request)).versions.last
            self.receive(request, version, self._config.controller_listener_names[0]).listen(reply)
        else:
            active.submit(request, reply, given_up, requester)
        return True

    # Reports

    def note_disconnected(self, broker_id: int) -> None:
        """Note that the connection by which a broker sends its heartbeats broke."""
        if self._opened is not None:
            self._opened.terms.note_disconnected(broker_id)

    def note_leader_answered(self) -> None:
        """Note that the active controller, on another node, has responded to a request."""
        self.opened.former_leader.note_answer()

    # Life

    async def open(self) -> None:
        """Read the metadata log in an executor thread. When this returns, requests of peers can be handled.

        Raises OSError, and ValueErrors whose text says why the log is unusable.
        """
        environment, config = self._environment, self._config
        fs, now_ms, log_config = environment.fs, environment.wall_ms(), metadata_log_config(config)
        if config.metadata_log_dir not in config.log_dirs:
            self._lock = fs.lock(f"{config.metadata_log_dir}/{LOCK_FILE}")

        accepts_loss = config.flag(ACCEPT_LOSS)
        if accepts_loss:
            log.warning("%s is set, so that damage cuts the metadata log: remove it before the next start", ACCEPT_LOSS)

        def load() -> tuple[LoadedMetadata, MetadataImage]:
            loaded = MetadataLog.open(
                fs,
                config.metadata_log_dir,
                log_config,
                now_ms,
                log.warning,
                self._previous_run,
                accepts_loss=accepts_loss,
            )
            return loaded, first_image(fs, config, loaded)

        loaded, image = await environment.offload(load)
        self._publisher.use_for_logins(image)
        self._opened = opened_quorum(self._around, loaded)
        end = loaded.replay.image.provenance
        log.info("the metadata log %s ends at offset %d, epoch %d", loaded.log.directory, end.end_offset, end.epoch)

    async def join(self) -> None:
        """Take part in the quorum. Returns once this node has read all records that were committed before it started.

        Raises `UnusableMetadata` if the metadata needs a feature that this version does not have, and `ForeignQuorum`
        if the controllers belong to another cluster. Raises OSError if this node was to lead and its disk is full.
        """
        opened = self.opened
        opened.driver.feed(events.Started())
        await opened.catch_up.wait(self._waits_for)
        refuse_unsupported(self.image.features)

    async def stop(self) -> None:
        """Hand leadership over to another node, stop deciding, and make the appended records durable."""
        opened = self.opened
        opened.snapshots.stop()
        self._controllers.close()
        await opened.driver.stop(STOP_PATIENCE_MS)
        now_ms = self._environment.wall_ms()
        await self._around.tasks.stop()
        self._around.channels.close()
        await self._around.flusher.wait_for_flushes()
        try:
            await self._environment.offload(lambda: opened.log.log.close(now_ms, clean=True))
        except OSError as error:
            log.error(
                "the metadata log %s was not closed cleanly, and is recovered at the next start: %s",
                opened.log.directory,
                error,
            )
            opened.log.log.close(now_ms, clean=False)
        if self._lock is not None:
            self._lock.release()

    def _waits_for(self) -> str:
        if self.leader_id < 0:
            return f"no leader is known in epoch {self.leader_epoch}; are enough controllers running to elect one?"
        return f"node {self.leader_id} leads in epoch {self.leader_epoch}, and this node reads its log"

    def _halt(self, reason: str) -> None:
        """Halt the node, because it is not known any more what the disk of the metadata log contains."""
        self._on_failure()
        self._environment.halt(reason)
