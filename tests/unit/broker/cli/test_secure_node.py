"""`moldau format --secure`: files that fit each other, secrets that their owner alone reads, a node that is closed."""

from __future__ import annotations

import os
import ssl
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509

from moldau.broker.cli.command import main
from moldau.broker.cli.invocation import read_file
from moldau.broker.config.loading import checked_config
from moldau.broker.config.sasl import sasl_settings, token_key
from moldau.broker.config.tls import tls_settings
from moldau.broker.network.connection_quota import connection_limits
from moldau.broker.network.tls.contexts import make_contexts
from moldau.security.acl.authorizer import parse_super_users

SECRET_FILES = ("ca.key", "node.pem", "client.properties", "server.properties")


def test_the_files_fit_each_other_and_are_closed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    secure = tmp_path / "secure"
    assert main(["format", "--secure", str(secure), "--host", "kafka.example.org", "--host", "10.1.2.3"]) == 0
    assert "Formatting" in capsys.readouterr().out
    assert all((secure / name).stat().st_mode & 0o777 == 0o600 for name in SECRET_FILES)
    config = checked_config(read_file(str(secure / "server.properties")))
    assert config.warnings == ()
    open_listeners = [each for each in config.listeners if each.security_protocol == "PLAINTEXT"]
    assert [each.host for each in open_listeners] == ["127.0.0.1"]
    assert sasl_settings(config, "SECURE").mechanisms == ("SCRAM-SHA-512",)
    assert token_key(config) is not None
    assert config.text("authorizer.class.name").endswith(".StandardAuthorizer")
    assert parse_super_users(config.text("super.users")) == {"User:node", "User:admin"}
    assert not config.flag("allow.everyone.if.no.acl.found")
    assert make_contexts(tls_settings(config, "SECURE")).server is not None
    authority = x509.load_pem_x509_certificate((secure / "ca.pem").read_bytes())
    node = x509.load_pem_x509_certificate((secure / "node.pem").read_bytes())
    node.verify_directly_issued_by(authority)
    names = node.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["kafka.example.org", "localhost"]
    context = ssl.create_default_context(cafile=str(secure / "ca.pem"))
    assert context.get_ca_certs()
    client = read_file(str(secure / "client.properties"))
    assert client["bootstrap.servers"] == "kafka.example.org:9092"
    password = client["sasl.jaas.config"].partition('password="')[2].rstrip('";')
    assert len(password) == 32
    written = b"".join(each.read_bytes() for each in (secure / "data").rglob("*") if each.is_file())
    assert password.encode() not in written


def test_what_is_there_stays_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    secure = tmp_path / "secure"
    assert main(["format", "--secure", str(secure)]) == 0
    before = {name: (secure / name).read_bytes() for name in SECRET_FILES}
    assert main(["format", "--secure", str(secure), "--ignore-formatted"]) == 0
    assert before == {name: (secure / name).read_bytes() for name in SECRET_FILES}


def refused(directory: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """The error of the command; it has written nothing."""
    before = sorted(directory.rglob("*"))
    assert main(["format", "--secure", str(directory)]) == 1
    assert sorted(directory.rglob("*")) == before
    return capsys.readouterr().err


def test_a_failed_attempt_leaves_nothing_that_blocks_the_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    secure = tmp_path / "secure"
    assert main(["format", "--secure", str(secure), "--cluster-id", "short"]) == 1
    assert list(secure.iterdir()) == []
    (secure / "node.pem").write_bytes(b"of another program")
    assert f"{secure}/node.pem is there already" in refused(secure, capsys)
    (secure / "node.pem").unlink()
    assert main(["format", "--secure", str(secure)]) == 0
    assert all((secure / name).exists() for name in SECRET_FILES)


def test_a_link_is_refused_as_directory_and_as_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "elsewhere")
    assert "is a link" in refused(link, capsys)
    secure = tmp_path / "secure"
    secure.mkdir(mode=0o700)
    (secure / "ca.pem").symlink_to(tmp_path / "stolen")
    assert f"{secure}/ca.pem is there already" in refused(secure, capsys)
    assert not (tmp_path / "stolen").exists()


def test_an_existing_file_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "ca.pem").write_text("another authority")
    assert "is not overwritten" in refused(tmp_path, capsys)
    assert (tmp_path / "ca.pem").read_text() == "another authority"


def test_a_directory_of_another_user_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o770)
    assert "other users may write" in refused(tmp_path, capsys)
    tmp_path.chmod(0o700)
    (tmp_path / "server.properties").write_text("log.dirs=/of/another\n")
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    assert "belongs to another user" in refused(tmp_path, capsys)


def test_a_secured_node_limits_its_connections(tmp_path: Path) -> None:
    assert main(["format", "--secure", str(tmp_path / "secure")]) == 0
    config = checked_config(read_file(str(tmp_path / "secure" / "server.properties")))
    limits = connection_limits(config)
    assert limits.count_max_of_listener == (("SECURE", 10_000),) and limits.per_address_max == 2_000
    assert limits.creation_rate_of_listener == (("SECURE", 200),)


@pytest.mark.parametrize("arguments", [["--host", "a"], ["--secure", "x", "--config", "y"]])
def test_what_does_not_go_together_is_refused(arguments: list[str], tmp_path: Path) -> None:
    assert main(["format", "--data", str(tmp_path), *arguments]) == 1


@pytest.mark.parametrize("host", ["2001:db8::7", "[2001:db8::7]"])
def test_an_address_of_ipv6_has_brackets_where_a_port_follows(host: str, tmp_path: Path) -> None:
    secure = tmp_path / "secure"
    assert main(["format", "--secure", str(secure), "--host", host]) == 0
    assert read_file(str(secure / "client.properties"))["bootstrap.servers"] == "[2001:db8::7]:9092"
    config = checked_config(read_file(str(secure / "server.properties")))
    advertised = config.advertised_listeners[0]
    assert (advertised.host, advertised.port) == ("2001:db8::7", 9092)
    node = x509.load_pem_x509_certificate((secure / "node.pem").read_bytes())
    names = node.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert ip_address("2001:db8::7") in names.get_values_for_type(x509.IPAddress)


def test_a_host_with_a_port_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["format", "--secure", str(tmp_path / "secure"), "--host", "kafka.example.org:9092"]) == 1
    told = "moldau: --host kafka.example.org:9092: a name or an address is needed, without a port\n"
    assert capsys.readouterr().err == told and not (tmp_path / "secure").exists()
