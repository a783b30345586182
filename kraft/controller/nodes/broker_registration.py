"""BrokerRegistration registers an incarnation of a broker with its directories and features, and assigns the broker
epoch. UnregisterBroker removes the registration, after other replicas have taken over the leadership of its partitions.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from moldau.kraft.controller.context import DecisionContext
from moldau.kraft.controller.decision import ApiError, Decision, record_slices
from moldau.kraft.controller.partitions.leadership import Changes, changes_after_loss, changes_without
from moldau.kraft.controller.view import ControllerView
from moldau.kraft.features import KRAFT_VERSION, METADATA_VERSION
from moldau.kraft.image.cluster import Broker
from moldau.kraft.image.metadata_image import MetadataImage
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from moldau.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from moldau.protocol.records.metadata import (
    BrokerEndpoint,
    BrokerFeature,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)

RESERVED_DIRECTORIES_COUNT = 100
"""Directory ids below this number are reserved for special meanings, and no log directory has such an id."""


def register_broker(context: DecisionContext, request: BrokerRegistrationRequest) -> Decision:
    """Register a new incarnation of a broker.

    The records that take its partitions from the earlier incarnation come before the registration. A controller that
    fails after the first of them leaves the broker unregistered, and the broker registers again.
    """
    view, image = context.view, context.image
    existing = image.cluster.brokers.get(request.broker_id)
    is_alive = context.sessions.is_alive(existing, context.now_ms)
    refusals = (
        refusal_of_cluster(request, view.settings.cluster_id),
        refusal_of_duplicate(request, existing if is_alive else None),
        refusal_of_directories(image, request),
        refusal_of_features(view, request),
    )
    for refusal in refusals:
        if refusal is not None:
            return Decision((), BrokerRegistrationResponse(error_code=refusal.error))
    reply = BrokerRegistrationResponse()
    return Decision.of_batches(batches_of(context, request, existing, reply), reply)


def batches_of(
    context: DecisionContext,
    request: BrokerRegistrationRequest,
    existing: Broker | None,
    reply: BrokerRegistrationResponse,
) -> Iterator[list[object]]:
    """Yield the batches of records of a registration. `reply` gets the broker epoch when the last batch is made.
    `existing` is the broker's present registration."""
    is_same = existing is not None and existing.incarnation_id == request.incarnation_id
    given_up = iter(()) if is_same else changes_of_restart(context.view, request, existing)
    last: list[object] | None = None
    for batch in record_slices(given_up):
        if last is not None:
            yield last
        last = batch
    last = last or []
    record = record_of(request, context.end_offset() + len(last), existing if is_same else None)
    reply.broker_epoch = record.broker_epoch
    yield [*last, record]


def changes_of_restart(view: ControllerView, request: BrokerRegistrationRequest, existing: Broker | None) -> Changes:
    """The changes that a restart of the broker makes to its partitions.

    A clean stop leaves the broker epoch on disk (KIP-966). A broker that cannot name that epoch may have lost records
    that were not synced.
    """
    is_clean = existing is not None and existing.epoch == request.previous_broker_epoch
    if view.has_eligible_replicas and not is_clean:
        return changes_after_loss(view, request.broker_id)
    return changes_without(view, request.broker_id)


def record_of(request: BrokerRegistrationRequest, next_offset: int, amended: Broker | None) -> RegisterBrokerRecord:
    """The record of a registration.

    `amended` is the present registration if it is of the same incarnation; None for a new incarnation. A new
    incarnation is fenced at first, and its broker epoch is `next_offset`, the offset of this record.
    """
    return RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        broker_epoch=next_offset if amended is None else amended.epoch,
        end_points=[
            BrokerEndpoint(
                name=listener.name,
                host=listener.host,
                port=listener.port,
                security_protocol=listener.security_protocol,
            )
            for listener in request.listeners
        ],
        features=[
            BrokerFeature(
                name=feature.name,
                min_supported_version=feature.min_supported_version,
                max_supported_version=feature.max_supported_version,
            )
            for feature in request.features
        ],
        rack=request.rack,
        fenced=True if amended is None else amended.fenced,
        in_controlled_shutdown=False if amended is None else amended.in_controlled_shutdown,
        log_dirs=list(request.log_dirs),
    )


