"""What a client of brokers says while it repeats a request."""

from __future__ import annotations

import pytest

from moldau.tables.client import cluster
from moldau.tables.client.cluster import BrokersUnavailable, Cluster
from moldau.tables.client.settings import client_settings_of


def test_brokers_that_are_not_reached_are_told_before_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "RETRY_WARNING_DELAY_S", 0.0)
    settings = client_settings_of(("127.0.0.1:1",), {"kafka.request.timeout.ms": "300"})
    with (
        pytest.warns(
            UserWarning, match=r"metadata: 127.0.0.1:1: Connection refused; it is tried again for up to 0.3 s"
        ),
        pytest.raises(BrokersUnavailable, match=r"metadata: 127.0.0.1:1: Connection refused"),
    ):
        Cluster(settings).retry("metadata", lambda: Cluster(settings).any_connection())
