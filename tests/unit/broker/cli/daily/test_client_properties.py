"""The names of client properties: a misspelled one is refused, so that no command connects in another way than it was
told to.
"""

from __future__ import annotations

import argparse
import io
from pathlib import Path

import pytest

from moldau.broker.cli.daily.failures import WrongArguments
from moldau.broker.cli.daily.options import add_connection
from moldau.broker.cli.daily.settings import ClientProperties, client_properties
from moldau.broker.cli.invocation import Invocation, Terminal

OF_OTHER_CLIENTS = [
    "acks",
    "client.dns.lookup",
    "client.rack",
    "connections.max.idle.ms",
    "default.api.timeout.ms",
    "delivery.timeout.ms",
    "group.id",
    "metadata.max.age.ms",
    "receive.buffer.bytes",
    "reconnect.backoff.ms",
    "retries",
    "retry.backoff.ms",
    "sasl.kerberos.service.name",
    "sasl.login.class",
    "sasl.oauthbearer.header.urlencode",
    "security.providers",
    "session.timeout.ms",
    "socket.connection.setup.timeout.ms",
    "ssl.cipher.suites",
    "ssl.engine.factory.class",
    "ssl.protocol",
    "ssl.provider",
]


def properties(*given: str, **variables: str) -> ClientProperties:
    parser = argparse.ArgumentParser()
    add_connection(parser)
    output = Terminal(io.StringIO(), {})
    return client_properties(parser.parse_args(given), Invocation(output, output, variables))


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("security.protocl", "; did you mean security.protocol?"),
        ("securty.protocol", "; did you mean security.protocol?"),
        ("sasl.mechansim", "; did you mean sasl.mechanism?"),
        ("ssl.truststore.locaton", "; did you mean ssl.truststore.location?"),
        ("ssl.key.location", "; did you mean ssl.keystore.location?"),
        ("bootstrap.server", "; did you mean bootstrap.servers?"),
        ("ssl.verify", ""),
    ],
)
def test_a_misspelled_property_is_refused_in_every_place(name: str, hint: str, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"{name}=x\n")
    variable = f"MOLDAU_CLIENT_{name.upper().replace('.', '_')}"
    for given, variables in ((["-X", f"{name}=x"], {}), (["--command-config", str(file)], {}), ([], {variable: "x"})):
        with pytest.raises(WrongArguments) as refusal:
            properties(*given, **variables)
        assert str(refusal.value) == f"there is no client property {name}{hint}"


@pytest.mark.parametrize("name", OF_OTHER_CLIENTS)
def test_other_properties_of_kafkas_clients_are_taken(name: str) -> None:
    assert properties("-X", f"{name}=x").properties == {name: "x"}


@pytest.mark.parametrize("given", [",", " , ", "broker..local:9092", "::1"])
def test_addresses_that_name_no_broker_are_refused(given: str) -> None:
    with pytest.raises(WrongArguments, match="is not of the form host:port"):
        properties("-b", given)
    assert properties("-b", "h:1,,i:2,").bootstrap_text == "h:1,i:2"


def test_a_file_of_an_editor_of_windows_is_read(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_bytes(b"\xef\xbb\xbfsecurity.protocol=SSL\r\nclient.id=shop\r\n")
    assert properties("--command-config", str(file)).properties == {"security.protocol": "SSL", "client.id": "shop"}
