"""BrokerHeartbeat: the state of a broker between registration and shutdown.

The state is part of the broker's registration; a heartbeat may request another state.

    fenced ⇄ unfenced → in controlled shutdown → shut down (fenced, and told to exit)

A broker is unfenced once it has read the metadata log up to its own registration. A broker that shuts down hands over
its partitions, some with each heartbeat, so that clients wait for few partitions at a time. It may exit once it has no
partitions left and every other active broker has read the records with the new leaders. After that it has to register
again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum, auto
from itertools import chain
from typing import Final

from moldau.kraft.controller.context import DecisionContext
from moldau.kraft.controller.decision import Decision
from moldau.kraft.controller.partitions.leadership import (
    Changes,
    changes_with,
    changes_without,
    changes_without_directories,
)
from moldau.kraft.controller.view import ControllerView
from moldau.kraft.features import CORDONED_LOG_DIRS_VERSION
from moldau.kraft.image.cluster import ENTERS_CONTROLLED_SHUTDOWN, FENCE, UNFENCE, Broker
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from moldau.protocol.records.metadata import BrokerRegistrationChangeRecord

HANDED_OVER_PARTITIONS_MIN: Final = 64
HANDED_OVER_DIVISOR: Final = 8
"""At each heartbeat a broker in controlled shutdown hands over 1/`HANDED_OVER_DIVISOR` of the partitions in whose
in-sync sets it is, at least `HANDED_OVER_PARTITIONS_MIN`.
"""


class BrokerState(Enum):
    FENCED = auto()
    UNFENCED = auto()
    CONTROLLED_SHUTDOWN = auto()
    SHUTDOWN_NOW = auto()


class RequestedState(Enum):
    """The state that a broker requests for itself in a heartbeat."""

    SERVE = auto()
    FENCE = auto()
    SHUT_DOWN = auto()


F, U, C, S = BrokerState.FENCED, BrokerState.UNFENCED, BrokerState.CONTROLLED_SHUTDOWN, BrokerState.SHUTDOWN_NOW

NEXT_STATE: dict[tuple[BrokerState, RequestedState], BrokerState] = {
    # `next_state` keeps the broker fenced until it has caught up; it never unfences a broker after its shutdown.
    (F, RequestedState.SERVE): U,
    (F, RequestedState.FENCE): F,
    (F, RequestedState.SHUT_DOWN): S,
    (U, RequestedState.SERVE): U,
    (U, RequestedState.FENCE): F,
    (U, RequestedState.SHUT_DOWN): C,  # A broker that leads nothing goes straight on to S.
    (C, RequestedState.SERVE): C,
    (C, RequestedState.FENCE): C,
    # `next_state` keeps the broker in this state while it has partitions to hand over.
    (C, RequestedState.SHUT_DOWN): S,
}


def state_of(broker: Broker) -> BrokerState:
    if broker.fenced:
        return BrokerState.FENCED
    return BrokerState.CONTROLLED_SHUTDOWN if broker.in_controlled_shutdown else BrokerState.UNFENCED


def requested_state_of(request: BrokerHeartbeatRequest) -> RequestedState:
    if request.want_shut_down:
        return RequestedState.SHUT_DOWN
    return RequestedState.FENCE if request.want_fence else RequestedState.SERVE


def heartbeat(context: DecisionContext, request: BrokerHeartbeatRequest) -> Decision:
    """Decide the next state of a broker, and handle the log directories that failed or were cordoned.

    DIVERGES: Apache Kafka may unfence a broker with the heartbeat that first reports a failed log directory. It then
    elects the broker for partitions in that directory, and removes it from their in-sync sets. Here such a broker stays
    fenced until its next heartbeat.
    """
    view, sessions = context.view, context.sessions
    broker = view.image.cluster.brokers.get(request.broker_id)
    if broker is None or broker.epoch != request.broker_epoch:
        return refused(ErrorCode.STALE_BROKER_EPOCH)  # The session of the live incarnation is not extended.
    sessions.note_heartbeat(broker.id, broker.epoch, context.now_ms, request.current_metadata_offset)
    context.failure_detector.heartbeat(broker.id, context.now_ms)
    is_caught_up = request.current_metadata_offset >= broker.epoch
    state = state_of(broker)
    requested = requested_state_of(request)
    moves = shutdown_changes(view, broker, state, requested)
    if state is BrokerState.CONTROLLED_SHUTDOWN and not moves:
        sessions.note_shutdown(broker.id, view.image.provenance.end_offset)
    may_go = not moves and sessions.is_shutdown_known(broker.id, view.image.cluster)
    after = next_state(view, broker, state, requested, is_caught_up=is_caught_up, may_go=may_go)
    failed = newly_failed_directories(broker, request.offline_log_dirs)
    if failed and state is BrokerState.FENCED and after is BrokerState.UNFENCED:
        after = BrokerState.FENCED
    records = chain(
        records_of_transition(view, broker, state, after, moves),
        records_of_failed_directories(view, broker, failed),
        records_of_cordoned_directories(view, broker, request.cordoned_log_dirs),
    )
    return Decision.in_slices(
        records,
        BrokerHeartbeatResponse(
            is_caught_up=is_caught_up,
            is_fenced=after in (BrokerState.FENCED, BrokerState.SHUTDOWN_NOW),
            should_shut_down=after is BrokerState.SHUTDOWN_NOW,
        ),
    )


def refused(error: ErrorCode) -> Decision:
    return Decision((), BrokerHeartbeatResponse(error_code=error, should_shut_down=False))


def next_state(
    view: ControllerView,
    broker: Broker,
    state: BrokerState,
    requested: RequestedState,
    *,
    is_caught_up: bool,
    may_go: bool,
) -> BrokerState:
    """The state of a broker after a heartbeat. `may_go` means that the broker has handed over all its partitions, and
    the other active brokers know the new leaders.

    DIVERGES: Apache Kafka unfences a broker that was told to exit if an earlier heartbeat of the broker arrives after
    that; it then elects the broker for partitions for which it is in sync.
    """
    after = NEXT_STATE[state, requested]
    may_serve = is_caught_up and not broker.in_controlled_shutdown
    if state is BrokerState.FENCED and after is BrokerState.UNFENCED and not may_serve:
        return BrokerState.FENCED
    leads = bool(view.by_broker.partitions_led(broker.id))
    if state is BrokerState.UNFENCED and after is BrokerState.CONTROLLED_SHUTDOWN and not leads:
        return BrokerState.SHUTDOWN_NOW
    if state is BrokerState.CONTROLLED_SHUTDOWN and after is BrokerState.SHUTDOWN_NOW and (leads or not may_go):
        return BrokerState.CONTROLLED_SHUTDOWN
    return after


def shutdown_changes(
    view: ControllerView, broker: Broker, state: BrokerState, requested: RequestedState
) -> Changes | None:
    """The changes by which a broker in controlled shutdown hands over its next partitions, with None for each examined
    partition that does not change. `HANDED_OVER_DIVISOR` limits the partitions of one heartbeat. Returns None if the
    broker has nothing to hand over, or does not shut down.

    DIVERGES: Apache Kafka hands over all partitions of the broker at one heartbeat, so the clients of each partition
    wait until the brokers have replayed the records of all of them. Apache Kafka writes the record of the shutdown
    before these records. Here it follows the records of the first heartbeat, because a decision that is made in slices
    must be sound after each slice.
    """
    begins = state is BrokerState.UNFENCED and requested is RequestedState.SHUT_DOWN
    if not begins and state is not BrokerState.CONTROLLED_SHUTDOWN:
        return None
    count = max(HANDED_OVER_PARTITIONS_MIN, len(view.by_broker.partitions_in_sync(broker.id)) // HANDED_OVER_DIVISOR)
    changes = changes_without(view, broker.id)
    first = next(filter(None, changes), None)
    return None if first is None else chain([first], first_changes(changes, count - 1))


def first_changes(changes: Changes, count: int) -> Changes:
    """Yield the elements of `changes` up to the `count`-th one that is not None."""
    for change in changes:
        yield change
        count -= change is not None
        if not count:
            return


def records_of_transition(
    view: ControllerView, broker: Broker, state: BrokerState, after: BrokerState, moves: Changes | None
) -> Iterable[object | None]:
    if after is state:
        return moves or ()
    match after:
        case BrokerState.UNFENCED:
            return chain([registration_change(broker, fenced=UNFENCE)], changes_with(view, broker.id))
        case BrokerState.CONTROLLED_SHUTDOWN:
            return chain(moves or (), [registration_change(broker, shuts_down=ENTERS_CONTROLLED_SHUTDOWN)])
    return fencing_records(view, broker)


def newly_failed_directories(broker: Broker, offline: Sequence[bytes]) -> list[bytes]:
    """The failed log directories that a heartbeat reports and the registration still has: every heartbeat names all
    failed ones. Empty if the broker has no other directory, because such a broker stops by itself (KIP-858)."""
    failed = [directory for directory in broker.directories if directory in offline]
    return failed if len(failed) < len(broker.directories) else []


def records_of_failed_directories(
    view: ControllerView, broker: Broker, failed: Sequence[bytes]
) -> Iterable[object | None]:
    """The changes to make if a heartbeat reports newly failed log directories."""
    if not failed:
        return []
    left = [directory for directory in broker.directories if directory not in failed]
    changed = BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, log_dirs=left)
    return chain(changes_without_directories(view, broker.id, failed), [changed])


def records_of_cordoned_directories(
    view: ControllerView, broker: Broker, cordoned: Sequence[bytes] | None
) -> Iterable[object]:
    is_supported = view.image.features.metadata_version >= CORDONED_LOG_DIRS_VERSION
    if cordoned is None or not is_supported or tuple(cordoned) == broker.cordoned_directories:
        return []
    return [
        BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, cordoned_log_dirs=list(cordoned))
    ]


def fencing_records(view: ControllerView, broker: Broker) -> Iterable[object | None]:
    if broker.fenced:
        return []
    return chain(changes_without(view, broker.id), [registration_change(broker, fenced=FENCE)])


def registration_change(broker: Broker, *, fenced: int = 0, shuts_down: int = 0) -> BrokerRegistrationChangeRecord:
    return BrokerRegistrationChangeRecord(
        broker_id=broker.id, broker_epoch=broker.epoch, fenced=fenced, in_controlled_shutdown=shuts_down
    )
