"""Brokers with TLS listeners beside their plain one, one for each version and cipher suite, and with a certificate
authority.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from bench.contenders import Contender
from bench.libssl import TLS_1_2, TLS_1_3, TlsSuite
from bench.subjects import Bench, RunningBroker, remove_server
from tests.support.certificates import Authority

SETTING_OF: Final = {TLS_1_2: "TLSv1.2", TLS_1_3: "TLSv1.3"}
HOST: Final = "localhost"


class SecuredContender(NamedTuple):
    """A running broker, with the port of each suite's listener."""

    contender: Contender
    ports: dict[str, int]


def make_suites(directory: Path) -> tuple[tuple[TlsSuite, ...], Path]:
    """Make the suites that both brokers and the load generator use, and the key store of the node."""
    authority = Authority("Bench")
    trusted = authority.trust_store(directory / "authority.pem")
    store = directory / "node.pem"
    store.write_text(authority.issue("node", HOST).pem())
    chosen = (
        TlsSuite("TLS 1.3", TLS_1_3, "TLS_AES_256_GCM_SHA384", "TLS_AES_256_GCM_SHA384", trusted, HOST),
        TlsSuite(
            "TLS 1.2",
            TLS_1_2,
            "ECDHE-ECDSA-AES256-GCM-SHA384",
            "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
            trusted,
            HOST,
        ),
    )
    return chosen, store


def listener_properties(port: int, secured: dict[str, int], chosen: Sequence[TlsSuite], store: Path) -> dict[str, str]:
    """The settings that add one listener for each suite to a broker on these ports."""
    names = {suite.name: f"TLS{SETTING_OF[suite.version][-3:].replace('.', '')}" for suite in chosen}
    more = "".join(f",{names[name]}://127.0.0.1:{at}" for name, at in secured.items())
    own = f"PLAINTEXT://127.0.0.1:{port}"
    protocols = "".join(f",{name}:SSL" for name in names.values())
    settings = {
        "listeners": f"{own},CONTROLLER://127.0.0.1:{port + 1}{more}",
        "advertised.listeners": own + more,
        "listener.security.protocol.map": f"CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT{protocols}",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
    }
    for suite in chosen:
        prefix = f"listener.name.{names[suite.name].lower()}."
        settings[f"{prefix}ssl.enabled.protocols"] = SETTING_OF[suite.version]
        settings[f"{prefix}ssl.protocol"] = SETTING_OF[suite.version]
        settings[f"{prefix}ssl.cipher.suites"] = suite.java_cipher
    return settings


@contextmanager
def secured_contenders(
    bench: Bench, chosen: Sequence[TlsSuite], store: Path, warm_up_s: float
) -> Iterator[list[SecuredContender]]:
    """A context with a running, warmed-up broker of each name, with a port for each suite. The brokers are removed at
    the end.
    """
    with ExitStack() as stack:
        found = []
        for name in bench.names:
            server = bench.new_server(name)
            ports = {suite.name: bench.free_pair() for suite in chosen}
            server.set(listener_properties(server.port, ports, chosen, store))
            server.format()
            stack.callback(remove_server, server)
            found.append(SecuredContender(Contender(stack.enter_context(RunningBroker(server))), ports))
        for each in found:
            each.contender.warm_up(warm_up_s)
        yield found
