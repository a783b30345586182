"""Every action of the daily commands over every way to a cluster: plain, TLS, certificates, and each mechanism of SASL
with and without TLS; with right and wrong arguments, without rights, and with what a connection may have wrong.
"""

from __future__ import annotations

import re
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from tests.conformance.outcome import Facts, Failed
from tests.conformance.scenarios.directories import DirectoryScenario, Workshop
from tests.conformance.secured.jaas import PLAIN, SCRAM, SCRAMS, client_settings
from tests.conformance.secured.listeners import Between, credentials, secured
from tests.conformance.secured.stores import Stores
from tests.support.certificates import Authority
from tests.support.daily_batch import Ended, run_all
from tests.support.daily_command import properties_text
from tests.support.daily_stories import until
from tests.support.daily_walk import AT_CONTROLLERS, COMMON_MISTAKES, DENIED, UNREACHABLE, USAGE, steps

ADMINISTRATOR, USER = "admin", "alice"
PASSWORDS: Final = {ADMINISTRATOR: "admin-secret", USER: "alice-secret"}
MECHANISMS: Final = ("PLAIN", *SCRAMS)
HOST, OTHER_NAME = "127.0.0.1", "localhost"
"""The certificate of the node has the address, and not the name."""
PATIENCE_MS: Final = 5_000
"""For one command, which says it to its client."""
LATE_S: Final = 10
"""How much longer than that a command may take on a machine with other work."""
SILENT_MS: Final = 500
AT_ONCE: Final = 4
EVERYTHING: Final = ("--topic", "*", "--group", "*", "--transactional-id", "*", "--cluster")
PREPARING: Final = ("topic create", "produce", "consume")
"""The actions that make a topic and a group for those after them."""
NOT_AT_CONTROLLERS: Final = (DENIED, UNREACHABLE)
"""The exit statuses of an action that the controllers do not let in, by the protocol of the client."""
Security = Mapping[str, str]


class Way(NamedTuple):
    """A listener, and how a user authenticates there."""

    name: str
    port: int
    security: Security

    @property
    def is_encrypted(self) -> bool:
        return self.security["protocol"].endswith("SSL")

    @property
    def logs_in(self) -> bool:
        return "mechanism" in self.security

    @property
    def meets_controllers(self) -> bool:
        """Whether a client that connects so is let in at the controllers, which want certificates."""
        return "certificate" in self.security

    def of(self, **changed: str) -> Way:
        return self._replace(security={**self.security, **changed})


class Case(NamedTuple):
    """What is wrong, the way with it, and the exit status of every action. `words` are added to each command."""

    name: str
    way: Way
    status: int
    host: str = HOST
    words: tuple[str, ...] = ()


