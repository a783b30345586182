"""What the handlers of the controller decide on: the metadata at the end of the log, and the state of brokers'
sessions.
"""

from __future__ import annotations

from typing import NamedTuple

from kraft.controller.broker_sessions import BrokerSessions
from kraft.controller.failure_detector import FailureDetector
from kraft.controller.settings import ControllerSettings
from kraft.controller.view import View
from kraft.image.metadata_image import MetadataImage
from security.principal import ANONYMOUS, Principal


class DecisionContext(NamedTuple):
    """The input of a handler, apart from the request.

    Handlers read the view. They may change `sessions` and `failures` alone: what the controller knows of brokers by
    their heartbeats is not part of the metadata, and is lost when the controller's term ends.
    """

    view: View
    sessions: BrokerSessions
    failures: FailureDetector
    now_ms: int
    """The time on the controller's clock, which never goes back."""
    principal: Principal = ANONYMOUS
    """The principal of the client that sent the request.

    The broker has authorized it already; delegation tokens need it.
    """

    @property
    def image(self) -> MetadataImage:
        """The metadata at the end of the log, committed or not."""
        return self.view.image

    @property
    def settings(self) -> ControllerSettings:
        return self.view.settings
