"""The input of the controller's handlers: the metadata at the end of the log, the state of brokers' sessions, and the
quota of controller mutations (KIP-599).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from moldau.kraft.controller.broker_sessions import BrokerSessions
from moldau.kraft.controller.decision import ApiError
from moldau.kraft.controller.failure_detector import FailureDetector
from moldau.kraft.controller.settings import ControllerSettings
from moldau.kraft.controller.view import ControllerView
from moldau.kraft.image.metadata_image import MetadataImage
from moldau.protocol.errors import ErrorCode
from moldau.protocol.late_tuple import NamedTuple
from moldau.protocol.messages.create_partitions import CreatePartitionsRequest
from moldau.protocol.messages.create_topics import CreateTopicsRequest
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest
from moldau.security.principal import ANONYMOUS, Principal
from moldau.security.quotas.mutations import UNLIMITED_MUTATIONS, Mutations


class DecisionContext(NamedTuple):
    """The input of a handler, apart from the request.

    Handlers read the view. They may change only `sessions` and `failure_detector`. That state follows from heartbeats,
    is not part of the metadata, and is lost when the controller's term ends.
    """

    view: ControllerView
    sessions: BrokerSessions
    failure_detector: FailureDetector
    now_ms: int
    """The time (ms) on the controller's monotonic clock."""
    end_offset: Callable[[], int]
    """Returns the present end offset of the metadata log. The offset rises with each batch of a decision that is made
    in slices."""
    principal: Principal = ANONYMOUS
    """The authenticated client that sent the request. The request has been authorized already; the handlers of
    delegation tokens need the client."""
    mutations: Mutations = UNLIMITED_MUTATIONS
    """The quota against which the request counts the partitions that it creates and deletes (KIP-599)."""

    @property
    def image(self) -> MetadataImage:
        """The metadata at the end of the log, committed or not."""
        return self.view.image

    @property
    def settings(self) -> ControllerSettings:
        return self.view.settings


STRICT_QUOTA_VERSIONS: Final[dict[type[object], int]] = {
    CreateTopicsRequest: 6,
    CreatePartitionsRequest: 3,
    DeleteTopicsRequest: 5,
}
"""The requests that count against the quota of controller mutations, each with the first version in which the response
may have the error THROTTLING_QUOTA_EXCEEDED."""
THROTTLING_ERROR: Final = ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")
