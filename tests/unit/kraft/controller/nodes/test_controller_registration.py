"""UnregisterController; replies were observed on Apache Kafka 4.4.0."""

from __future__ import annotations

import pytest

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.controller_registration import ControllerRegistrationRequest
from moldau.protocol.messages.unregister_controller import UnregisterControllerRequest, UnregisterControllerResponse
from moldau.protocol.records.metadata import UnregisterControllerRecord
from tests.support.deciding import Deciding

OTHER = 7
OWN = 0
UNREGISTERING = 33
"""The metadata version that has the record."""


def unregister(cluster: Deciding, controller_id: int) -> tuple[int, str | None]:
    reply = cluster.ask(UnregisterControllerRequest(controller_id=controller_id))
    assert isinstance(reply, UnregisterControllerResponse)
    return reply.error_code, reply.error_message


def with_a_second_controller(metadata_version: int) -> Deciding:
    cluster = Deciding()
    cluster.finalize("metadata.version", metadata_version)
    cluster.ask(
        ControllerRegistrationRequest(
            controller_id=OTHER, incarnation_id=bytes(16), zk_migration_ready=False, listeners=[], features=[]
        )
    )
    assert OTHER in cluster.image.cluster.controllers
    return cluster


def test_a_controller_that_does_not_come_back_is_unregistered_once() -> None:
    cluster = with_a_second_controller(UNREGISTERING)
    assert unregister(cluster, OTHER) == (ErrorCode.NONE, "")
    assert cluster.written == [UnregisterControllerRecord(controller_id=OTHER)]
    assert OTHER not in cluster.image.cluster.controllers
    assert cluster.replayed_snapshot() == cluster.image
    unknown = "Controller ID 7 is not currently registered."
    assert unregister(cluster, OTHER) == (ErrorCode.CONTROLLER_ID_NOT_REGISTERED, unknown)
    assert not cluster.written


@pytest.mark.parametrize("metadata_version", [UNREGISTERING - 1, UNREGISTERING])
def test_the_active_controller_does_not_unregister_itself(metadata_version: int) -> None:
    cluster = with_a_second_controller(metadata_version)
    message = "Controller cannot unregister itself while it is active."
    assert unregister(cluster, OWN) == (ErrorCode.INVALID_REQUEST, message)
    assert not cluster.written


def test_an_older_metadata_version_keeps_the_record_out_of_the_log() -> None:
    cluster = with_a_second_controller(UNREGISTERING - 1)
    message = "The current MetadataVersion is too old to support controller unregistration."
    assert unregister(cluster, OTHER) == (ErrorCode.UNSUPPORTED_VERSION, message)
    assert OTHER in cluster.image.cluster.controllers
