"""A seed says what strikes three nodes in which round; relays can tell one node from another."""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter

from moldau.testing.ports import free_ports
from tests.chaos.cluster_faults import KILLS, KINDS, TRANSACTION_KILLS, UPGRADES, Deed, Role, cluster_rounds
from tests.chaos.proxies import Network, caller_of


def test_every_kind_comes_once_before_any_comes_twice() -> None:
    drawn = list(cluster_rounds(2 * len(KINDS), seed=1))
    assert set(Counter((each.deed, each.role) for each in drawn[: len(KINDS)]).values()) == {1}
    assert drawn == list(cluster_rounds(2 * len(KINDS), seed=1)) != list(cluster_rounds(2 * len(KINDS), seed=2))
    assert {each.deed for each in cluster_rounds(9, 1, KILLS)} == {Deed.KILL}
    assert [each.role for each in cluster_rounds(10, 1, TRANSACTION_KILLS)].count(Role.TRANSACTION_COORDINATOR) == 2
    assert [each.deed for each in cluster_rounds(15, 1, UPGRADES)].count(Deed.UPGRADE) == 5, "25 to 30, one at a time"


def test_callers_are_known_by_their_client_id() -> None:
    assert [caller_of(name) for name in (b"node-3", b"node-", b"rdkafka", b"")] == [3, -1, -1, -1]


def test_what_is_cut_comes_later_and_nothing_is_lost() -> None:
    target, relay = free_ports(2)
    with socket.create_server(("127.0.0.1", target)) as server:
        network = Network()
        try:
            network.relay(relay, 1, target)
            caller = socket.create_connection(("127.0.0.1", relay), timeout=10)
            request = b"\0\0\0\x10\0\x12\0\x03\0\0\0\0\0\x06node-2"
            caller.sendall(request)
            there, _ = server.accept()
            assert there.recv(100) == request
            network.cut(2)
            arrived: list[bytes] = []
            reader = threading.Thread(target=lambda: arrived.append(there.recv(100)))
            reader.start()
            while network.is_open:
                time.sleep(0.001)
            caller.sendall(b"later")
            reader.join(0.1)
            assert not arrived
            network.heal()
            reader.join(10)
            assert arrived == [b"later"]
            caller.close()
            there.close()
        finally:
            network.close()
