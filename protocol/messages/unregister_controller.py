"""UnregisterController (API 94): remove the registration of a controller."""

from __future__ import annotations

from typing import Annotated

from moldau.protocol.schema import Int16, Int32, message, nullable


@message(key=94, versions="0", flexible="0+")
class UnregisterControllerRequest:
    controller_id: Int32


@message(key=94, versions="0", flexible="0+")
class UnregisterControllerResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[str | None, nullable()] = ""
