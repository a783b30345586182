"""The feature levels that the cluster has finalized."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from moldau.kraft.features import DEFAULT_METADATA_VERSION, METADATA_VERSION
from moldau.protocol.late_tuple import NamedTuple
from moldau.protocol.records.metadata import FeatureLevelRecord


class FeaturesImage(NamedTuple):
    """The finalized levels by feature. A feature at level 0 is left out. kraft.version is not among them, because the
    quorum stores it."""

    levels: Mapping[str, int] = MappingProxyType({})

    @property
    def metadata_version(self) -> int:
        """The level of metadata.version; before a record has finalized one, the level of a new cluster."""
        return self.levels.get(METADATA_VERSION, DEFAULT_METADATA_VERSION)

    def snapshot_records(self) -> Iterator[object]:
        """Yield the records of the levels, metadata.version first, because readers need it to read the others."""
        for name in sorted(self.levels, key=lambda name: (name != METADATA_VERSION, name)):
            yield FeatureLevelRecord(name=name, feature_level=self.levels[name])


class FeaturesDelta:
    """The feature levels that records changed, by feature."""

    __slots__ = ("changed", "image")

    def __init__(self, image: FeaturesImage) -> None:
        self.image = image
        self.changed: dict[str, int] = {}

    def replay(self, record: FeatureLevelRecord) -> None:
        self.changed[record.name] = record.feature_level

    def apply(self) -> FeaturesImage:
        if not self.changed:
            return self.image
        levels = {**self.image.levels, **self.changed}
        return FeaturesImage({name: level for name, level in levels.items() if level != 0})
