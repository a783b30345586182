"""The bytes of every declared message are those that Apache Kafka's own classes write."""

from __future__ import annotations

import pytest

from moldau.protocol.compiler import decode, encode
from tests.unit.protocol.facts.reading import declared, java_bytes, served_versions
from tests.unit.protocol.facts.sampling import default_message, sample

each_message = pytest.mark.parametrize("cls", declared().values(), ids=declared())
STARTS = (0, 4)


@each_message
def test_samples_are_written_as_java_writes_them(cls: type[object]) -> None:
    for version in served_versions(cls):
        for start, written in zip(STARTS, java_bytes()[cls.__name__, version].samples, strict=True):
            assert encode(sample(cls, version, start), version) == written, version


@each_message
def test_samples_are_read_as_java_wrote_them(cls: type[object]) -> None:
    for version in served_versions(cls):
        for start, written in zip(STARTS, java_bytes()[cls.__name__, version].samples, strict=True):
            read = decode(cls, written, version)
            assert read == sample(cls, version, start), version
            assert encode(read, version) == written, version


@each_message
def test_a_message_of_defaults_is_written_and_read_as_by_java(cls: type[object]) -> None:
    for version in served_versions(cls):
        written = java_bytes()[cls.__name__, version].default
        assert encode(default_message(cls), version) == written, version
        assert encode(decode(cls, written, version), version) == written, version
