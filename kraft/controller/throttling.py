"""Quotas of controller mutations (KIP-599): the requests that are counted, and how a refusal reads."""

from __future__ import annotations

from typing import Final

from moldau.kraft.controller.decision import ApiError
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_partitions import CreatePartitionsRequest
from moldau.protocol.messages.create_topics import CreateTopicsRequest
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest

STRICT_SINCE: Final[dict[type[object], int]] = {
    CreateTopicsRequest: 6,
    CreatePartitionsRequest: 3,
    DeleteTopicsRequest: 5,
}
"""The requests that are counted, with the first version whose clients know THROTTLING_QUOTA_EXCEEDED."""
THROTTLED: Final = ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")
