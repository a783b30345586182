"""`python -m tests.fuzz.logins`: a campaign of hostile conversations before authentication.

The broker offers PLAIN, SCRAM-SHA-256 and OAUTHBEARER on one listener and TLS on another. An honest client produces and
fetches through a third. The broker lives, serves none of the hostile, keeps its memory, and its log names no failure.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from bench.processes import memory
from moldau.testing.ports import free_ports
from tests.fuzz.__main__ import (
    ALLOWANCE_MB,
    FAILURES,
    HOST,
    WARM_SEED,
    Honest,
    Target,
    is_alive,
    measured,
    start,
)
from tests.fuzz.honest import TOPIC, HonestClient
from tests.support.certificates import Authority
from tests.support.identity_provider import IdentityProvider

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
WARM_S = 8.0
WARM_INPUTS = 10_000
"""Conversations before memory is measured: the first client loads modules, and threads keep what they allocate."""


def settings(directory: Path, plain: int, controller: int, sasl: int, tls: int) -> list[str]:
    keys, node = directory / "keys.json", directory / "node.pem"
    keys.write_bytes(IdentityProvider().key_set())
    node.write_text(Authority("fuzz").issue("node", "localhost").pem())
    clients = f"PLAINTEXT://{HOST}:{plain},SASL://{HOST}:{sasl},TLS://{HOST}:{tls}"
    return [
        f"listeners={clients},CONTROLLER://{HOST}:{controller}",
        f"advertised.listeners={clients}",
        f"controller.quorum.bootstrap.servers={HOST}:{controller}",
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT,TLS:SSL",
        "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,OAUTHBEARER",
        f'listener.name.sasl.plain.sasl.jaas.config={PLAIN} required user_alice="secret";',
        f"listener.name.sasl.oauthbearer.sasl.oauthbearer.jwks.endpoint.url={keys.as_uri()}",
        f"moldau.oauthbearer.allowed.urls={keys.as_uri()}",
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={node}",
        "connection.failed.authentication.delay.ms=0",
    ]


def attack(target: Target, sasl: int, tls: int, inputs: int, seed: int, connections: int) -> tuple[Counter[str], float]:
    """The outcomes by kind, and the largest resident memory meanwhile, in MB."""
    command = [sys.executable, "-m", "tests.fuzz.login_attack", HOST, str(sasl), str(tls), str(inputs)]
    command += ["--seed", str(seed), "--connections", str(connections)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    most_mb = 0.0
    while process.poll() is None and is_alive(target):
        most_mb = max(most_mb, memory(target.pid).resident_mb)
        time.sleep(0.05)
    text, _ = process.communicate()
    return Counter({f"{kind}: {outcome}": count for kind, outcome, count in json.loads(text or "[]")}), most_mb


def campaign(directory: Path, given: argparse.Namespace) -> list[str]:
    """What is wrong."""
    controller, sasl, tls, port = free_ports(4)
    with open(directory / "broker.log", "wb") as log:
        target = start(directory, settings(directory, port, controller, sasl, tls), log, port)
        try:
            HonestClient(HOST, target.port).create_topic(TOPIC)
            honest = Honest(target.port)
            time.sleep(WARM_S)
            calm = measured("calm", {api: values[len(values) // 4 :] for api, values in honest.stop().items()})
            attack(target, sasl, tls, WARM_INPUTS, given.seed + WARM_SEED, given.connections)
            idle_mb = memory(target.pid).resident_mb
            honest = Honest(target.port)
            outcomes, most_mb = attack(target, sasl, tls, given.inputs, given.seed, given.connections)
            attacked = measured("attacked", honest.stop())
            lives = is_alive(target)
        finally:
            assert target.process is not None
            target.process.terminate()
            target.process.wait(60)
    for kind, count in sorted(outcomes.items()):
        print(f"  {count:9,}  {kind}")
    print(f"resident: {idle_mb:.0f} MB idle, {most_mb:.0f} MB at most")
    for name in ("produce p99", "fetch p99"):
        print(f"honest {name}: {attacked[name] / calm[name]:.2f}x of alone")
    wrong = [] if lives else ["the process has ended"]
    wrong += [kind for kind in outcomes if "SERVED" in kind]
    if most_mb > idle_mb + ALLOWANCE_MB:
        wrong.append(f"resident memory rose by {most_mb - idle_mb:.0f} MB")
    lines = (directory / "broker.log").read_text(errors="replace").splitlines()
    return wrong + [line for line in lines if any(map(line.count, FAILURES))][:20]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.logins", description=__doc__)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--connections", type=int, default=32)
    given = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="moldau-fuzz-"))
    try:
        wrong = campaign(directory, given)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    print("\n".join(wrong) if wrong else "held")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
