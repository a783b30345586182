"""The programs of single logins, one for each client: `PROGRAM ... BOOTSTRAP SECURITY` prints how it ended."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Final

from tests.conformance.outcome import Failed
from tests.conformance.toolchain import Missing, Toolchain

PATIENCE_S: Final = 120
"""For one login, on a machine that does other things."""
PYTHON: Final = (sys.executable, "-m")
DRIVERS: Final = "tests.conformance.drivers"


def _python(library: str) -> Callable[[Toolchain], list[str]]:
    return lambda toolchain: [*PYTHON, f"{DRIVERS}.login", library]


def _go(library: str) -> Callable[[Toolchain], list[str]]:
    return lambda toolchain: [*toolchain.go_command("logins"), library]


COMMANDS: Final[Mapping[str, Callable[[Toolchain], list[str]]]] = {
    "confluent": _python("confluent"),
    "kafka-python": _python("kafka-python"),
    "aiokafka": _python("aiokafka"),
    "kcat": lambda toolchain: [*PYTHON, f"{DRIVERS}.kcat_login", toolchain.kcat()],
    "kafkajs": lambda toolchain: toolchain.node_command("login.js"),
    "franz-go": _go("franz-go"),
    "sarama": _go("sarama"),
}
SCRAM_SINCE: Final = (2, 6, 1)
WITH_TOKENS: Final = ("franz-go",)
"""Clients that can say of a SCRAM login that it is one with a delegation token, besides Java."""


def available(toolchain: Toolchain) -> tuple[dict[str, list[str]], dict[str, str]]:
    """The command lines of the clients that are there, and why the others are not."""
    found: dict[str, list[str]] = {}
    missing: dict[str, str] = {}
    for library, command in COMMANDS.items():
        try:
            found[library] = command(toolchain)
        except Missing as reason:
            missing[library] = str(reason)
    return found, missing


def lacks_scram(library: str, command: list[str]) -> bool:
    """Whether its SCRAM is refused by brokers that check the nonce, Apache Kafka 4 and ours: librdkafka before 2.6.1
    repeats its own part of it.
    """
    if library != "kcat":
        return False
    said = subprocess.run([command[-1], "-V"], capture_output=True, text=True, timeout=PATIENCE_S).stdout
    found = re.search(r"librdkafka (\d+)\.(\d+)\.(\d+)", said)
    return found is not None and tuple(map(int, found.groups())) < SCRAM_SINCE


def login(library: str, command: list[str], address: str, security: Mapping[str, object]) -> str:
    """How the login ended: `ok`, `refused` or `no answer`. Raises `Failed` if the program itself did."""
    line = [*command, address, json.dumps(security)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE_S)
    if done.returncode != 0:
        raise Failed(f"{library} ended with status {done.returncode}: {done.stderr[-600:]}")
    return done.stdout.strip()
