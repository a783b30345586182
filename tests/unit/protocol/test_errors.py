"""The error codes are those of the release, all of them."""

from __future__ import annotations

from moldau.protocol.errors import ErrorCode
from tests.unit.protocol.facts.reading import error_names


def test_every_code_has_its_name() -> None:
    assert {code.value: code.name for code in ErrorCode} == error_names()


def test_a_code_is_an_integer_that_a_message_can_hold() -> None:
    assert int(ErrorCode.UNKNOWN_SERVER_ERROR) == -1
    assert ErrorCode(0) is ErrorCode.NONE
