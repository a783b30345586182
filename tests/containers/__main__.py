"""`make containers`: the image under the Kafka modules of Testcontainers, in the languages that are installed.

It needs a Docker daemon, and the image (`docker build -t moldau .`), whose name MOLDAU_IMAGE may change.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
SETTINGS: Final = {
    "TESTCONTAINERS_RYUK_DISABLED": "true",
    "TESTCONTAINERS_CHECKS_DISABLE": "true",
    "TESTCONTAINERS_HOST_OVERRIDE": "127.0.0.1",
}
"""Testcontainers runs containers of its own: one that removes what a killed test left, one that looks for the address
of the host. Their images may not be there. Variables that are set already take precedence.
"""


def main() -> int:
    image = os.environ.get("MOLDAU_IMAGE", "moldau")
    if not answers("docker", "info"):
        print("no Docker daemon answers: the image is not tested")
        return 0
    if not answers("docker", "image", "inspect", image):
        print(f"there is no image {image}: docker build -t {image} .")
        return 1
    client = importlib.util.find_spec("kafka")
    assert client is not None and client.origin is not None
    variables = {**SETTINGS, **os.environ, "MOLDAU_IMAGE": image, "KAFKA_PYTHON": str(Path(client.origin).parent)}
    failed = [name for name, command in commands().items() if subprocess.run(command, env=variables).returncode]
    for name in failed:
        print(f"{name}: failed")
    return 1 if failed else 0


def commands() -> dict[str, list[str]]:
    """The test runs, by language."""
    found = {}
    if importlib.util.find_spec("testcontainers") is None:
        print("no testcontainers (pip install testcontainers): Python is left out")
    else:
        found["Python"] = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(HERE / "python_module.py")]
    if maven := shutil.which("mvn"):
        found["Java"] = [maven, "-q", "-B", "-f", str(HERE / "java" / "pom.xml"), "test"]
    else:
        print("no Maven: Java is left out")
    if go := shutil.which("go"):
        found["Go"] = [go, "-C", str(HERE / "go"), "test", "./..."]
    else:
        print("no Go: Go is left out")
    return found


def answers(*command: str) -> bool:
    """Whether a command is there and succeeds."""
    return shutil.which(command[0]) is not None and subprocess.run(command, capture_output=True).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
