"""CreatePartitions (API key 37, versions 0-3; KIP-195, KIP-599): the controller decides.

3: a client above its quota is refused (KIP-599).
"""

from __future__ import annotations

from typing import Final

from moldau.broker.apis.api import Api, forward, forward_for_partitions
from moldau.broker.apis.lists import at_most
from moldau.broker.apis.needs import each_in, on_topic
from moldau.broker.apis.parts import OPEN_MAX, in_parts
from moldau.kraft.controller.apis import ENTRIES_MAX
from moldau.kraft.controller.topics.new_partitions import NEW_PARTITIONS_MAX
from moldau.protocol.messages.create_partitions import CreatePartitionsRequest
from moldau.security.access import AclOperation

API: Final = Api(
    CreatePartitionsRequest,
    broker=forward_for_partitions,
    controller=forward,
    needs=each_in("topics", on_topic, AclOperation.ALTER, results="results"),
    lists=[
        in_parts("topics", "results", open_max=OPEN_MAX),
        at_most(NEW_PARTITIONS_MAX, "topics.assignments"),
        at_most(ENTRIES_MAX, "topics.assignments.broker_ids"),
    ],
)
