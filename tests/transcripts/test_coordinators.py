"""The stories of groups of each kind, of transactions and of the state of share groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.coordinator_scribes import (
    ConsumerScribe,
    ShareCoordinatorScribe,
    ShareScribe,
    StreamsScribe,
    TransactionScribe,
)
from tests.support.group_scribe import GroupScribe
from tests.support.machine_scribe import MachineScribe
from tests.support.transcripts import check_transcript, transcripts_in

SCRIBES: dict[str, Callable[[], MachineScribe[Any]]] = {
    "groups": GroupScribe,
    "coordinators/consumer": ConsumerScribe,
    "coordinators/share": ShareScribe,
    "coordinators/streams": StreamsScribe,
    "coordinators/transactions": TransactionScribe,
    "coordinators/share_coordinator": ShareCoordinatorScribe,
}


@pytest.mark.parametrize(("scribe", "name"), [(SCRIBES[of], name) for of in SCRIBES for name in transcripts_in(of)])
def test_story(scribe: Callable[[], MachineScribe[Any]], name: str) -> None:
    check_transcript(name, scribe().respond)
