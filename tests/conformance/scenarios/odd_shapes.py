"""What a request with one field in an odd shape gets: raw requests, compared field by field."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

from tests.conformance.acl_requests import of_cluster, of_groups, of_new_groups, of_records
from tests.conformance.acl_requests.asked import comparable
from tests.conformance.acl_requests.shapes import shaped
from tests.conformance.raw_connection import Connection
from tests.conformance.scenarios.acls import Administrator
from tests.conformance.scenarios.directories import DirectoryScenario, Workshop
from tests.conformance.session import expect

SETTINGS = {
    "auto.create.topics.enable": "false",
    "log.retention.ms": "-1",  # The records are old: on a slow machine retention would delete them meanwhile.
}
SHAPES_MIN = 600


def on(side: str) -> Callable[[Workshop], None]:
    def story(work: Workshop) -> None:
        broker = work.moldau() if side == "moldau" else work.apache()
        broker.set(SETTINGS)
        broker.format()
        with work.running(broker):
            ids = Administrator(broker.port).topics()
            asked = chain(of_records.requests(ids), of_groups.requests(ids), of_cluster.requests(ids))
            connection: Connection | None = None
            for each in shaped(chain(asked, of_new_groups.requests(ids))):
                connection = connection or Connection(broker.port, "client")
                answer: object
                try:
                    answer = comparable(connection.ask(each.asked.request, each.asked.version), ids)
                except OSError:
                    connection.close()
                    connection, answer = None, "closed"
                work.facts[each.name] = answer
        del work.facts[f"{broker.name} ended with status"]  # Java ends with that of the signal.
        expect(len(work.facts) >= SHAPES_MIN, f"only {len(work.facts)} requests were asked")

    return story


DEMANDS = "an element named twice, an empty list, a null, a number out of range get what Apache Kafka gives them"
ODD_SHAPE_SCENARIOS = tuple(DirectoryScenario("odd-shapes", DEMANDS, on(side), side) for side in ("moldau", "apache"))
