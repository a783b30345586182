"""ControllerRegistration: a controller reports its addresses and the features that it supports (KIP-919)."""

from __future__ import annotations

from moldau.kraft.controller.context import DecisionContext
from moldau.kraft.controller.decision import Decision
from moldau.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from moldau.protocol.records.metadata import ControllerEndpoint, ControllerFeature, RegisterControllerRecord


def register_controller(context: DecisionContext, request: ControllerRegistrationRequest) -> Decision:
    return Decision([registration_record(request)], ControllerRegistrationResponse())


def registration_record(request: ControllerRegistrationRequest) -> RegisterControllerRecord:
    """The record of a controller's registration; the active controller writes one for itself."""
    return RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        zk_migration_ready=request.zk_migration_ready,
        end_points=[
            ControllerEndpoint(name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol)
            for each in request.listeners
        ],
        features=[
            ControllerFeature(
                name=each.name,
                min_supported_version=each.min_supported_version,
                max_supported_version=each.max_supported_version,
            )
            for each in request.features
        ],
    )
