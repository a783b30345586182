"""The error codes are those of the release, all of them."""

from __future__ import annotations

from moldau.protocol.errors import ErrorCode, error_name
from tests.unit.protocol.facts.reading import error_names


def test_every_code_has_its_name() -> None:
    assert {code.value: code.name for code in ErrorCode} == error_names()


def test_a_code_is_an_integer_that_a_message_can_hold() -> None:
    assert int(ErrorCode.UNKNOWN_SERVER_ERROR) == -1
    assert ErrorCode(0) is ErrorCode.NONE


def test_a_code_of_a_later_release_is_an_unknown_error_and_keeps_its_number_as_a_name() -> None:
    later = max(ErrorCode) + 1
    assert ErrorCode(later) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert (error_name(later), error_name(3)) == (f"error {later}", "UNKNOWN_TOPIC_OR_PARTITION")
