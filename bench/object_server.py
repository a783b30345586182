"""An S3 server on this machine that can carry load: versitygw over a directory."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Final

from bench.native_load import CACHE
from bench.subjects import die_with_parent
from tests.conformance.toolchain import Missing

PROGRAM: Final = "versitygw"
MODULE: Final = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
KEY: Final = "bench"
SECRET: Final = "bench-secret"
REGION: Final = "us-east-1"
STARTED_S_MAX: Final = 30.0
CREDENTIALS: Final = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}


class ObjectServer:
    """A process of the server, with its credentials in the environment of this process. A `with` block ends both. A
    bucket is a directory below `directory`. Raises `Missing` if the program is not installed.
    """

    def __init__(self, directory: Path, port: int) -> None:
        program = find_program()
        self.endpoint = f"http://127.0.0.1:{port}"
        self._buckets = directory / "buckets"
        self._buckets.mkdir(parents=True)
        self._before = {name: os.environ.get(name) for name in CREDENTIALS}
        words = [program, "--access", KEY, "--secret", SECRET, "--region", REGION, "--port", f"127.0.0.1:{port}"]
        with (directory / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*words, "--quiet", "posix", str(self._buckets)],
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        self.pid = self._process.pid
        os.environ.update(CREDENTIALS)
        wait_for_port(port)

    def __enter__(self) -> ObjectServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    def make_bucket(self, name: str) -> None:
        """Make an empty bucket."""
        (self._buckets / name).mkdir()


def find_program() -> str:
    """Return the path of the server's program: the installed one, or one that Go builds once. Raises `Missing`."""
    program = shutil.which(PROGRAM) or shutil.which(PROGRAM, path=str(CACHE))
    return program or _built()


def _built() -> str:
    go = shutil.which("go")
    if go is None:
        raise Missing(f"{PROGRAM} is not on the PATH, and there is no Go to install {MODULE}")
    print(f"  {PROGRAM} is built, once", flush=True)
    CACHE.mkdir(parents=True, exist_ok=True)
    variables = os.environ | {"GOBIN": str(CACHE)}
    done = subprocess.run([go, "install", MODULE], env=variables, capture_output=True, text=True)
    if done.returncode:
        raise Missing(f"go install {MODULE} failed: {done.stderr[-400:]}")
    return str(CACHE / PROGRAM)


def wait_for_port(port: int) -> None:
    deadline = time.monotonic() + STARTED_S_MAX
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return
