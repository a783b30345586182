"""Clients log in by each mechanism under TLS, with certificates and tokens, and with what must be refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tests.conformance.outcome import Failed
from tests.conformance.scenarios.directories import DirectoryScenario, Workshop
from tests.conformance.secured.jaas import (
    MECHANISMS,
    OAUTH,
    PLAIN,
    SCRAM,
    SCRAMS,
    client_settings,
    lines,
    scram_words,
)
from tests.conformance.secured.login_programs import WITH_TOKENS, available, lacks_scram, login
from tests.conformance.secured.stores import Stores
from tests.conformance.toolbox import Toolbox

USER, PASSWORD, TOPIC = "alice", "alice-secret", "logins"
JAVA: Final = "java"
AT_ONCE: Final = 2
PATIENCE: Final = {
    "default.api.timeout.ms": "20000",
    "request.timeout.ms": "10000",
    "max.block.ms": "20000",
}
Case = tuple[str, dict[str, str]]
"""The address, and how to log in."""


def broker_settings(stores: Stores, port: int, secured: int) -> dict[str, str]:
    """Two listeners more beside that for administration: SASL under TLS, and TLS with certificates of clients."""
    names = {"SECURE": (secured, "SASL_SSL"), "MUTUAL": (secured + 1, "SSL")}
    own = f"PLAINTEXT://127.0.0.1:{port}"
    more = ",".join(f"{name}://127.0.0.1:{at}" for name, (at, _) in names.items())
    protocols = ",".join(f"{name}:{protocol}" for name, (_, protocol) in names.items())
    settings = {
        "listeners": f"{own},CONTROLLER://127.0.0.1:{port + 1},{more}",
        "advertised.listeners": f"{own},{more}",
        "listener.security.protocol.map": f"CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,{protocols}",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        **stores.of_node(),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.secure.plain.sasl.jaas.config": f'{PLAIN} required user_{USER}="{PASSWORD}";',
        "listener.name.secure.oauthbearer.sasl.jaas.config": f'{OAUTH} required unsecuredLoginStringClaim_sub="node";',
        "delegation.token.secret.key": "key of the cluster",
    }
    return settings | {f"listener.name.secure.{name.lower()}.sasl.jaas.config": f"{SCRAM} required;" for name in SCRAMS}


def cases(stores: Stores, secured: int) -> dict[str, Case]:
    """What is tried, by name; a name with a comma is of credentials that must be refused."""
    ca = str(stores.ca)
    address, mutual = f"127.0.0.1:{secured}", f"127.0.0.1:{secured + 1}"
    tried: dict[str, Case] = {
        name: (address, {"protocol": "SASL_SSL", "ca": ca, "mechanism": name, "user": USER, "password": PASSWORD})
        for name in MECHANISMS
    }
    for name in ("PLAIN", *SCRAMS):
        tried[f"{name}, wrong password"] = (address, tried[name][1] | {"password": "wrong"})
    tried["SCRAM-SHA-256, unknown user"] = (address, tried["SCRAM-SHA-256"][1] | {"user": "mallory"})
    for name, store in (("certificate", stores.client), ("certificate, of another authority", stores.unknown)):
        tried[name] = (mutual, {"protocol": "SSL", "ca": ca, "certificate": str(store)})
    return tried


def java_login(box: Toolbox, name: str, security: Mapping[str, str]) -> str:
    """The console producer and consumer; the second prints what the first has sent."""
    path = box.directory / f"{name.replace(' ', '-')}.properties"
    path.write_text(lines(client_settings(security) | PATIENCE))
    try:
        words = ("--topic", TOPIC, "--command-config", str(path))
        box.run("kafka-console-producer", *words, given="record\n")
        read = box.run(
            "kafka-console-consumer", *words, "--from-beginning", "--max-messages", "1", "--timeout-ms", "20000"
        )
    except Failed as failure:
        return "refused" if "AuthenticationException" in str(failure) else f"no answer: {failure}"
    return "ok" if "record" in read else f"read {read!r}"


def made_token(box: Toolbox, config: Path) -> tuple[dict[str, object], tuple[str, str]]:
    """A user makes a token and looks at it: what is seen, and the token's id and secret."""
    words = ("--command-config", str(config))
    made = box.run(
        "kafka-delegation-tokens",
        *(*words, "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob"),
    )
    row = next((line.split() for line in made.splitlines() if f"User:{USER}" in line), [])
    if len(row) < 2:
        raise Failed(f"no token is printed: {made!r}")
    seen = {}
    for of in ((), ("--owner-principal", f"User:{USER}"), ("--owner-principal", "User:bob")):
        shown = box.run("kafka-delegation-tokens", *words, "--describe", *of)
        seen[" ".join(of) or "current user"] = shown.count(f"User:{USER}")
    return {"described": seen}, (row[0], row[1])


