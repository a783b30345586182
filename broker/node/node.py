"""A node: starts and stops its parts in order."""

from __future__ import annotations

from typing import Final

from moldau.broker.metadata.registration import keep_registered
from moldau.broker.metrics.observed import NodeStage
from moldau.broker.network.route import ListenerRole
from moldau.broker.node.composition import NodeParts
from moldau.broker.replicas.local_logs import put_back_clean_shutdown
from moldau.broker.runtime.heap import HeapTrimmer
from moldau.kraft.image.metadata_image import MetadataDelta, MetadataImage

SHUTDOWN_PATIENCE_MS: Final = 10_000
"""The maximum time (ms) for which a controlled shutdown waits for the controller."""
OPEN_FILES_SHARE: Final = 2
"""The limit on file descriptors divided by this number is the maximum number of segments that stay open.

The other descriptors are for connections, and for files that are open for a short time.
"""


class Node(NodeParts):
    """One node, from its start to its clean stop. All methods are called on the event loop."""

    async def start(self) -> None:
        """Bind the listeners, open the metadata log, join the cluster and serve clients. Raises the error that prevents
        the start.

        Metrics come first, so that a long recovery can be watched. Controllers accept connections before they join:
        their peers may need them for a majority.
        """
        if self.metrics is not None:
            await self.metrics.start()
        self.security.begin()
        for listener in self.listeners:
            await listener.bind()
        try:
            await self.quorum.open()
        except BaseException:  # A refusal, and a signal that ends the start.
            put_back_clean_shutdown(self.logs.directories)
            raise
        await self._accept(ListenerRole.CONTROLLER)
        await self.quorum.join()
        self.security.follow(self.quorum)
        self.quotas.begin(self.quorum)
        if self.config.is_controller:
            self.tasks.spawn(keep_registered(self.quorum, self.config))
        if self.config.is_broker:
            await self._start_broker()
        else:
            self.settings.follow(self.image)
            self.quorum.subscribe(self._follow_settings)
        self.readiness.enter(NodeStage.RUNNING)
        self._look_at_memory()
        if self.config.is_broker:
            self.failed_directories.begin()

    async def _start_broker(self) -> None:
        """Load the replicas, register this broker, give the replicas their roles, and serve clients."""
        if self.tiering is not None:
            await self.tiering.check_storage()
        await self.applier.start(self.quorum)
        self._bound_open_files()
        await self.registration.register(self.config.integer("initial.broker.registration.timeout.ms"))
        self.tasks.spawn(self.registration.keep_alive())  # Giving many replicas their roles takes seconds.
        self.logs.note_serving_epoch(self.registration.epoch)
        await self.applier.begin()
        self.assignments.begin()
        self.fetchers.begin()
        for job in (*self.log_jobs.jobs(), self.in_sync_changes.job()):
            self.tasks.run_periodically(job)
        self.cleaner.begin()
        if self.tiering is not None:
            self.tiering.begin()
        self.removal.remove_later(await self.logs.removable_directories(), 0)
        await self._accept(ListenerRole.BROKER)

    def _look_at_memory(self) -> None:
        process = self.environment.process()
        if process is not None and process.read() is not None:
            self.tasks.run_periodically(HeapTrimmer(process, self.environment.offload).periodic_job())

    def _bound_open_files(self) -> None:
        """Limit the number of open segments, once executor threads have loaded the logs: from then on only the event
        loop closes files.
        """
        count_max = self.config.integer("moldau.open.files.max")
        if count_max < 0:
            count_max = max(1, self.environment.descriptors_max() // OPEN_FILES_SHARE)
        self.environment.fs.open_files.limit_count(count_max, self.loop.call_soon_threadsafe)

    async def _accept(self, role: ListenerRole) -> None:
        for listener in self.listeners:
            if listener.role is role:
                await listener.accept()

    def _follow_settings(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Apply changed dynamic settings, on a node that is only a controller."""
        if delta.configs.changed:
            self.settings.follow(image)

    async def stop(self) -> None:
        """Stop cleanly: hand leadership over, close the listeners, flush the logs, and mark the directories as cleanly
        shut down.
        """
        self.readiness.enter(NodeStage.STOPPING)
        if self.config.is_broker and self.config.flag("controlled.shutdown.enable"):
            await self.registration.shut_down(SHUTDOWN_PATIENCE_MS)
        if self.departure is not None:
            await self.departure.finish()
        for listener in self.listeners:
            await listener.stop()
        self.security.end()
        self.fetchers.end()
        self.coordinators.registry.close()
        if self.metrics is not None:
            self.metrics.stop()
        await self.partition_work.finish()
        await self.flusher.wait_for_flushes()
        await self.tasks.stop()
        if self.tiering is not None:
            await self.tiering.close()
        self.environment.fs.open_files.remove_limit()
        await self.quorum.stop()
        self.channels.close()
        await self.partition_work.finish()  # The tasks of the last published metadata.
        await self.flusher.wait_for_flushes()
        await self.logs.close(self.registration.epoch, self.log_jobs.high_watermark)
