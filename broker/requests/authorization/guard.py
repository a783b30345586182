"""Puts the rule of an API before its handler, on a node with an authorizer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from moldau.broker.metadata.refusals import refused
from moldau.broker.network.listener_role import ListenerRole
from moldau.kraft.controller.apis import CONTROLLER_APIS
from moldau.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from moldau.broker.network.route import RequestContext
    from moldau.broker.requests.authorization.rule import Answer, Rule
    from moldau.broker.requests.services import Services


def guarded(
    rule: Rule, role: ListenerRole, services: Services, answer: Answer
) -> Callable[[RequestContext, object], object]:
    """The handler of an API behind its rule. `answer` is the handler, `role` the role of the listener: one of
    the two.
    """
    is_for_leader = role is ListenerRole.CONTROLLER

    def handle(context: RequestContext, request: object) -> object:
        if is_for_leader and type(request) in CONTROLLER_APIS and services.quorum.active_controller is None:
            # The metadata of a controller that does not lead may be old: what it knows of ACLs decides nothing.
            return refused(request, ErrorCode.NOT_CONTROLLER)
        access = context.access
        begins = access.begin_request()
        try:
            return rule(services, context, request, answer)
        finally:
            if begins:
                access.end_request()

    return handle