def token_cases(case: Case, token: tuple[str, str]) -> dict[str, Case]:
    address, security = case
    named = security | {"user": token[0], "token": "true"}
    return {
        "token": (address, named | {"password": token[1]}),
        "token, wrong secret": (address, named | {"password": "wrong"}),
    }


class Attempts:
    """Logins of every client that is there, so many at once."""

    def __init__(self, work: Workshop) -> None:
        self._work = work
        self._commands, missing = available(work.toolchain)
        work.facts |= missing
        self._without_scram = {each for each, command in self._commands.items() if lacks_scram(each, command)}
        self.libraries = (*self._commands, JAVA)

    def run(self, tried: Mapping[str, Case], libraries: tuple[str, ...]) -> None:
        """Leaves the outcomes in the facts. Raises `Failed` if one is not what the case demands."""

        def attempt(pair: tuple[str, str]) -> str:
            library, name = pair
            address, security = tried[name]
            if library == JAVA:
                return java_login(
                    Toolbox(self._work.toolchain, address, "logins", self._work.directory), name, security
                )
            return login(library, self._commands[library], address, {**security, "token": bool(security.get("token"))})

        pairs = [
            (library, name)
            for library in libraries
            for name in tried
            if not (name.startswith("SCRAM") and library in self._without_scram)
        ]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            outcomes = dict(zip(pairs, pool.map(attempt, pairs), strict=True))
        for library, name in pairs:
            self._work.facts[f"{library}, {name}"] = outcomes[library, name]
        demand(outcomes)


def demand(outcomes: Mapping[tuple[str, str], str]) -> None:
    """Clients with right credentials are served, and others are not."""
    wrong = [
        f"{library}, {name}: {outcome}"
        for (library, name), outcome in outcomes.items()
        if (outcome == "ok") != ("," not in name)
    ]
    if wrong:
        raise Failed("; ".join(wrong))


def on(side: str) -> Callable[[Workshop], None]:
    def story(work: Workshop) -> None:
        attempts = Attempts(work)
        stores = Stores(work.directory)
        secured = work.ports.pair()
        broker = work.moldau() if side == "moldau" else work.apache()
        broker.set(broker_settings(stores, broker.port, secured))
        broker.format_words = scram_words(USER, PASSWORD)
        broker.format()
        with work.running(broker):
            admin = Toolbox(work.toolchain, broker.bootstrap, "logins", work.directory)
            admin.run("kafka-topics", "--create", "--topic", TOPIC, "--partitions", "1")
            tried = cases(stores, secured)
            attempts.run(tried, attempts.libraries)
            case = tried["SCRAM-SHA-256"]
            box = Toolbox(work.toolchain, case[0], "logins", work.directory)
            work.facts["tokens"], token = made_token(box, work.directory / "SCRAM-SHA-256.properties")
            able = tuple(each for each in attempts.libraries if each in (*WITH_TOKENS, JAVA))
            attempts.run(token_cases(case, token), able)
        del work.facts[f"{broker.name} ended with status"]  # Java ends with that of the signal

    return story


DEMANDS = "clients log in by PLAIN, SCRAM, OAUTHBEARER, certificates and tokens; wrong credentials are refused"
LOGIN_SCENARIOS = tuple(DirectoryScenario("logins", DEMANDS, on(side), side) for side in ("moldau", "apache"))
