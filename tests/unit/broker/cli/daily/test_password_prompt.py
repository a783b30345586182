"""A password that a terminal is asked for: whatever ends the command, the terminal shows again what is typed."""

from __future__ import annotations

import io
import os
import pty
import select
import signal
import subprocess
import sys
import termios
from types import SimpleNamespace
from typing import Any

import pytest

from moldau.broker.cli.daily.failures import WrongArguments
from moldau.broker.cli.daily.principals.users import password_of
from moldau.testing.namespace import Namespace

ECHO_OF = 3
"""The place of the local modes in what `tcgetattr` gives."""


def has_echo(terminal: int) -> bool:
    return bool(termios.tcgetattr(terminal)[ECHO_OF] & termios.ECHO)


def test_a_password_that_is_not_utf_8_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xff\n"), "utf-8"))
    session: Any = SimpleNamespace(arguments=SimpleNamespace(password_file=None))
    with pytest.raises(WrongArguments, match="the password on standard input is not UTF-8"):
        password_of(session)


@pytest.mark.processes
@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_at_the_prompt_leaves_the_terminal_with_echo(kafka: Namespace, number: int, status: int) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "moldau", "user", "create", "alice", "-b", kafka.bootstrap_servers]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
    try:
        said = b""
        while b"assword: " not in said:
            assert select.select([ours], [], [], 60)[0], said
            said += os.read(ours, 1_000)
        assert not has_echo(theirs)
        process.send_signal(number)
        assert process.wait(60) == status
        assert has_echo(theirs)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
        os.close(theirs)