class Listeners:
    """The listeners of a node, and its certificates."""

    def __init__(self, work: Workshop, port: int) -> None:
        directory = work.directory
        self.stores = Stores(directory, hosts=(HOST,))
        self.other = directory / "other.pem"
        self.other.write_text(Authority("Strangers").certificate_pem)
        self.plain, self.login_and_tls = port, work.ports.pair()
        self.mutual = self.login_and_tls + 1
        self.tls = work.ports.pair()
        self.login = self.tls + 1

    def settings(self) -> dict[str, str]:
        settings = secured(self.stores, self.plain, self.login_and_tls, Between.CERTIFICATES)
        for listener, port, protocol in (("TLS", self.tls, "SSL"), ("LOGIN", self.login, "SASL_PLAINTEXT")):
            for name in ("listeners", "advertised.listeners"):
                settings[name] += f",{listener}://{HOST}:{port}"
            settings["listener.security.protocol.map"] += f",{listener}:{protocol}"
        users = " ".join(f'user_{name}="{password}"' for name, password in PASSWORDS.items())
        for listener in ("secure", "login"):
            own = f"listener.name.{listener}"
            settings[f"{own}.sasl.enabled.mechanisms"] = ",".join(MECHANISMS)
            settings[f"{own}.plain.sasl.jaas.config"] = f"{PLAIN} required {users};"
            settings |= {f"{own}.{name.lower()}.sasl.jaas.config": f"{SCRAM} required;" for name in SCRAMS}
        settings["super.users"] = ";".join(f"User:{name}" for name in ("node", "client", ADMINISTRATOR))
        return settings

    def ways(self, user: str) -> list[Way]:
        """Each way with this user; without a login it is the principal ANONYMOUS."""
        trusted = {"ca": str(self.stores.ca)}
        certificate = self.stores.client if user == ADMINISTRATOR else self.stores.known(user)
        login = {"user": user, "password": PASSWORDS[user]}
        found = [
            Way("plain", self.plain, {"protocol": "PLAINTEXT", **trusted}),
            Way("TLS", self.tls, {"protocol": "SSL", **trusted}),
            Way("certificate", self.mutual, {"protocol": "SSL", **trusted, "certificate": str(certificate)}),
        ]
        for name, port, protocol in (("SASL", self.login, "SASL_PLAINTEXT"), ("TLS", self.login_and_tls, "SASL_SSL")):
            for mechanism in MECHANISMS:
                security = {"protocol": protocol, **trusted, "mechanism": mechanism, **login}
                found.append(Way(f"{mechanism} over {name}", port, security))
        return found

    def cases(self, silent: int) -> Iterator[Case]:
        """What a connection may have wrong. At the port `silent` nothing answers."""
        ways = self.ways(ADMINISTRATOR)
        by_protocol = {way.security["protocol"]: way for way in ways if "certificate" not in way.security}
        for way in ways:
            if way.logs_in:
                yield Case("wrong password", way.of(password="wrong"), DENIED)
                yield Case("unknown user", way.of(user="nobody"), DENIED)
            if way.is_encrypted:
                yield Case("unknown authority", way.of(ca=str(self.other)), DENIED)
                yield Case("another host name", way, DENIED, host=OTHER_NAME)
        mutual = next(way for way in ways if "certificate" in way.security)
        yield Case("certificate of a stranger", mutual.of(certificate=str(self.stores.unknown)), DENIED)
        yield Case("no certificate", by_protocol["SSL"]._replace(port=mutual.port, name="certificate"), DENIED)
        for protocol, way in by_protocol.items():
            for other, listener in by_protocol.items():
                if other != protocol:
                    status = DENIED if protocol == f"SASL_{other}" else UNREACHABLE
                    yield Case(f"{protocol} at a listener of {other}", way._replace(port=listener.port), status)
            yield Case("no broker", way._replace(port=1), UNREACHABLE)
            yield Case(
                "no answer", way._replace(port=silent), UNREACHABLE, words=("-X", f"request.timeout.ms={SILENT_MS}")
            )
        login = by_protocol["SASL_SSL"]
        for mechanism in ("OAUTHBEARER", "GSSAPI"):
            yield Case(f"mechanism {mechanism}", login, USAGE, words=("-X", f"sasl.mechanism={mechanism}"))


