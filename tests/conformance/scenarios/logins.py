"""Clients log in by each mechanism under TLS, with certificates, and with what must be refused."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tests.conformance.brokers import Broker
from tests.conformance.outcome import Failed
from tests.conformance.scenarios.directories import DirectoryScenario, Workshop
from tests.conformance.toolbox import Toolbox
from tests.support.certificates import Authority

PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
MECHANISMS: Final = {"PLAIN": PLAIN, "SCRAM-SHA-256": SCRAM, "SCRAM-SHA-512": SCRAM, "OAUTHBEARER": OAUTH}
LIBRARIES: Final = ("confluent", "kafka-python", "aiokafka")
USER, PASSWORD, TOPIC = "alice", "alice-secret", "logins"
CREDENTIALS: Final = tuple(f"SCRAM-SHA-{size}=[name={USER},password={PASSWORD}]" for size in (256, 512))
PATIENCE_S: Final = 120


class Stores:
    """The files of an authority, of the node, of a client that the node knows, and of one that it does not."""

    def __init__(self, directory: Path) -> None:
        authority, stranger = Authority("Tests"), Authority("Strangers")
        self.ca = authority.trust_store(directory / "ca.pem")
        self.node = self._pem(directory / "node.pem", authority, "node", "localhost", "127.0.0.1")
        self.client = self._pem(directory / "client.pem", authority, "client")
        self.stranger = self._pem(directory / "stranger.pem", stranger, "client")

    @staticmethod
    def _pem(path: Path, authority: Authority, name: str, *hosts: str) -> Path:
        path.write_text(authority.issue(name, *hosts).pem())
        return path


def broker_settings(stores: Stores, port: int, secured: int) -> list[str]:
    """Three listeners more: SASL under TLS, TLS with certificates of clients, and that for administration."""
    names = {"SECURE": (secured, "SASL_SSL"), "MUTUAL": (secured + 1, "SSL")}
    own = f"PLAINTEXT://127.0.0.1:{port}"
    more = ",".join(f"{name}://127.0.0.1:{at}" for name, (at, _) in names.items())
    lines = [
        f"listeners={own},CONTROLLER://127.0.0.1:{port + 1},{more}",
        f"advertised.listeners={own},{more}",
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,"
        + ",".join(f"{name}:{protocol}" for name, (_, protocol) in names.items()),
        f"sasl.enabled.mechanisms={','.join(MECHANISMS)}",
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={stores.node}",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={stores.ca}",
        "listener.name.mutual.ssl.client.auth=required",
        f'listener.name.secure.plain.sasl.jaas.config={PLAIN} required user_{USER}="{PASSWORD}";',
        f'listener.name.secure.oauthbearer.sasl.jaas.config={OAUTH} required unsecuredLoginStringClaim_sub="node";',
        "delegation.token.secret.key=key of the cluster",
    ]
    return lines + [f"listener.name.secure.{name.lower()}.sasl.jaas.config={SCRAM} required;" for name in SCRAMS]


SCRAMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")


def java_settings(security: dict[str, str]) -> str:
    """A client.properties of the same meaning."""
    lines = [
        f"security.protocol={security['protocol']}",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={security['ca']}",
        "default.api.timeout.ms=20000",
        "request.timeout.ms=10000",
        "max.block.ms=20000",
    ]
    if "certificate" in security:
        lines += ["ssl.keystore.type=PEM", f"ssl.keystore.location={security['certificate']}"]
    mechanism = security.get("mechanism")
    if mechanism == "OAUTHBEARER":
        lines.append(f'sasl.jaas.config={OAUTH} required unsecuredLoginStringClaim_sub="bearer";')
    elif mechanism is not None:
        login = f'username="{security["user"]}" password="{security["password"]}"'
        lines.append(f"sasl.jaas.config={MECHANISMS[mechanism]} required {login};")
    return "\n".join([*lines, *([f"sasl.mechanism={mechanism}"] if mechanism else [])]) + "\n"


def cases(stores: Stores, secured: int) -> dict[str, tuple[str, dict[str, str]]]:
    """What is tried, by name: the address, and how to log in."""
    ca = str(stores.ca)
    address, mutual = f"127.0.0.1:{secured}", f"127.0.0.1:{secured + 1}"
    tried = {
        name: (address, {"protocol": "SASL_SSL", "ca": ca, "mechanism": name, "user": USER, "password": PASSWORD})
        for name in MECHANISMS
    }
    for name in ("PLAIN", *SCRAMS):
        tried[f"{name}, wrong password"] = (address, tried[name][1] | {"password": "wrong"})
    tried["SCRAM-SHA-256, unknown user"] = (address, tried["SCRAM-SHA-256"][1] | {"user": "mallory"})
    tried["certificate"] = (mutual, {"protocol": "SSL", "ca": ca, "certificate": str(stores.client)})
    return tried


def python_login(library: str, address: str, security: dict[str, str]) -> str:
    command = [sys.executable, "-m", "tests.conformance.drivers.login", library, address, json.dumps(security)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    if done.returncode != 0:
        raise Failed(f"{library} ended with status {done.returncode}: {done.stderr[-600:]}")
    return done.stdout.strip()


def java_login(box: Toolbox, name: str, security: dict[str, str]) -> str:
    """The console producer and consumer; the second prints what the first has sent."""
    path = box.directory / f"{name.replace(' ', '-')}.properties"
    path.write_text(java_settings(security))
    try:
        words = ("--topic", TOPIC, "--command-config", str(path))
        box.run("kafka-console-producer", *words, given="record\n")
        read = box.run(
            "kafka-console-consumer", *words, "--from-beginning", "--max-messages", "1", "--timeout-ms", "20000"
        )
    except Failed as failure:
        return "refused" if "AuthenticationException" in str(failure) else f"no answer: {failure}"
    return "ok" if "record" in read else f"read {read!r}"


def formatted(broker: Broker) -> None:
    """As the matrix formats its brokers, with the users."""
    words = [word for each in CREDENTIALS for word in ("--add-scram", each)]
    command = [*broker.format_command(), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise Failed(f"{broker.name} format: {done.stdout[-600:]}{done.stderr[-600:]}")


def tokens(box: Toolbox, config: Path) -> dict[str, object]:
    """A user makes a token and looks at it."""
    made = box.run(
        "kafka-delegation-tokens",
        *("--command-config", str(config), "--create", "--max-life-time-period", "-1"),
        *("--renewer-principal", "User:bob"),
    )
    seen = {}
    for who in ((), ("--owner-principal", f"User:{USER}"), ("--owner-principal", "User:bob")):
        shown = box.run("kafka-delegation-tokens", "--command-config", str(config), "--describe", *who)
        seen[" ".join(who) or "current user"] = shown.count(f"User:{USER}")
    return {"created": "tokenId" in made, "described": seen}


def on(side: str) -> Callable[[Workshop], None]:
    def story(work: Workshop) -> None:
        stores = Stores(work.directory)
        secured = work.ports.pair()
        make = work.moldau if side == "moldau" else work.apache
        broker = make()
        lines = broker_settings(stores, broker.port, secured)
        broker.set(dict(line.split("=", 1) for line in lines))
        formatted(broker)
        with work.running(broker):
            admin = Toolbox(work.toolchain, broker.bootstrap, "logins", work.directory)
            admin.run("kafka-topics", "--create", "--topic", TOPIC, "--partitions", "1")
            tried = cases(stores, secured)

            def attempt(of: tuple[str, str]) -> str:
                library, name = of
                address, security = tried[name]
                if library == "java":
                    return java_login(Toolbox(work.toolchain, address, "logins", work.directory), name, security)
                return python_login(library, address, security)

            pairs = [(library, name) for library in (*LIBRARIES, "java") for name in tried]
            with ThreadPoolExecutor(2) as pool:
                outcomes = dict(zip(pairs, pool.map(attempt, pairs), strict=True))
            demand(outcomes, tuple(tried))
            for library in (*LIBRARIES, "java"):
                work.facts[library] = {name: outcomes[library, name] for name in tried}
            address = f"127.0.0.1:{secured}"
            box = Toolbox(work.toolchain, address, "logins", work.directory)
            work.facts["tokens"] = tokens(box, work.directory / "SCRAM-SHA-256.properties")
        del work.facts[f"{broker.name} ended with status"]  # Java ends with that of the signal

    return story


def demand(outcomes: dict[tuple[str, str], str], names: Sequence[str]) -> None:
    """Whoever has the right credentials is served, and nobody else."""
    wrong = [
        f"{library}, {name}: {outcome}"
        for (library, name), outcome in outcomes.items()
        if (outcome == "ok") != ("," not in name)
    ]
    if wrong:
        raise Failed("; ".join(wrong))


DEMANDS = "clients log in by PLAIN, SCRAM, OAUTHBEARER and certificates, wrong credentials are refused, tokens are made"
LOGIN_SCENARIOS = tuple(DirectoryScenario("logins", DEMANDS, on(side), side) for side in ("moldau", "apache"))
