"""The log eraser: carries out the erase orders of the logs of this broker, whatever their cleanup.policy (decision 36).

    orders appended or fetched ──▶ below the high watermark ──▶ roll, sync ──▶ a worker process rewrites a segment
         ▲                                                                        │ receipt entries, durable
         └── tried again after an error ◀── done: receipts, orders forgotten ◀── swap, remove the old files
                                                       └── of a tiered log: remote segments first (`RemoteErasing`)

All orders of a log that are committed when a pass begins are carried out in that pass, so that each segment is
rewritten once. Each order has its own receipt. Orders that come later wait for the next pass. A client sends a long
list of offsets as several orders, so a pass begins only when no order has come for a moment.

Erasing is throttled like the work of the log cleaner, by log.cleaner.io.max.bytes.per.second. It goes on with
log.cleaner.enable=false, and with moldau.erase.enable=false, which only closes the way for further orders.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from moldau.broker.metadata.cluster_view import DynamicConfig
from moldau.broker.replicas.erasing_process import ErasingProcess
from moldau.broker.replicas.log_rewriting import IoThrottle, LogRewriting
from moldau.broker.replicas.replicas import Replicas
from moldau.broker.runtime.environment import Environment
from moldau.broker.runtime.tasks import Spawn
from moldau.protocol.compression import RecordSizeExceeded
from moldau.protocol.erase_orders import packed_runs_of, runs_of, runs_within
from moldau.protocol.late_dataclass import dataclass
from moldau.protocol.late_tuple import NamedTuple
from moldau.protocol.primitives import MalformedMessage
from moldau.replication.partition import Partition
from moldau.storage.compaction.request import LogChanged
from moldau.storage.files.log_paths import DELETED_SUFFIX
from moldau.storage.files.port import FileSystem
from moldau.storage.log.changed_logs import ChangedLogs
from moldau.storage.log.log import Log
from moldau.storage.log.pending_orders import erase_order_at
from moldau.storage.log.segment_swap import discard_cleaned

if TYPE_CHECKING:
    from moldau.protocol.erase_orders import EraseOrder
    from moldau.storage.erasure.erasing import EraseEvent, SegmentErased
    from moldau.storage.erasure.receipts import OrderReceipt

log = logging.getLogger("moldau.eraser")

CHECK_INTERVAL_S: Final = 0.5
RETRY_MS: Final = 5_000
"""The time (ms) after an error until the erase orders of a log are tried again."""
GATHER_S: Final = 0.1
"""The time (s) without a new erase order after which a pass begins."""
GATHER_TIMES_MAX: Final = 20
"""The maximum wait of a pass for further orders, and for the commit of all orders, as a multiple of `GATHER_S`."""
RUNS_OF_PASS_MAX: Final = 200_000
"""The maximum number of runs of offsets in the orders of one pass, because the worker process has all runs in memory.
Only the first order of a pass may have more.
"""


@dataclass(slots=True)
class EraserTotals:
    """Totals of the eraser since the start of the process."""

    orders: int = 0
    records: int = 0
    failures: int = 0


class RemoteErasing(Protocol):
    """The part of tiered storage that the log eraser uses: carries out erase orders in remote segments."""

    async def go_on(self, partition: Partition, process: ErasingProcess) -> None:
        """Carry out in remote segments the erase orders of a partition that are carried out in its local log. Orders
        that are done are forgotten. `process` rewrites the segments.
        """


class OrderInProgress(NamedTuple):
    """An erase order that is being carried out: its offset in the log, and its receipt."""

    offset: int
    order: EraseOrder
    receipt: OrderReceipt

    @property
    def first_offset(self) -> int:
        return self.order.runs[0].first_offset

    @property
    def last_offset(self) -> int:
        return self.order.runs[-1].last_offset


class OrdersDue(NamedTuple):
    """The number of all pending orders in logs that are tried now, and the number of those that are not known to be
    committed.
    """

    orders: int
    uncommitted: int


class LogEraser:
    """Carries out the erase orders of one log after the other. Its methods are called on the event loop."""

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
        self._process = ErasingProcess(environment)
        self._candidates: dict[Log, int] = {}
        """The logs with pending erase orders, and the time (ms, monotonic clock) before which they are not tried
        again.
        """
        self.totals = EraserTotals()

    def begin(self) -> None:
        self._spawn(self._run(), "log-eraser")

    async def _run(self) -> None:
        try:
            while True:
                await asyncio.sleep(CHECK_INTERVAL_S)
                self._note_changed_logs()
                await self._gather_orders()
                for its_log in tuple(self._candidates):
                    await self._visit(its_log)
                self._process.close_if_idle()
        finally:
            self._process.close()

    def _note_changed_logs(self) -> None:
        for its_log in self._changes.take_logs():
            if has_erase_orders(its_log):
                self._candidates.setdefault(its_log, 0)

    async def _gather_orders(self) -> None:
        """If there are orders to carry out, start the worker process, and wait until all orders are committed and no
        further order has come for `GATHER_S`. An order that is committed later costs a pass of its own.
        """
        known = self._orders_due()
        if not known.orders:
            return
        starting = asyncio.ensure_future(self._start_process())
        try:
            await self._until_gathered(known)
            await starting
        finally:
            starting.cancel()

    async def _start_process(self) -> None:
        with contextlib.suppress(OSError):  # A request starts the process again, and reports the error.
            await self._process.start()

    async def _until_gathered(self, known: OrdersDue) -> None:
        """Wait until all orders are committed and no other has come for `GATHER_S`. `known` are the present ones."""
        for _ in range(GATHER_TIMES_MAX):
            await asyncio.sleep(GATHER_S)
            self._note_changed_logs()
            found = self._orders_due()
            if found == known and not found.uncommitted:
                return
            known = found

    def _orders_due(self) -> OrdersDue:
        """The pending orders in logs that are tried now."""
        now_ms = self._environment.monotonic_ms()
        count = uncommitted = 0
        for its_log, due_ms in self._candidates.items():
            partition = self._replicas.partition_of_log(its_log)
            if partition is not None and due_ms <= now_ms:
                offsets = its_log.erase_orders.offsets
                count += len(offsets)
                uncommitted += sum(each >= partition.high_watermark for each in offsets)
        return OrdersDue(count, uncommitted)

    async def _visit(self, its_log: Log) -> None:
        """Carry out the committed erase orders of one log, unless the log is being compacted."""
        partition = self._replicas.partition_of_log(its_log)
        if partition is None or its_log.failure is not None or not has_erase_orders(its_log):
            del self._candidates[its_log]  # It is noted again when the log is served, or has another order.
            return
        if its_log in self._rewriting.in_progress or self._environment.monotonic_ms() < self._candidates[its_log]:
            return
        self._rewriting.in_progress[its_log] = None
        try:
            await self._carry_out_committed(partition)
            if its_log.erase_orders.tiered and self._remote is not None:
                await self._remote.go_on(partition, self._process)
        except LogChanged:
            pass  # Truncated, or retention deleted a segment: the next visit looks again.
        except RecordSizeExceeded as exceeded:
            self._failed(its_log, str(exceeded))
        except MalformedMessage as malformed:
            self._failed(its_log, f"a batch is damaged: {malformed}")
        except OSError as error:
            self._failed(its_log, str(error))
            # An error without an errno comes from the worker process, and ENOENT from a file that retention deleted.
            if self._is_served(partition) and error.errno is not None and error.errno != errno.ENOENT:
                its_log.fail_unless_transient(error)
        finally:
            del self._rewriting.in_progress[its_log]

    def _failed(self, its_log: Log, reason: str) -> None:
        self.totals.failures += 1
        self._candidates[its_log] = self._environment.monotonic_ms() + RETRY_MS
        log.error("erase orders of %s were not carried out, and are tried again: %s", its_log.directory, reason)

    def _is_served(self, partition: Partition) -> bool:
        return partition in self._replicas and partition.log.failure is None

    async def _carry_out_committed(self, partition: Partition) -> None:
        """Carry out the committed erase orders of a log, in as few passes as their size allows. If a batch is damaged,
        each order gets a pass of its own, because the others may name no record of its segment. Raises what
        `_carry_out` raises.
        """
        pending = partition.log.erase_orders
        offsets = [each for each in pending.offsets if each < partition.high_watermark]
        while offsets:
            try:
                await self._carry_out(partition, offsets)
            except MalformedMessage:
                if len(offsets) == 1:
                    raise
                await self._carry_out_one_by_one(partition, offsets)
            offsets = [each for each in offsets if pending.are_pending([each])]

    async def _carry_out_one_by_one(self, partition: Partition, offsets: Sequence[int]) -> None:
        """Carry out each erase order in a pass of its own. After all of them, raises the last `MalformedMessage`;
        raises what else `_carry_out` raises at once.
        """
        damage: MalformedMessage | None = None
        for offset in offsets:
            try:
                await self._carry_out(partition, [offset])
            except MalformedMessage as malformed:
                damage = malformed
        if damage is not None:
            raise damage

    async def _carry_out(self, partition: Partition, offsets: Sequence[int]) -> None:
        """Carry out the erase orders at some offsets of the log in one pass: the oldest ones, if there are too many.
        Raises OSError, `MalformedMessage`, and `LogChanged`. After an error each segment is either the old one or the
        rewritten one.
        """
        # Here, because most brokers never erase.
        from moldau.storage.erasure.receipts import TierReceipt, write_receipt

        environment, its_log, fs = self._environment, partition.log, self._environment.fs
        orders = await self._orders_at(its_log, offsets)
        if not self._is_served(partition):
            raise LogChanged  # Another log may have the paths of its files.
        is_tiered = self._remote is not None and its_log.config.is_tiered
        undone = [each for each in orders if each.receipt.done_ms is None]
        if undone:
            if max(each.last_offset for each in undone) >= its_log.active.base_offset:
                its_log.roll(environment.wall_ms())
            await self._rewriting.make_durable(its_log, its_log.active.base_offset)
            if not self._is_served(partition) or not its_log.erase_orders.are_pending(each.offset for each in undone):
                raise LogChanged
            await self._rewrite(partition, undone)
            for each in undone:
                each.receipt.done_ms = environment.wall_ms()
                each.receipt.tier = TierReceipt() if is_tiered else None
                await environment.offload(partial(write_receipt, fs, its_log.directory, each.receipt))
                self.totals.orders += 1
                self.totals.records += each.receipt.records_erased
        for each in orders:
            self._forget(partition, each, is_tiered=is_tiered)

    async def _orders_at(self, its_log: Log, offsets: Sequence[int]) -> list[OrderInProgress]:
        """The erase orders at some offsets of a log, with their receipts. An order that is not there is forgotten."""
        from moldau.storage.erasure.receipts import read_or_new_receipt

        orders: list[OrderInProgress] = []
        runs_count = 0
        for offset in offsets:
            order = erase_order_at(its_log.segments, offset)
            if order is None:
                its_log.erase_orders.remove_order(offset)
                continue
            runs_count += len(order.runs)
            if orders and runs_count > RUNS_OF_PASS_MAX:
                break
            read = partial(read_or_new_receipt, self._environment.fs, its_log.directory, order, offset)
            orders.append(OrderInProgress(offset, order, await self._environment.offload(read)))
        return orders

    def _forget(self, partition: Partition, done: OrderInProgress, *, is_tiered: bool) -> None:
        """Forget an erase order whose receipt says that it is carried out in the local files."""
        its_log, pending, receipt = partition.log, partition.log.erase_orders, done.receipt
        if pending.are_pending([done.offset]):
            if pending.hidden_runs:
                pending.show_runs(runs_of(done.order))
            if is_tiered:
                pending.note_carried_out_locally(done.offset)
            else:
                pending.remove_order(done.offset)
            its_log.directory_is_dirty = True  # The next flush writes the checkpoint of orders.
        log.info(
            "erase order %s of %s is carried out in %s: %d records of %d segments are gone",
            receipt.order_id,
            done.order.principal,
            its_log.directory,
            receipt.records_erased,
            len(receipt.segments),
        )

    async def _rewrite(self, partition: Partition, orders: Sequence[OrderInProgress]) -> None:
        """Rewrite the segments that have records which erase orders name. Each rewritten segment gets an entry in the
        receipts of the orders that named its records. Raises OSError, `MalformedMessage`, and `LogChanged`.
        """
        from moldau.storage.erasure.erasing import SegmentErased, erase_request
        from moldau.storage.erasure.receipts import write_segment_receipts

        environment, its_log, fs = self._environment, partition.log, self._environment.fs
        receipts = [each.receipt for each in orders]
        request = erase_request(
            its_log,
            [packed_runs_of(each.order) for each in orders],
            min(each.first_offset for each in orders),
            max(each.last_offset for each in orders),
            self._settings.config.integer("log.cleaner.io.buffer.size"),
        )
        throttle = IoThrottle(self._settings, environment)
        replaced: list[str] = []  # The files with the erased records.

        async def on_event(event: EraseEvent) -> None:
            if isinstance(event, SegmentErased):
                await environment.offload(partial(write_segment_receipts, fs, its_log.directory, receipts, event))
                durable = tuple(replaced)  # The receipts are in the same directory, which was synced.
                replaced.extend(await self._swap(partition, event, orders))
                await environment.offload(partial(remove_files, fs, durable))
                del replaced[: len(durable)]
            else:
                await throttle.pace(event)

        await self._process.carry_out(request, on_event)
        await self._rewriting.flush(its_log)
        if not self._is_served(partition):
            raise LogChanged
        # Readers that have one open read on.
        await environment.offload(partial(remove_deleted_files, fs, its_log.directory))
        if not self._is_served(partition) or request.truncation_count != its_log.truncation_count:
            raise LogChanged

    async def _swap(self, partition: Partition, erased: SegmentErased, orders: Sequence[OrderInProgress]) -> list[str]:
        """Put a rewritten segment into the log. What the orders of the pass name in it is not hidden any more; what
        another pending order names there stays hidden. Returns the paths of the replaced files. Raises `LogChanged`.
        """
        its_log, cleaned = partition.log, erased.cleaned
        paths = its_log.swap_cleaned(cleaned, self._environment.wall_ms()) if self._is_served(partition) else None
        if paths is None:
            await self._environment.offload(partial(discard_cleaned, self._environment.fs, cleaned))
            raise LogChanged
        if its_log.erase_orders.hidden_runs:
            for each in orders:
                erased_runs = runs_within(each.order, cleaned.base_offset, cleaned.replaced_end_offset)
                its_log.erase_orders.show_runs(erased_runs)
        return paths


def has_erase_orders(its_log: Log) -> bool:
    return bool(its_log.erase_orders.offsets or its_log.erase_orders.tiered)


def remove_deleted_files(fs: FileSystem, directory: str) -> None:
    """Remove all `.deleted` files of a log, in an executor thread, because they may have records that an order names.
    Raises OSError.

    Some were replaced by this pass, or by an earlier pass with an error. Others are of compaction and retention, and
    wait for file.delete.delay.ms.
    """
    with contextlib.suppress(FileNotFoundError):
        names = fs.list_directory(directory)
        remove_files(fs, [f"{directory}/{name}" for name in names if name.endswith(DELETED_SUFFIX)])


def remove_files(fs: FileSystem, paths: Sequence[str]) -> None:
    """Remove files, in an executor thread. Raises OSError."""
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            fs.unlink(path)