class Walk:
    """The walk over one broker."""

    def __init__(self, work: Workshop, side: str) -> None:
        self._directory = work.directory
        broker = work.moldau() if side == "moldau" else work.apache()
        self.listeners = Listeners(work, broker.port)
        broker.set(self.listeners.settings())
        broker.format_words = credentials(PASSWORDS)
        self.broker = broker
        self.facts: Facts = {}
        self.problems: list[str] = []
        self._batches = 0

    def place(self) -> Path:
        self._batches += 1
        place = self._directory / f"batch-{self._batches}"
        place.mkdir()
        return place

    def connected(self, way: Way, place: Path, host: str = HOST) -> tuple[str, ...]:
        file = place / "client.properties"
        settings = {**client_settings(way.security), "request.timeout.ms": str(PATIENCE_MS)}
        file.write_text(properties_text(settings))
        return ("--command-config", str(file), "-b", f"{host}:{way.port}")

    def told(self, name: str, place: Path, ended: Ended) -> list[object]:
        """The exit status and the texts, without what differs from run to run."""
        said = [line for line in ended.out.splitlines() if not line.startswith(NO_HISTORY)]
        texts = [said, ended.err.splitlines()]
        if ended.status == USAGE and ended.err.startswith("usage:"):
            texts[1] = texts[1][-1:]
        return [ended.status, *("\n".join(lasting(line, name, str(place)) for line in each) for each in texts)]

    def expect(self, what: str, words: Sequence[str], ended: Ended, statuses: Iterable[int]) -> None:
        lines = ended.err.splitlines()
        if ended.status not in statuses:
            self.problems.append(f"{what}: {' '.join(words[:3])} ended with {ended.status}: {ended.out}{ended.err}")
        elif ended.status and ended.status != USAGE and not any(line.startswith("moldau: ") for line in lines):
            self.problems.append(f"{what}: {' '.join(words[:3])} says no sentence: {ended.out}{ended.err}")
        attempts = 2 if words[0] in AT_CONTROLLERS else 1
        if ended.seconds > attempts * PATIENCE_MS / 1_000 + LATE_S:
            self.problems.append(f"{what}: {' '.join(words[:3])} took {ended.seconds:.1f} s")

    def right(self, way: Way) -> dict[str, list[object]]:
        """Every action, in an order in which each finds what it needs."""
        place, name = self.place(), f"walk-{re.sub('[^a-zA-Z0-9]', '-', way.name)}"
        connected, all_steps = self.connected(way, place), list(steps(name, 1, place))
        ended = run_all([(*step.words, *connected) for step in all_steps], place)
        for step, each in zip(all_steps, ended, strict=True):
            is_alone = step.action in AT_CONTROLLERS and not way.meets_controllers
            self.expect(f"right at {way.name}", step.words, each, NOT_AT_CONTROLLERS if is_alone else step.right)
        return {
            lasting(" ".join(step.words), name, str(place)): self.told(name, place, each)
            for step, each in zip(all_steps, ended, strict=True)
        }

    def mistakes(self, way: Way) -> tuple[Facts, Facts]:
        """What each action says to its own wrong arguments, and to those that are wrong everywhere: for each of these,
        how often each text is said.
        """
        place, name = self.place(), "mistaken"
        connected = self.connected(way, place)
        own: dict[str, tuple[tuple[str, ...], int]] = {}
        common: list[tuple[tuple[str, ...], tuple[str, ...]]] = []
        for step in steps(name, 1, place):
            own |= {" ".join(words): ((*words, *connected), status) for status, words in step.wrong}
            common += [(mistake, (*step.words, *connected, *mistake)) for mistake in COMMON_MISTAKES]
        prepared = [(*step.words, *connected) for step in steps(name, 1, place) if step.action in PREPARING]
        run_all(prepared, place)
        told: Facts = {}
        for (words, (line, status)), ended in zip(
            own.items(), run_all([each for each, _ in own.values()], place), strict=True
        ):
            self.expect("wrong arguments", line, ended, (status,))
            told[lasting(words, name, str(place))] = self.told(name, place, ended)
        counts: dict[str, Counter[str]] = {}
        for (mistake, line), ended in zip(common, run_all([line for _, line in common], place), strict=True):
            self.expect(" ".join(mistake), line, ended, (USAGE,))
            counts.setdefault(" ".join(mistake), Counter())[
                str(self.told(name, place, ended)[-1]).partition(": ")[2]
            ] += 1
        return told, {mistake: dict(each) for mistake, each in counts.items()}

    def failing(self, case: Case, name: str) -> Facts:
        """Every action with one thing wrong: for each outcome, the actions that have it."""
        place = self.place()
        connected = (*self.connected(case.way, place, case.host), *case.words)
        all_steps = list(steps(name, 1, place))
        ended = run_all([(*step.words, *connected) for step in all_steps], place)
        found: dict[str, list[str]] = {}
        for step, each in zip(all_steps, ended, strict=True):
            status = step.denied if case.status < 0 else case.status
            refused = NOT_AT_CONTROLLERS if step.action in AT_CONTROLLERS and case.status < 0 else (status,)
            self.expect(f"{case.name} at {case.way.name}", step.words, each, refused)
            found.setdefault("{} {}{}".format(*self.told(name, place, each)), []).append(step.action)
        usual = max(found.values(), key=len)
        return {text: "usual" if actions is usual else actions for text, actions in found.items()}

    def run(self) -> None:
        administrator = self.listeners.ways(ADMINISTRATOR)[-1]
        place = self.place()
        connected = self.connected(administrator, place)
        acl = ("--principal", "User:ANONYMOUS", *EVERYTHING)

        def administer(*words: str) -> Ended:
            (ended,) = run_all([(*words, *connected)], place)
            if ended.status:
                raise Failed(f"{' '.join(words)}: {ended.err}")
            return ended

        administer("acl", "add", "--operation", "All", *acl)
        name = "given"
        for step in list(steps(name, 1, place)):
            if step.action in PREPARING:
                administer(*step.words)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            ways = self.listeners.ways(ADMINISTRATOR)
            told = list(pool.map(self.right, ways))
            self.facts["right"] = told[0]
            for way, each in zip(ways[1:], told[1:], strict=True):
                other = {action: text for action, text in each.items() if text != told[0][action]}
                self.facts[f"right at {way.name}, unlike plain"] = other
            self.facts["wrong arguments"], self.facts["wrong everywhere"] = self.mistakes(ways[0])
            administer("acl", "remove", "--principal", "User:ANONYMOUS", "--execute")
            until(lambda: administer("acl", "list", "--principal", "User:ANONYMOUS").out, "there are no such ACLs\n")
            with silent_port() as silent:
                denied = [Case("no rights", way, -1) for way in self.listeners.ways(USER)]
                cases = [*denied, *self.listeners.cases(silent)]
                for case, fact in zip(cases, pool.map(lambda case: self.failing(case, name), cases), strict=True):
                    self.facts[f"{case.name} at {case.way.name}"] = fact


