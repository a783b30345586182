"""Principals in envelopes: written as Apache Kafka writes them, and read without trust."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.broker.metadata.enveloping import read_principal, written_principal
from moldau.protocol.primitives import MalformedMessage
from moldau.security.principal import ANONYMOUS, Principal

NAMES = st.text(min_size=1, max_size=200).filter(lambda text: text.isprintable())


def test_the_anonymous_principal() -> None:
    data = b"\0\0" + b"\x05User" + b"\x0aANONYMOUS" + b"\0" + b"\0"
    assert written_principal(ANONYMOUS) == data
    assert read_principal(data) == ANONYMOUS


@given(NAMES, NAMES, st.booleans())
def test_what_is_written_is_read(kind: str, name: str, is_token: bool) -> None:
    principal = Principal(kind, name, is_token)
    assert read_principal(written_principal(principal)) == principal


@given(st.binary(max_size=40))
def test_hostile_bytes_are_an_error_of_a_known_kind(data: bytes) -> None:
    with contextlib.suppress(MalformedMessage, IndexError):
        principal = read_principal(b"\0\0" + data)
        assert read_principal(written_principal(principal)) == principal


@pytest.mark.parametrize(
    "data", [None, b"", b"\0\1", b"\0\0\1\1\0\0", b"\0\0\x05User\x01\0\0", b"\0\0\x05User\x02\xff\0\0"]
)
def test_a_principal_without_a_name_is_refused(data: bytes | None) -> None:
    with pytest.raises((MalformedMessage, IndexError)):
        read_principal(data)
