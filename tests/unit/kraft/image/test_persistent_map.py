"""A map that remembers what it was."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.kraft.image.persistent_map import BUCKET_SIZE, BUCKETS_MIN, PersistentMap, hash_of_text, hash_of_uuid

CHANGES = st.dictionaries(st.text(max_size=3), st.none() | st.integers(), max_size=20)


@pytest.mark.slow
@settings(deadline=None)
@given(st.lists(CHANGES, max_size=20))
def test_every_version_stays_what_it_was(steps: list[dict[str, int | None]]) -> None:
    """Held against plain dicts, one for each version."""
    version: PersistentMap[str, int] = PersistentMap(hash_of_text)
    model: dict[str, int] = {}
    versions = [(version, model)]
    for changes in steps:
        version = version.with_changes(changes)
        merged = {**model, **changes}
        model = {key: value for key, value in merged.items() if value is not None}
        versions.append((version, model))
    for version, model in versions:
        assert dict(version.items()) == model
        assert len(version) == len(model)
        assert set(version) == set(model)
        assert sorted(version.values()) == sorted(model.values())
        for key in {key for step in steps for key in step}:
            assert version.get(key) == model.get(key)
            assert (key in version) == (key in model)


def test_it_grows_and_keeps_buckets_small() -> None:
    count = BUCKETS_MIN * BUCKET_SIZE * 4
    keys = [number.to_bytes(16, "big") for number in range(count)]
    grown: PersistentMap[bytes, int] = PersistentMap(hash_of_uuid)
    for number, key in enumerate(keys):
        grown = grown.with_changes({key: number})
    assert len(grown) == count
    assert all(grown[key] == number for number, key in enumerate(keys))
    assert max(map(len, grown._buckets)) <= 2 * BUCKET_SIZE


def test_an_update_shares_what_it_does_not_touch() -> None:
    before = PersistentMap[bytes, int](hash_of_uuid).with_changes({n.to_bytes(16, "big"): n for n in range(100)})
    after = before.with_changes({(5).to_bytes(16, "big"): 500})
    shared = sum(mine is theirs for mine, theirs in zip(before._buckets, after._buckets, strict=True))
    assert shared == len(before._buckets) - 1
    assert before.with_changes({}) is before
