"""Applies the client quotas of the metadata on a node, and replaces the request handlers of routes while quotas are
set.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from moldau.broker.metadata.quorum import Quorum
from moldau.broker.network.client_quotas import ClientQuotas, ThrottledRequests
from moldau.broker.network.connection_quota import AddressRates, SharedConnectionLimits
from moldau.broker.network.listener import Listener
from moldau.broker.network.route import ListenerRole, Route
from moldau.broker.runtime.environment import Environment
from moldau.kraft.image.metadata_image import MetadataDelta, MetadataImage
from moldau.protocol.messages.create_partitions import CreatePartitionsRequest
from moldau.protocol.messages.create_topics import CreateTopicsRequest
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest
from moldau.protocol.schema import spec_of
from moldau.security.quotas.entity import CONNECTION_CREATION_RATE, QuotaEntity

MUTATIONS = frozenset(spec_of(each).key for each in (CreateTopicsRequest, CreatePartitionsRequest, DeleteTopicsRequest))
"""The keys of the APIs that a controller throttles (KIP-599)."""


class NodeQuotas:
    """Applies the client quotas of the metadata. While no quota is set, routes and listeners have no overhead."""

    def __init__(
        self,
        clients: ClientQuotas,
        addresses: AddressRates,
        environment: Environment,
        listeners: Sequence[Listener],
        admissions: Sequence[SharedConnectionLimits],
    ) -> None:
        self._clients = clients
        self._addresses = addresses
        self._listeners = listeners
        self._admissions = admissions
        self._governors = {
            role: ThrottledRequests(
                clients,
                environment.precise_ns,
                environment.monotonic_ms,
                counts=role is ListenerRole.BROKER,
            )
            for role in (ListenerRole.BROKER, ListenerRole.CONTROLLER)
        }
        self._are_governed = False

    def begin(self, quorum: Quorum) -> None:
        """Apply the quotas of the current metadata, and from now on every change of them."""
        self._apply(dict(quorum.image.quotas.by_entity.items()))
        quorum.subscribe(self._published)

    def _published(self, image: MetadataImage, delta: MetadataDelta) -> None:
        if delta.quotas.changed:
            self._apply({entity: image.quotas.by_entity.get(entity) for entity in delta.quotas.changed})

    def _apply(self, entities: Mapping[QuotaEntity, Mapping[str, float] | None]) -> None:
        clients = self._clients
        clients.changed(entities)
        rates = self._addresses if clients.limits.are_set(CONNECTION_CREATION_RATE) else None
        for admission in self._admissions:
            admission.limit_addresses(rates)
        are_governed = not clients.is_idle
        if are_governed != self._are_governed:
            self._are_governed = are_governed
            for listener in self._listeners:
                governor = self._governors[listener.role] if are_governed else None
                for route in governed_routes(listener):
                    route.govern(governor)


def governed_routes(listener: Listener) -> Iterable[Route]:
    """The routes of a listener to which quotas apply: all routes of a broker's listener, and on a controller's listener
    the routes of the APIs in `MUTATIONS`.
    """
    routes = listener.routes.values()
    return routes if listener.role is ListenerRole.BROKER else (each for each in routes if each.key in MUTATIONS)
