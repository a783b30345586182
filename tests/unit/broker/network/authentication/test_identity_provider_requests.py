"""What is fetched from an identity provider is bounded, and stays at the address that was allowed."""

from __future__ import annotations

import http.client
import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from moldau.broker.config.oauthbearer import ProviderEndpoint
from moldau.broker.network.authentication.identity_provider import SIZE_MAX, PostRequest, ProviderFailure, ask_provider
from moldau.storage.files.local_files import LocalFiles
from tests.support.provider_server import ProviderServer


class Here:
    """This machine, with a clock of the test."""

    def __init__(self, precise_ns: Callable[[], int]) -> None:
        self.fs = LocalFiles()
        self.precise_ns = precise_ns


HOST = Here(lambda: 0)


def endpoint(url: str) -> ProviderEndpoint:
    return ProviderEndpoint(url, 1000, 1000, 10, 20)


def test_documents_come_from_files_and_over_http(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(b"{}")
    assert ask_provider(endpoint(path.as_uri()), HOST) == b"{}"
    with ProviderServer() as provider:
        provider.answers["/keys?x=1"] = (200, b"keys")
        provider.answers["/token"] = (200, b"token")
        assert ask_provider(endpoint(provider.url + "/keys?x=1"), HOST) == b"keys"
        post = PostRequest({"Authorization": "Basic abc"}, b"grant_type=client_credentials")
        assert ask_provider(endpoint(provider.url + "/token"), HOST, post) == b"token"
        method, _, headers, body = provider.requests[-1]
    assert (method, headers["Authorization"], body) == ("POST", "Basic abc", b"grant_type=client_credentials")
    assert "abc" not in repr(post)


@pytest.mark.parametrize("status", [204, 302, 401, 500])
def test_cve_2025_27817_a_provider_cannot_send_this_node_elsewhere(status: int) -> None:
    with ProviderServer() as provider:
        provider.answers["/keys"] = (status, provider.url.encode() + b"/elsewhere" if status == 302 else b"")
        with pytest.raises(ProviderFailure, match=f"status {status}"):
            ask_provider(endpoint(provider.url + "/keys"), HOST)
        assert len(provider.requests) == 1


def test_an_answer_is_bounded_in_size_and_time(tmp_path: Path) -> None:
    with ProviderServer() as provider:
        provider.answers["/keys"] = (200, bytes(SIZE_MAX + 1))
        with pytest.raises(ProviderFailure, match="more than"):
            ask_provider(endpoint(provider.url + "/keys"), HOST)
        provider.answers["/keys"] = (200, bytes(100_000))
        clock = itertools.count(0, 20_000_000_000)
        with pytest.raises(ProviderFailure, match="the answer did not arrive in time"):
            ask_provider(endpoint(provider.url + "/keys"), Here(lambda: next(clock)))
        gone = provider.url
    path = tmp_path / "keys.json"
    path.write_bytes(bytes(SIZE_MAX + 1))
    for url in (path.as_uri(), (tmp_path / "missing").as_uri(), gone, "ftp://127.0.0.1:1/x"):
        with pytest.raises(ProviderFailure):
            ask_provider(endpoint(url), HOST)


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("https://[fd00::10]/jwks", ("fd00::10", 443)),
        ("http://[fd00::10]/jwks", ("fd00::10", 80)),
        ("http://[fd00::10]:8080/jwks", ("fd00::10", 8080)),
        ("https://sso.example/jwks", ("sso.example", 443)),
    ],
)
def test_the_port_of_a_url_without_one_is_that_of_its_scheme(
    monkeypatch: pytest.MonkeyPatch, url: str, address: tuple[str, int]
) -> None:
    asked: list[tuple[str, int]] = []

    def connect(connection: http.client.HTTPConnection) -> None:
        asked.append((connection.host, connection.port))
        raise OSError("unreachable")

    monkeypatch.setattr(http.client.HTTPConnection, "connect", connect)
    monkeypatch.setattr(http.client.HTTPSConnection, "connect", connect)
    with pytest.raises(ProviderFailure, match="unreachable"):
        ask_provider(endpoint(url), HOST)
    assert asked == [address]