@contextmanager
def silent_port() -> Iterator[int]:
    """A port that accepts connections and answers nothing."""
    with socket.create_server((HOST, 0), backlog=128) as listening:
        yield listening.getsockname()[1]


LASTING: Final = (
    (re.compile(r"(127\.0\.0\.1|localhost):\d+"), "ADDRESS"),
    (re.compile(r"127\.0\.0\.1 +\d+"), "HOST  PORT"),
    (re.compile(r"\b4\.\d-IV\d( |$)"), "RELEASE\\1"),
    (re.compile(r"\b[A-Za-z0-9_-]{22}\b"), "ID"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ][\d:.]+(Z|\+00:00)?"), "TIME"),
    (re.compile(r"\d[\d.,]* (ms|s|min|h|d)\b"), "N SECONDS"),
    (re.compile(r"\d[\d.,]* (B|KiB|MiB|GiB|TiB)\b"), "N BYTES"),
    (re.compile(r"_ms\": \d+"), '_ms": N'),
    (re.compile(r"\"timestamp\": ?\d+"), '"timestamp": N'),
    (re.compile(r"  +|-{3,}"), "  "),
    # The topics of the ways that are walked at the same time.
    (re.compile(r"^\d+ topics, \d+ partitions$"), "N topics, N partitions"),
    (re.compile(r"RELEASE  \d+  \d+"), "RELEASE  N  N"),
    (re.compile(r"^backup \d{8}T\d{6}Z-\d+: \d+ topics, \d+ partitions"), "backup ID: N topics, N partitions"),
    # The alerts of OpenSSL and of Java for one refusal, and a chain with and without its root.
    (re.compile(r"\((bad certificate|certificate required|certificate unknown|unknown ca)\)"), "(ALERT)"),
    (re.compile(r"(self-signed certificate in certificate chain|unable to get local issuer certificate)"), "UNKNOWN"),
)
NO_HISTORY: Final = "  only what is seen now is told: the broker keeps no history of groups"
"""The beginning of a line of `group explain` on Apache Kafka, which remembers no events of groups."""


def lasting(line: str, name: str, place: str) -> str:
    """A line without names, addresses, ids, times and sizes."""
    line = line.replace(place, "DIR").replace(name, "NAME")
    for pattern, replaced in LASTING:
        line = pattern.sub(replaced, line)
    return line.rstrip()


def walked(side: str) -> Callable[[Workshop], None]:
    def story(work: Workshop) -> None:
        walk = Walk(work, side)
        walk.broker.format()
        with work.running(walk.broker):
            walk.run()
        del work.facts[f"{walk.broker.name} ended with status"]  # Java ends with that of the signal.
        work.facts |= walk.facts
        if walk.problems:
            raise Failed(f"{len(walk.problems)} answers are not as they should be:\n" + "\n".join(walk.problems))

    return story


DEMANDS: Final = "every action of the daily commands over every way to log in, right and with each thing wrong"
DAILY_WALK_SCENARIOS: Final = tuple(
    DirectoryScenario("moldau-walk", DEMANDS, walked(side), side) for side in ("moldau", "apache")
)
