"""Ports for nodes: in a row, free, and not given twice."""

from __future__ import annotations

import socket

import pytest

from moldau.testing import ports
from moldau.testing.ports import HOST, PORTS, free_ports, is_free


def test_ports_are_in_a_row_and_given_once() -> None:
    found = [free_ports(5) for _ in range(20)]
    for each in found:
        assert each == list(range(each[0], each[0] + 5)) and each[0] in PORTS and each[4] in PORTS
    assert len({port for each in found for port in each}) == 100


def test_a_port_on_which_a_process_listens_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    (port,) = free_ports(1)
    monkeypatch.setattr(ports, "PORTS", range(port, port + 3))
    with socket.create_server((HOST, port)):
        assert not is_free(port)
        assert free_ports(2) == [port + 1, port + 2]
        with pytest.raises(OSError, match="no 3 free ports"):
            free_ports(3)
