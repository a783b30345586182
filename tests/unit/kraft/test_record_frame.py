"""The frame of a metadata record, and the version it is written in."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.kraft.features import SUPPORTED_FEATURES, record_version, refusal_of_feature
from moldau.kraft.record_frame import decode_record, encode_record, record_classes
from moldau.protocol.primitives import TEXT_SIZE_MAX, MalformedMessage
from moldau.protocol.records import metadata as records
from moldau.protocol.records.stored_structs import UnreadableRecord
from tests.unit.kraft.image.images import everything, image_of, uuid


@pytest.mark.parametrize("record", everything(), ids=lambda record: type(record).__name__)
def test_every_record_comes_back(record: object) -> None:
    assert decode_record(encode_record(record, record_version(record, 30))) == record


def test_the_bytes_are_kafkas() -> None:
    record = records.TopicRecord(name="a" * 2, topic_id=uuid(42))
    frame = encode_record(record, 0)
    assert frame[:3] == b"\x01\x02\x00", "frame version 1, type 2, version 0"
    assert frame[3:] == b"\x03aa" + uuid(42) + b"\x00"


def test_every_strict_prefix_is_refused() -> None:
    frame = encode_record(image_of(everything()).cluster.brokers[1].to_record(), 4)
    for size in range(len(frame)):
        with pytest.raises(MalformedMessage):
            decode_record(frame[:size])
    with pytest.raises(MalformedMessage):
        decode_record(frame + b"\x00")


def test_a_record_that_its_readers_refuse_is_not_encoded() -> None:
    longest = records.ConfigRecord(resource_type=2, resource_name="t", name="n", value="x" * TEXT_SIZE_MAX)
    assert decode_record(encode_record(longest, 0)) == longest
    for text in ("x" * (TEXT_SIZE_MAX + 1), "\ufffd" * (TEXT_SIZE_MAX // 3 + 1)):
        with pytest.raises(UnreadableRecord, match="ConfigRecord cannot be stored: a string of 3276"):
            encode_record(records.ConfigRecord(resource_type=2, resource_name="t", name="n", value=text), 0)


@pytest.mark.parametrize(
    ("frame", "what"),
    [
        (b"\x00\x02\x00", "frame version 0"),
        (b"\x01\x63\x00", "type 99"),
        (b"\x01\x02\x07", "no version 7"),
        (b"", "0 bytes"),
    ],
)
def test_what_nobody_has_declared_is_refused(frame: bytes, what: str) -> None:
    with pytest.raises(MalformedMessage, match=what):
        decode_record(frame)


@given(st.one_of(st.just(b""), st.sampled_from([*record_classes()]).map(lambda key: bytes([1, key, 0]))), st.binary())
def test_random_bytes_are_refused_or_read(frame: bytes, data: bytes) -> None:
    with suppress(MalformedMessage):
        assert type(decode_record(frame + data)) in record_classes().values()


def test_registrations_are_written_in_the_version_of_the_cluster() -> None:
    registration = image_of(everything()).cluster.brokers[1].to_record()
    assert [record_version(registration, version) for version in (25, 29, 30)] == [3, 3, 4]


@pytest.mark.parametrize(
    ("fields", "version"),
    [
        ({"fenced": 1}, 0),
        ({"in_controlled_shutdown": 1}, 1),
        ({"log_dirs": [uuid(1)]}, 2),
        ({"cordoned_log_dirs": []}, 3),
    ],
)
def test_a_registration_change_is_written_in_the_lowest_version_that_holds_it(
    fields: dict[str, object], version: int
) -> None:
    change = records.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=2, **fields)  # type: ignore[arg-type]
    assert record_version(change, 30) == version
    assert decode_record(encode_record(change, version)) == change


def test_features_are_refused_by_name_and_level() -> None:
    assert refusal_of_feature("group.version", 0) is None
    assert refusal_of_feature("metadata.version", 30) is None
    assert refusal_of_feature("some.version", 0) is None
    for name, level in (("group.version", 2), ("metadata.version", 24), ("metadata.version", 0), ("some.version", 1)):
        refusal = refusal_of_feature(name, level)
        assert refusal is not None and name in refusal and str(level) in refusal
    assert SUPPORTED_FEATURES["metadata.version"].last == 33
