"""UpdateFeatures (API 57): raise or lower finalized feature levels."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Int8, Int16, Int32, empty, message, nullable, since, struct, until


@struct
class FeatureUpdateKey:
    feature: str
    max_version_level: Int16
    allow_downgrade: Annotated[bool, until(0)] = False
    upgrade_type: Annotated[Int8, since(1)] = 1


@message(key=57, versions="0-2", flexible="0+")
class UpdateFeaturesRequest:
    timeout_ms: Int32 = 60000
    feature_updates: list[FeatureUpdateKey] = empty()
    validate_only: Annotated[bool, since(1)] = False


@struct
class UpdatableFeatureResult:
    feature: str = ""
    error_code: Int16 = 0
    error_message: Annotated[str | None, nullable()] = ""


@message(key=57, versions="0-2", flexible="0+")
class UpdateFeaturesResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[str | None, nullable()] = ""
    results: Annotated[list[UpdatableFeatureResult], until(1)] = empty()
