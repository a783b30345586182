"""Manifests by a regular expression: the fields that the JSON parser finds, or nothing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moldau.storage.checkpoints.leader_epochs import EpochStart
from moldau.storage.checkpoints.partition_metadata import uuid_text
from moldau.storage.tiered.bucket_reading import check_segment_manifest
from moldau.storage.tiered.layout import DATA_KINDS, REQUIRED_KINDS, ObjectKind, object_key, partition_prefix
from moldau.storage.tiered.manifest import ObjectSummary, SegmentManifest, decode_manifest
from moldau.storage.tiered.manifest_text import ListedManifest, ManifestTexts
from moldau.storage.tiered.metadata.remote_segment import RemotePartition
from moldau.storage.tiered.port import RemoteStorageError

CLUSTER = "4L6g3nShT-eMCtK--X86sw"
PARTITION = RemotePartition("orders.v1", bytes(range(16)), 7)
PREFIX = partition_prefix(PARTITION)
TEXTS = ManifestTexts(CLUSTER, PARTITION, PREFIX)

offsets = st.integers(0, 10**18 - 1)
summaries = st.builds(ObjectSummary, offsets, st.integers(0, 0xFFFFFFFF))
objects = st.fixed_dictionaries(
    dict.fromkeys(REQUIRED_KINDS, summaries), optional={ObjectKind.TRANSACTION_INDEX: summaries}
).map(lambda found: {kind: found[kind] for kind in DATA_KINDS if kind in found})
manifests = st.builds(
    SegmentManifest,
    st.just(CLUSTER),
    st.just(PARTITION),
    st.binary(min_size=16, max_size=16),
    offsets,
    offsets,
    st.lists(st.builds(EpochStart, st.integers(0, 1 << 31), offsets), min_size=1, max_size=4).map(tuple),
    offsets,
    objects,
    st.integers(0, 1000),
    offsets,
)


def key_of(manifest: SegmentManifest) -> str:
    return object_key(manifest.partition, manifest.start_offset, manifest.segment_id, ObjectKind.MANIFEST)


def by_json(key: str, data: bytes) -> ListedManifest | None:
    """What the JSON parser and the checks say; None if they refuse it."""
    try:
        manifest = decode_manifest(key, data)
        check_segment_manifest(manifest, CLUSTER, key)
    except RemoteStorageError:
        return None
    if not key.startswith(PREFIX):
        return None
    return ListedManifest(
        manifest.segment_id,
        manifest.start_offset,
        manifest.last_offset,
        manifest.epochs,
        manifest.max_timestamp_ms,
        manifest.cleaned_end_offset,
        manifest.objects[ObjectKind.LOG].size,
        ObjectKind.TRANSACTION_INDEX in manifest.objects,
    )


@given(manifests)
def test_what_is_encoded_is_found(manifest: SegmentManifest) -> None:
    key, data = key_of(manifest), manifest.encode()
    found = TEXTS.read(key, data)
    assert found is not None
    assert found == by_json(key, data)


@given(manifests, st.data())
def test_changed_bytes_are_found_as_by_json_or_not_at_all(manifest: SegmentManifest, data: st.DataObject) -> None:
    text = bytearray(manifest.encode())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text) - 1))
        piece = data.draw(st.sampled_from([b"", b"0", b"-", b"9", b'"', b" ", b"\n", b"}", b"A", b"e5", b"\xff"]))
        text[at : at + data.draw(st.integers(0, 2))] = piece
    key = key_of(manifest)
    found = TEXTS.read(key, bytes(text))
    assert found is None or found == by_json(key, bytes(text))


@given(manifests)
def test_other_keys_and_partitions_are_left_to_the_checks(manifest: SegmentManifest) -> None:
    data = manifest.encode()
    assert TEXTS.read(key_of(manifest).replace("orders", "others"), data) is None
    for other in (
        ManifestTexts("A" * 22, PARTITION, PREFIX),
        ManifestTexts(CLUSTER, PARTITION._replace(partition=8), PREFIX),
    ):
        assert other.read(key_of(manifest), data) is None
    # A last character with stray bits stands for the same 16 bytes.
    name = uuid_text(manifest.segment_id)
    stray = name[:-1] + chr(ord(name[-1]) + 1)
    assert TEXTS.read(key_of(manifest).replace(name, stray), data.replace(name.encode(), stray.encode())) is None


def test_a_manifest_with_ancestors_is_left_to_json() -> None:
    objects_of_all = dict.fromkeys(DATA_KINDS, ObjectSummary(1, 2))
    manifest = SegmentManifest(
        CLUSTER, PARTITION, bytes(16), 0, 5, (EpochStart(0, 0),), 1, objects_of_all, ancestors=(bytes(range(16)),)
    )
    assert TEXTS.read(key_of(manifest), manifest.encode()) is None
