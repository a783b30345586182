"""The language of declarations: what annotations mean, and what objects of a declared class do."""

from __future__ import annotations

from typing import Annotated

import pytest

from moldau.protocol.schema import (
    EMPTY,
    NEVER,
    VERSION_MAX,
    ZERO_UUID,
    Bytes,
    FetchedRecords,
    Int16,
    Int32,
    Range,
    Records,
    Spec,
    Uuid,
    WireType,
    default_struct,
    empty,
    fields_in,
    fields_of,
    message,
    nullable,
    since,
    spec_of,
    struct,
    tag,
    until,
)


@struct
class Leaf:
    number: Int32
    name: str = "none"


@message(key=7, versions="1-9", flexible="4+")
class Tree:
    plain: Int16
    leaf: Leaf
    old: Annotated[Int32, until(3)] = -1
    leaves: Annotated[list[Leaf] | None, since(2), nullable(5)] = empty()
    words: list[str] = empty()
    id: Annotated[Uuid, since(3), until(8)] = ZERO_UUID
    records: Annotated[Records | None, nullable(until=6)] = None
    fetched: Annotated[FetchedRecords | None, nullable()] = None
    blob: Bytes
    second: Annotated[bool, since(4), tag(1)] = False
    first: Annotated[Leaf | None, since(6), tag(0)] = None


@pytest.mark.parametrize(
    ("text", "expected"),
    [("3-13", Range(3, 13)), ("9+", Range(9, VERSION_MAX)), ("0", Range(0, 0)), ("none", NEVER)],
)
def test_ranges_are_in_kafkas_notation(text: str, expected: Range) -> None:
    assert Range.parse(text) == expected
    assert 13 not in NEVER and 0 not in NEVER
    assert "3" not in Range(0, 9)  # type: ignore[comparison-overlap]


def test_a_message_says_its_key_versions_and_flexible_versions() -> None:
    assert spec_of(Tree) == Spec(7, Range(1, 9), Range(4, VERSION_MAX))
    with pytest.raises(AssertionError, match="Leaf is a struct"):
        spec_of(Leaf)


def test_a_field_is_what_its_annotation_says() -> None:
    everything = Range(0, VERSION_MAX)
    assert list(fields_of(Tree)) == [
        ("plain", WireType.INT16, False, everything, NEVER, None, 0),
        ("leaf", Leaf, False, everything, NEVER, None, None),
        ("old", WireType.INT32, False, Range(0, 3), NEVER, None, -1),
        ("leaves", Leaf, True, Range(2, VERSION_MAX), Range(5, VERSION_MAX), None, EMPTY),
        ("words", WireType.STRING, True, everything, NEVER, None, EMPTY),
        ("id", WireType.UUID, False, Range(3, 8), NEVER, None, ZERO_UUID),
        ("records", WireType.RECORDS, False, everything, Range(0, 6), None, None),
        ("fetched", WireType.RECORDS, False, everything, everything, None, None),
        ("blob", WireType.BYTES, False, everything, NEVER, None, b""),
        ("second", WireType.BOOL, False, Range(4, VERSION_MAX), NEVER, 1, False),
        ("first", Leaf, False, Range(6, VERSION_MAX), NEVER, 0, None),
    ]


def test_the_fields_of_a_version_are_plain_tagged_or_absent() -> None:
    plain, tagged, absent = fields_in(Tree, 9)
    assert [each.name for each in plain] == ["plain", "leaf", "leaves", "words", "records", "fetched", "blob"]
    assert [each.name for each in tagged] == ["first", "second"]
    assert [each.name for each in absent] == ["old", "id"]


def test_a_field_without_a_default_must_be_given() -> None:
    with pytest.raises(TypeError, match="'number'"):
        Leaf()  # type: ignore[call-arg]
    assert Leaf(number=1) == Leaf(number=1, name="none")
    with pytest.raises(TypeError, match="'other'"):
        Leaf(number=1, other=2)  # type: ignore[call-arg]


def test_a_list_by_default_is_new_each_time() -> None:
    one, other = (Tree(plain=1, leaf=Leaf(number=1), blob=b"") for _ in range(2))
    one.words.append("mine")
    assert other.words == [] and default_struct(Tree).words == []


def test_messages_are_equal_by_value_and_say_what_they_hold() -> None:
    assert Leaf(number=1) != Leaf(number=2)
    assert Leaf(number=1) != 1  # type: ignore[comparison-overlap]
    assert repr(Leaf(number=1)) == "Leaf(number=1, name='none')"
    with pytest.raises(TypeError, match="unhashable"):
        hash(Leaf(number=1))
    with pytest.raises(AttributeError):
        Leaf(number=1).nmae = "typo"  # type: ignore[attr-defined]


def test_a_type_that_has_no_place_on_the_wire_is_refused() -> None:
    @struct
    class Wrong:
        number: int

    Wrong.__module__ = __name__
    with pytest.raises(AssertionError, match="not a wire type"):
        fields_of(Wrong)
