"""What a producer knows of its transaction when a request has failed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from moldau.protocol.compression import Codec
from moldau.tables.client import producer
from moldau.tables.client.cluster import TopicDescription
from moldau.tables.client.producer import OutgoingRecord, TopicProducer
from moldau.tables.client.transaction import ProducerIdentity
from moldau.tables.refusals import Refused


class RefusingCluster:
    """A cluster that has a topic, and takes no record of it."""

    def topics(self, names: Sequence[str]) -> dict[str, TopicDescription]:
        return {name: TopicDescription(None, {0: 1}) for name in names}

    def retry(self, what: str, attempt: Callable[[], object], *_: float) -> object:
        return attempt()

    def leader_of(self, key: tuple[str, int]) -> None:
        raise Refused(f"{key[0]}-{key[1]}: MESSAGE_TOO_LARGE")


@pytest.mark.parametrize("transactional_id", [None, "x"])
def test_a_transaction_has_begun_before_a_record_is_acknowledged(
    monkeypatch: pytest.MonkeyPatch, transactional_id: str | None
) -> None:
    added: list[list[tuple[str, int]]] = []
    monkeypatch.setattr(producer, "add_partitions", lambda cluster, identity, keys: added.append(list(keys)))
    cluster: Any = RefusingCluster()
    made = TopicProducer(cluster, ProducerIdentity(transactional_id, 7, 0), codec=Codec.NONE, batch_size=1 << 20)
    made.send(OutgoingRecord("t", None, b"k", b"v", ()))
    assert not made.has_begun
    with pytest.raises(Refused, match="MESSAGE_TOO_LARGE"):
        made.flush()
    is_transactional = transactional_id is not None
    assert made.has_begun == is_transactional and added == ([[("t", 0)]] if is_transactional else [])
