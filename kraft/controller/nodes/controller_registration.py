"""ControllerRegistration: a controller registers its addresses and the features that it supports (KIP-919).

UnregisterController removes the registration of a controller that will not return.
"""

from __future__ import annotations

from moldau.kraft.controller.context import DecisionContext
from moldau.kraft.controller.decision import Decision
from moldau.kraft.features import CONTROLLER_UNREGISTRATION_VERSION
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from moldau.protocol.messages.unregister_controller import UnregisterControllerRequest, UnregisterControllerResponse
from moldau.protocol.records.metadata import (
    ControllerEndpoint,
    ControllerFeature,
    RegisterControllerRecord,
    UnregisterControllerRecord,
)


def register_controller(context: DecisionContext, request: ControllerRegistrationRequest) -> Decision:
    return Decision([registration_record(request)], ControllerRegistrationResponse())


def registration_record(request: ControllerRegistrationRequest) -> RegisterControllerRecord:
    """The record of a controller's registration. The active controller also writes one for itself."""
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


def unregister_controller(context: DecisionContext, request: UnregisterControllerRequest) -> Decision:
    """Remove the registration of a controller. A controller that still runs registers again."""
    controller_id = request.controller_id
    if controller_id == context.settings.node_id:
        return refused(ErrorCode.INVALID_REQUEST, "Controller cannot unregister itself while it is active.")
    if context.image.features.metadata_version < CONTROLLER_UNREGISTRATION_VERSION:
        too_old = "The current MetadataVersion is too old to support controller unregistration."
        return refused(ErrorCode.UNSUPPORTED_VERSION, too_old)
    if controller_id not in context.image.cluster.controllers:
        unknown = f"Controller ID {controller_id} is not currently registered."
        return refused(ErrorCode.CONTROLLER_ID_NOT_REGISTERED, unknown)
    return Decision([UnregisterControllerRecord(controller_id=controller_id)], UnregisterControllerResponse())


def refused(error: ErrorCode, message: str) -> Decision:
    return Decision((), UnregisterControllerResponse(error_code=error, error_message=message))
