"""The ACLs that each node of a simulated cluster has at a moment, and the decisions that follow from them.

A decision is judged only if no node's ACLs changed between the request and its response: then the deciding node had
the ACLs that the view shows.
"""

from __future__ import annotations

from typing import NamedTuple

from moldau.kraft.image.security.acls import AclsImage
from moldau.security.access import AclOperation, ResourceKind
from moldau.security.principal import Principal
from tests.support.acl_draws import Question, reference
from tests.support.cluster import Cluster

NO_HOST = "0.0.0.0"
"""The ACLs of simulations name no address."""


class Wanted(NamedTuple):
    """The permission that a request needs."""

    operation: AclOperation
    kind: ResourceKind
    name: str


class NodeView(NamedTuple):
    """One node that decides by its ACLs."""

    life: int
    """The number of its process."""
    acls: AclsImage
    leads: bool
    """Whether it is the active controller, as far as it knows."""


class AclView(NamedTuple):
    """All nodes at one moment."""

    nodes: dict[int, NodeView]
    leader_epoch: int
    """The highest epoch of the quorum that any of them knows."""

    @classmethod
    def of(cls, cluster: Cluster) -> AclView:
        nodes, leader_epoch = {}, -1
        for node in cluster.nodes.values():
            broker = node.broker
            if broker is None or not node.is_up or not broker.quorum.is_open:
                continue
            authorizer = broker.security.authorizer
            assert authorizer is not None, "a cluster without an authorizer has no ACLs to view"
            leader_epoch = max(leader_epoch, broker.quorum.leader_epoch)
            if authorizer.is_loaded:
                leads = broker.quorum.active_controller is not None
                nodes[node.id] = NodeView(node.host.lives, broker.quorum.image.acls, leads)
        return cls(nodes, leader_epoch)

    def is_same_at(self, later: AclView, node_id: int) -> bool:
        """Whether a node had the same process and the same ACLs at both moments."""
        one, other = self.nodes.get(node_id), later.nodes.get(node_id)
        return one is not None and other is not None and one.life == other.life and one.acls is other.acls

    def is_led_elsewhere(self, later: AclView, node_id: int) -> bool:
        """Whether a node did not lead at either moment, and nothing was elected between them."""
        views = [view.nodes.get(node_id) for view in (self, later)]
        return self.leader_epoch == later.leader_epoch and all(each is not None and not each.leads for each in views)


def decisions_of_broker(
    before: AclView, after: AclView, node_id: int, principal: Principal, wanted: Wanted
) -> set[bool] | None:
    """The decisions that a broker may have made between two moments; None if its ACLs changed meanwhile."""
    if not before.is_same_at(after, node_id):
        return None
    return {decision(before.nodes[node_id].acls, principal, wanted)}


def decisions_of_controller(before: AclView, after: AclView, principal: Principal, wanted: Wanted) -> set[bool] | None:
    """The decisions that the active controller may have made between two moments; None if ACLs changed meanwhile.

    A controller that was deposed and does not know it yet decides too, but cannot commit anything.
    """
    if before.nodes.keys() != after.nodes.keys() or not all(before.is_same_at(after, each) for each in before.nodes):
        return None
    views = [*before.nodes.values(), *after.nodes.values()]
    leading = [each for each in views if each.leads]
    if before.leader_epoch != after.leader_epoch or not leading:
        leading = views
    distinct = {id(each.acls): each.acls for each in leading}
    return {decision(acls, principal, wanted) for acls in distinct.values()} or None


def decision(acls: AclsImage, principal: Principal, wanted: Wanted) -> bool:
    """The decision by the rules of the documentation."""
    question = Question(str(principal), NO_HOST, wanted.operation, wanted.kind, wanted.name)
    return reference(list(acls.by_id.values()), question, allows_without_acls=False)
