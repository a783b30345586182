"""A controller whose decisions are committed at once: a request in, its reply out."""

from __future__ import annotations

from collections.abc import Sequence

from moldau.kraft.controller.controller import Controller
from moldau.kraft.controller.settings import SecuritySettings
from moldau.kraft.image.metadata_image import MetadataImage, Provenance
from moldau.kraft.image.replay import Replay
from moldau.protocol.records.metadata import FeatureLevelRecord
from moldau.security.principal import ANONYMOUS, Principal, Requester
from tests.support.controller_scribe import SETTINGS

KEY = b"secret key"


class Deciding:
    """A controller with an authorizer and delegation tokens; tests advance both clocks."""

    def __init__(self, *, has_authorizer: bool = True, token_key: bytes | None = KEY) -> None:
        self.now_ms = 1_000_000
        self.ids = 0
        self.written: Sequence[object] = ()
        """The records of the last decision."""
        security = SecuritySettings(has_authorizer, token_key, wall_clock_ms=lambda: self.now_ms)
        settings = SETTINGS._replace(security=security, new_uuid=self._new_uuid)
        self._controller = Controller(Replay(), settings, self.now_ms)

    def _new_uuid(self) -> bytes:
        self.ids += 1
        return self.ids.to_bytes(16, "big")

    @property
    def image(self) -> MetadataImage:
        return self._controller.image

    def ask(self, request: object, principal: Principal = ANONYMOUS) -> object:
        decision = self._controller.step(request, self.now_ms, Requester(principal))
        self._commit(decision.records)
        return decision.reply

    def finalize(self, feature: str, level: int) -> None:
        """Write the level of a feature to the log."""
        self._commit([FeatureLevelRecord(name=feature, feature_level=level)])

    def tick(self) -> None:
        for decision in self._controller.tick(self.now_ms):
            self._commit(decision.records)

    def _commit(self, records: Sequence[object]) -> None:
        self.written = records
        self._controller.replay(records, Provenance(), self.now_ms)

    def replayed_snapshot(self) -> MetadataImage:
        """The image that the records of a snapshot make."""
        replay = Replay()
        replay.replay(list(self.image.snapshot_records()), self.image.provenance)
        return replay.image
