"""One login of kcat: `kcat_login.py KCAT BOOTSTRAP SECURITY`. SECURITY is JSON.

It sends one record and reads it back. It prints `ok`, or the kind of refusal that the application sees.
"""

from __future__ import annotations

import json
import subprocess
import sys

from tests.conformance.drivers.librdkafka import security_settings
from tests.conformance.drivers.login import OTHER, PATIENCE_S, REFUSED, TOPIC

PATIENCE_MS = int(PATIENCE_S * 1000)


def options(security: dict[str, str]) -> list[str]:
    """librdkafka's settings, as kcat takes them."""
    settings = security_settings(security)
    if security.get("mechanism") == "OAUTHBEARER":
        settings |= {"enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": "principal=bearer"}
    return [word for name, value in settings.items() for word in ("-X", f"{name}={value}")]


def login(program: str, bootstrap: str, security: dict[str, str]) -> str:
    command = [program, "-b", bootstrap, *options(security), "-t", TOPIC, "-p", "0"]
    limit = ("-X", f"message.timeout.ms={PATIENCE_MS}")
    try:
        sent = subprocess.run(
            [*command, *limit, "-P"], input="record\n", capture_output=True, text=True, timeout=PATIENCE_S + 5
        )
        if sent.returncode:
            return REFUSED if "Authentication" in sent.stderr else OTHER
        read = subprocess.run(
            [*command, "-C", "-o", "beginning", "-c", "1"], capture_output=True, text=True, timeout=PATIENCE_S
        )
    except subprocess.TimeoutExpired as late:
        said = late.stderr or b""  # bytes, even of a process that is read as text
        return REFUSED if b"Authentication" in said else OTHER
    return "ok" if read.stdout == "record\n" else OTHER


if __name__ == "__main__":
    program, bootstrap, given = sys.argv[1:]
    print(login(program, bootstrap, json.loads(given)))
