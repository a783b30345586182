"""What clients are told, and the warnings that save somebody an afternoon."""

from __future__ import annotations

import pytest

from moldau.broker.config.config import Config
from moldau.broker.config.loading import checked_config
from moldau.broker.node.start_messages import advertised_addresses, advertised_warnings, with_advertised_hosts

BASE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "log.dirs": "/data",
}


def config(**properties: str) -> Config:
    return checked_config(BASE | {name.replace("_", "."): value for name, value in properties.items()})


def voters(entries: str) -> Config:
    properties = {name: value for name, value in BASE.items() if name != "controller.quorum.bootstrap.servers"}
    return checked_config(properties | {"controller.quorum.voters": entries})


def nobody() -> str:
    raise AssertionError("nobody asked for this machine's name")


def advertised(address: str, listeners: str = "PLAINTEXT://:9092,CONTROLLER://127.0.0.1:9093") -> list[str]:
    return advertised_warnings(config(listeners=listeners, advertised_listeners=f"PLAINTEXT://{address}"))


def test_it_says_what_clients_of_each_listener_are_told() -> None:
    two = config(
        listeners="IN://:9092,OUT://:9094,CONTROLLER://:9093",
        advertised_listeners="IN://10.0.0.7:9092,OUT://[2001:db8::7]:19094",
        listener_security_protocol_map="IN:PLAINTEXT,OUT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        inter_broker_listener_name="IN",
    )
    assert advertised_addresses(two) == [
        "clients of listener IN are told to connect to 10.0.0.7:9092",
        "clients of listener OUT are told to connect to [2001:db8::7]:19094",
    ]


def test_a_node_for_this_machine_alone_gives_no_doubt() -> None:
    local = config()
    assert with_advertised_hosts(local, nobody) is local
    assert advertised_warnings(local) == []


def test_a_name_or_an_address_that_others_can_have_gives_no_doubt() -> None:
    for address in ("broker-1:9092", "kafka.example.org:9092", "10.0.0.7:9092", "cafe:9092", "[2001:db8::7]:9092"):
        assert advertised(address) == []


def test_a_listener_without_a_host_is_advertised_by_the_machines_name() -> None:
    bare = with_advertised_hosts(config(listeners="PLAINTEXT://:9092,CONTROLLER://:9093"), lambda: "box.example.org")
    assert advertised_addresses(bare) == ["clients of listener PLAINTEXT are told to connect to box.example.org:9092"]
    assert [each.host for each in bare.advertised_controller_listeners] == ["box.example.org"]
    assert advertised_warnings(bare) == []


def test_a_containers_name_is_doubted_also_where_the_machine_gave_it() -> None:
    bare = with_advertised_hosts(config(listeners="PLAINTEXT://:9092,CONTROLLER://:9093"), lambda: "3f4e5d6c7b8a")
    (warning,) = advertised_warnings(bare)
    assert warning.startswith("listener PLAINTEXT: 3f4e5d6c7b8a looks like a container's own name")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "LOCALHOST"])
def test_loopback_is_doubted_where_the_node_listens_to_all(host: str) -> None:
    (warning,) = advertised(f"{host}:9092")
    assert "listens on every interface but tells clients" in warning
    assert advertised(f"{host}:9092", "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093") == []


def test_loopback_is_doubted_where_the_quorum_has_nodes_on_other_machines() -> None:
    (warning,) = advertised_warnings(config(controller_quorum_bootstrap_servers="a:9093,b:9093,c:9093"))
    assert "the quorum has nodes on other machines" in warning
    (warning,) = advertised_warnings(voters("1@127.0.0.1:9093,2@b:9093"))
    assert "the quorum has nodes on other machines" in warning


def test_loopback_is_right_where_every_node_is_on_this_machine() -> None:
    assert (
        advertised_warnings(config(controller_quorum_bootstrap_servers="localhost:9093,127.0.0.1:9095,[::1]:9097"))
        == []
    )
    assert advertised_warnings(voters("1@a:9093,2@127.0.0.1:9095,3@localhost:9097")) == []


def test_loopback_is_doubted_for_a_broker_whose_controller_is_elsewhere() -> None:
    broker = {"process.roles": "broker", "node.id": "4", "listeners": "PLAINTEXT://127.0.0.1:9092"}
    (warning,) = advertised_warnings(checked_config(BASE | broker | {"controller.quorum.bootstrap.servers": "a:9093"}))
    assert "the quorum has nodes on other machines" in warning
    assert advertised_warnings(checked_config(BASE | broker)) == []


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("[::]:9092", "clients are told to connect to ::, which is not an address"),
        (":9092", "clients are told no host"),
        ("my_broker:9092", "has an underscore"),
        ("broker-1:0", "clients are told to connect to port 0"),
    ],
)
def test_what_nobody_can_connect_to_is_doubted(address: str, said: str) -> None:
    (warning,) = advertised(address)
    assert said in warning


def test_every_doubt_says_what_to_do() -> None:
    for address in ("[::]:9092", "localhost:9092", "my_broker:9092", "0123456789ab:9092"):
        assert all("set advertised.listeners" in warning for warning in advertised(address))
