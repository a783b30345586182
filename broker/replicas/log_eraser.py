"""The log eraser: carries out the erase orders of the logs of this broker, whatever their cleanup.policy (decision 36).

    order appended or fetched ──▶ below the high watermark ──▶ roll, sync ──▶ a worker process rewrites a segment
         ▲                                                                        │ receipt entry, durable
         └── tried again after an error ◀── done: receipt, order forgotten ◀── swap, remove the old files
                                                       └── of a tiered log: remote segments first (`RemoteErasing`)

Erasing is throttled like the work of the log cleaner, by log.cleaner.io.max.bytes.per.second. It goes on with
log.cleaner.enable=false, and with moldau.erase.enable=false, which only closes the way for further orders.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from moldau.broker.metadata.cluster_view import DynamicConfig
from moldau.broker.replicas.log_rewriting import LogRewriting, Throttle
from moldau.broker.replicas.replicas import Replicas
from moldau.broker.runtime.environment import Environment
from moldau.broker.runtime.tasks import Spawn
from moldau.protocol.erase_orders import runs_of
from moldau.protocol.late_dataclass import dataclass
from moldau.protocol.primitives import MalformedMessage
from moldau.replication.partition import Partition
from moldau.storage.compaction.request import BytesMoved, LogChanged
from moldau.storage.files.port import FileSystem
from moldau.storage.log.changed_logs import ChangedLogs
from moldau.storage.log.log import Log
from moldau.storage.log.pending_orders import order_at
from moldau.storage.log.segment_swap import discard_cleaned

if TYPE_CHECKING:
    from moldau.protocol.erase_orders import EraseOrder
    from moldau.storage.erasure.erasing import SegmentErased
    from moldau.storage.erasure.receipts import OrderReceipt

log = logging.getLogger("moldau.eraser")

CHECK_INTERVAL_S: Final = 0.5
RETRY_MS: Final = 5_000
"""The time (ms) after an error until the erase order is tried again."""


@dataclass(slots=True)
class EraserTotals:
    """Totals of the eraser since the start of the process."""

    orders: int = 0
    records: int = 0
    failures: int = 0


class RemoteErasing(Protocol):
    """The part of tiered storage that the log eraser uses: carries out erase orders in remote segments."""

    async def go_on(self, partition: Partition) -> None:
        """Carry out in remote segments the erase orders of a partition that are carried out in its local log. Orders
        that are done are forgotten.
        """


class LogEraser:
    """Carries out erase orders one after the other. Its methods are called on the event loop."""

    def __init__(
        self,
        settings: DynamicConfig,
        environment: Environment,
        spawn: Spawn,
        replicas: Replicas,
        changes: ChangedLogs,
        rewriting: LogRewriting,
        remote: RemoteErasing | None = None,
    ) -> None:
        """`changes`: the logs that changed since the last check. `remote`: carries out erase orders in remote segments;
        None if no log is tiered.
        """
        self._settings = settings
        self._environment = environment
        self._spawn = spawn
        self._replicas = replicas
        self._changes = changes
        self._rewriting = rewriting
        self._remote = remote
        self._candidates: dict[Log, int] = {}
        """The logs with pending erase orders, and the time (ms, monotonic clock) before which they are not tried
        again.
        """
        self.totals = EraserTotals()

    def begin(self) -> None:
        self._spawn(self._run(), "log-eraser")

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(CHECK_INTERVAL_S)
            for its_log in self._changes.take():
                if has_orders(its_log):
                    self._candidates.setdefault(its_log, 0)
            for its_log in tuple(self._candidates):
                await self._visit(its_log)

    async def _visit(self, its_log: Log) -> None:
        """Carry out the committed erase orders of one log, unless the log is being compacted."""
        partition = self._replicas.of_log(its_log)
        if partition is None or its_log.failure is not None or not has_orders(its_log):
            del self._candidates[its_log]  # It is noted again when the log is served, or has another order.
            return
        if its_log in self._rewriting.in_progress or self._environment.monotonic_ms() < self._candidates[its_log]:
            return
        self._rewriting.in_progress[its_log] = None
        try:
            for offset in tuple(its_log.erase_orders.offsets):
                if offset < partition.high_watermark:
                    await self._carry_out(partition, offset)
            if its_log.erase_orders.tiered and self._remote is not None:
                await self._remote.go_on(partition)
        except LogChanged:
            pass  # Truncated, or retention deleted a segment: the next visit looks again.
        except MalformedMessage as malformed:
            self._failed(its_log, f"a batch is damaged: {malformed}")
        except OSError as error:
            self._failed(its_log, str(error))
            # An error without an errno comes from the worker process, and ENOENT from a file that retention deleted.
            if self._is_served(partition) and error.errno is not None and error.errno != errno.ENOENT:
                its_log.fail_unless_passing(error)
        finally:
            del self._rewriting.in_progress[its_log]

    def _failed(self, its_log: Log, reason: str) -> None:
        self.totals.failures += 1
        self._candidates[its_log] = self._environment.monotonic_ms() + RETRY_MS
        log.error("an erase order of %s was not carried out, and is tried again: %s", its_log.directory, reason)

    def _is_served(self, partition: Partition) -> bool:
        return partition in self._replicas and partition.log.failure is None

    async def _carry_out(self, partition: Partition, offset: int) -> None:
        """Carry out the erase order at an offset of the log. Raises OSError, `MalformedMessage`, and `LogChanged`.
        After an error each segment is either the old one or the rewritten one.
        """
        # Here, because most brokers never erase.
        from moldau.storage.erasure.receipts import TierReceipt, receipt_of, write_receipt

        environment, its_log, fs = self._environment, partition.log, self._environment.fs
        order = order_at(its_log.segments, offset)
        if order is None:
            its_log.erase_orders.carried_out(offset)
            return
        receipt = await environment.offload(partial(receipt_of, fs, its_log.directory, order, offset))
        is_tiered = self._remote is not None and its_log.config.is_tiered
        if receipt.done_ms is None:
            if runs_of(order)[-1].last >= its_log.active.base_offset:
                its_log.roll(environment.wall_ms())
            await self._rewriting.make_durable(its_log, its_log.active.base_offset)
            if not self._is_served(partition) or offset not in its_log.erase_orders.offsets:
                raise LogChanged
            await self._rewrite(partition, order, receipt)
            receipt.done_ms = environment.wall_ms()
            receipt.tier = TierReceipt() if is_tiered else None
            await environment.offload(partial(write_receipt, fs, its_log.directory, receipt))
            self.totals.orders += 1
            self.totals.records += receipt.records_erased
        if offset in its_log.erase_orders.offsets:
            for first, last in runs_of(order):
                its_log.erase_orders.show(first, last + 1)
            if is_tiered:
                its_log.erase_orders.carried_out_here(offset)
            else:
                its_log.erase_orders.carried_out(offset)
            its_log.directory_is_dirty = True  # The next flush writes the checkpoint of orders.
        log.info(
            "erase order %s of %s is carried out in %s: %d records of %d segments are gone",
            receipt.order_id,
            order.principal,
            its_log.directory,
            receipt.records_erased,
            len(receipt.segments),
        )

    async def _rewrite(self, partition: Partition, order: EraseOrder, receipt: OrderReceipt) -> None:
        """Rewrite the segments that have records which an erase order names. Each rewritten segment gets an entry in
        the receipt. Raises OSError, `MalformedMessage`, and `LogChanged`.
        """
        from moldau.storage.erasure.erasing import SegmentErased, erase, erase_request
        from moldau.storage.erasure.receipts import note_segment, write_receipt

        environment, its_log, fs = self._environment, partition.log, self._environment.fs
        io_buffer_size = self._settings.config.integer("log.cleaner.io.buffer.size")
        request = erase_request(its_log, runs_of(order), io_buffer_size)
        throttle = Throttle(self._settings, environment)
        removed: list[str] = []
        work = environment.in_process(partial(erase, request=request))
        with contextlib.closing(work):
            while (event := await work.next_event()) is not None:
                if isinstance(event, SegmentErased):
                    note_segment(receipt, event)
                    await environment.offload(partial(write_receipt, fs, its_log.directory, receipt))
                    removed += await self._swap(partition, event)
                elif isinstance(event, BytesMoved):
                    await throttle.pace(event)
        await self._rewriting.flush(its_log)
        # The files of the records themselves: readers that have one open read on.
        await environment.offload(partial(remove_files, fs, removed))
        if not self._is_served(partition) or request.truncation_count != its_log.truncation_count:
            raise LogChanged

    async def _swap(self, partition: Partition, erased: SegmentErased) -> list[str]:
        """Put a rewritten segment into the log. Returns the paths of the replaced files. Raises `LogChanged`."""
        its_log, cleaned = partition.log, erased.cleaned
        paths = its_log.swap_cleaned(cleaned, self._environment.wall_ms()) if self._is_served(partition) else None
        if paths is None:
            await self._environment.offload(partial(discard_cleaned, self._environment.fs, cleaned))
            raise LogChanged
        its_log.erase_orders.show(cleaned.base_offset, cleaned.replaced_end_offset)
        return paths


def has_orders(its_log: Log) -> bool:
    return bool(its_log.erase_orders.offsets or its_log.erase_orders.tiered)


def remove_files(fs: FileSystem, paths: list[str]) -> None:
    """Remove files, in an executor thread. Raises OSError."""
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            fs.unlink(path)
