"""Dynamic settings: what they do to the partitions they concern."""

from __future__ import annotations

from moldau.kraft.controller.config_control import restored_eligible_replicas
from moldau.kraft.controller.partition_index import PartitionIndex
from moldau.kraft.controller.view import ControllerView
from moldau.protocol.records import metadata as records
from tests.support.controller_scribe import SETTINGS
from tests.unit.kraft.image.images import image_of, topic, uuid


def lost(number: int, eligible: list[int], last_known: list[int]) -> object:
    """The last replica in sync has gone."""
    return records.PartitionChangeRecord(
        partition_id=0,
        topic_id=uuid(number),
        isr=[],
        leader=-1,
        eligible_leader_replicas=eligible,
        last_known_elr=last_known,
    )


def test_who_may_be_elected_where_nobody_leads_stays_eligible() -> None:
    base = image_of([*topic("a", 1), *topic("b", 2), *topic("c", 3), lost(1, [2], []), lost(2, [1, 2], [1])])
    view = ControllerView(base, PartitionIndex(base.topics), SETTINGS)
    for name, expected in (("a", ["a"]), ("b", ["b"]), ("c", []), ("", ["a", "b"])):
        changes = list(restored_eligible_replicas(view, name))
        assert [base.topics.by_id[each.topic_id].name for each in changes] == expected
        after = image_of([records.ClearElrRecord(topic_name=name), *changes], base)
        for topic_id, known in base.topics.by_id.items():
            now = after.topics.by_id[topic_id].partitions[0]
            assert now.eligible_leader_replicas == known.partitions[0].eligible_leader_replicas
            assert now.last_known_elr == known.partitions[0].last_known_elr
