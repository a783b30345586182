"""The bytes of every declared message are those that Apache Kafka's own classes write."""

from __future__ import annotations

import pytest

from protocol.compiler import decode, encode
from tests.unit.protocol.facts.reading import declared_versions, java_bytes
from tests.unit.protocol.facts.sampling import default_message, sample

CASES = [pytest.param(cls, version, id=f"{cls.__name__}-{version}") for cls, version in declared_versions()]
STARTS = (0, 4)


@pytest.mark.parametrize(("cls", "version"), CASES)
def test_a_sample_is_written_as_java_writes_it(cls: type[object], version: int) -> None:
    for start, written in zip(STARTS, java_bytes()[cls.__name__, version].samples, strict=True):
        assert encode(sample(cls, version, start), version) == written


@pytest.mark.parametrize(("cls", "version"), CASES)
def test_a_sample_is_read_as_java_wrote_it(cls: type[object], version: int) -> None:
    for start, written in zip(STARTS, java_bytes()[cls.__name__, version].samples, strict=True):
        read = decode(cls, written, version)
        assert read == sample(cls, version, start)
        assert encode(read, version) == written


@pytest.mark.parametrize(("cls", "version"), CASES)
def test_a_message_of_defaults_is_written_and_read_as_by_java(cls: type[object], version: int) -> None:
    written = java_bytes()[cls.__name__, version].default
    assert encode(default_message(cls), version) == written
    assert decode(cls, written, version) == decode(cls, encode(default_message(cls), version), version)
