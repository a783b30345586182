"""CreatePartitions (API key 37, versions 0-3; KIP-195, KIP-599): the controller decides.

Its response goes to the client as it is, once the partitions that this broker was assigned are made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from moldau.broker.apis.api import Api
from moldau.broker.apis.decided import OPEN_MAX, decide
from moldau.broker.apis.lists import at_most
from moldau.broker.apis.needs import each_in, on_topic
from moldau.broker.apis.parts import cut
from moldau.kraft.controller.apis import ENTRIES_MAX
from moldau.kraft.controller.topics.new_partitions import NEW_PARTITIONS_MAX
from moldau.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from moldau.security.access import AclOperation

if TYPE_CHECKING:
    from moldau.broker.apis.forwarding import ForwardingServices
    from moldau.broker.network.route import RequestContext
    from moldau.broker.runtime.pending import Pending


def handle(
    services: ForwardingServices, context: RequestContext, request: CreatePartitionsRequest
) -> Pending[CreatePartitionsResponse]:
    return services.controller.ask_for_partitions(request, context)


API: Final = Api(
    CreatePartitionsRequest,
    broker=handle,
    controller=decide,
    needs=each_in("topics", on_topic, AclOperation.ALTER, results="results"),
    lists=[
        cut("topics", "results", open_max=OPEN_MAX),
        at_most(NEW_PARTITIONS_MAX, "topics.assignments"),
        at_most(ENTRIES_MAX, "topics.assignments.broker_ids"),
    ],
)