def refusal_of_cluster(request: BrokerRegistrationRequest, cluster_id: str) -> ApiError | None:
    if request.cluster_id == cluster_id:
        return None
    return ApiError(
        ErrorCode.INCONSISTENT_CLUSTER_ID, f"Expected cluster ID {cluster_id}, but got cluster ID {request.cluster_id}"
    )


def refusal_of_duplicate(request: BrokerRegistrationRequest, alive: Broker | None) -> ApiError | None:
    """The error if another process with the same broker id is alive and not in controlled shutdown; None otherwise.
    `alive` is the registration of the broker with this id, if that broker is alive."""
    if alive is None or alive.incarnation_id == request.incarnation_id or alive.in_controlled_shutdown:
        return None
    return ApiError(
        ErrorCode.DUPLICATE_BROKER_REGISTRATION, f"Another broker is registered with broker id {request.broker_id}."
    )


def refusal_of_directories(image: MetadataImage, request: BrokerRegistrationRequest) -> ApiError | None:
    directories = request.log_dirs
    if not directories:
        return ApiError(ErrorCode.INVALID_REGISTRATION, "No directories specified in request")
    if any(int.from_bytes(directory, "big") < RESERVED_DIRECTORIES_COUNT for directory in directories):
        return ApiError(ErrorCode.INVALID_REGISTRATION, "Reserved directory ID in request")
    if len(set(directories)) != len(directories):
        return ApiError(ErrorCode.INVALID_REGISTRATION, "Duplicate directory ID in request")
    for broker in image.cluster.brokers.values():
        if broker.id != request.broker_id and not set(directories).isdisjoint(broker.directories):
            return ApiError(
                ErrorCode.INVALID_REGISTRATION, f"Broker {broker.id} is already registered with a directory"
            )
    return None


def refusal_of_features(view: ControllerView, request: BrokerRegistrationRequest) -> ApiError | None:
    supported = {feature.name: feature for feature in request.features}
    for name, level in finalized_features(view):
        feature = supported.get(name)
        if feature is None or not feature.min_supported_version <= level <= feature.max_supported_version:
            return ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Unable to register because the broker does not support finalized version {level} of {name}.",
            )
    return None


def finalized_features(view: ControllerView) -> Iterator[tuple[str, int]]:
    """Yield the name and level of each finalized feature: those of the metadata log, and kraft.version, which the
    quorum stores."""
    image = view.image
    yield METADATA_VERSION, image.features.metadata_version
    if view.settings.quorum.kraft_version > 0:
        yield KRAFT_VERSION, view.settings.quorum.kraft_version
    yield from ((name, level) for name, level in image.features.levels.items() if name != METADATA_VERSION)


# UnregisterBroker


def unregister_broker(context: DecisionContext, request: UnregisterBrokerRequest) -> Decision:
    """Remove the registration of a broker.

    Before that, other replicas become leaders of its partitions. The broker stays in the replica lists until a
    reassignment removes it.
    """
    view = context.view
    broker = view.image.cluster.brokers.get(request.broker_id)
    if broker is None:
        return Decision(
            (),
            UnregisterBrokerResponse(
                error_code=ErrorCode.BROKER_ID_NOT_REGISTERED,
                error_message=f"Broker ID {request.broker_id} is not currently registered",
            ),
        )
    leaves = changes_after_loss if view.has_eligible_replicas else changes_without
    record = UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch)
    return Decision.in_slices(chain(leaves(view, broker.id), [record]), UnregisterBrokerResponse(error_message=""))
