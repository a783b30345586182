"""The completion of shells: bash is asked as it asks, the others by what their scripts hold."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from moldau.broker.cli.command import SUBCOMMANDS, main, parser
from moldau.broker.cli.daily.completion import SHELLS, levels_of

ASK = """
source /dev/stdin <<< "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($#-1)); _moldau; printf '%s\\n' "${COMPREPLY[@]}"
"""


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        (["to"], ["topic"]),
        (["topic", "delete"], ["delete", "delete-records"]),
        (["topic", "create", "--re"], ["--replication-factor", "--replica-assignment"]),
        (["produce", "orders", "--compression", "z"], ["zstd"]),
        (["group", "reset", "app", "--to-"], ["--to-file"]),
        (["completion", "f"], ["fish"]),
        (["nonsense", "ser"], ["serve"]),
    ],
)
def test_bash_completes(words: list[str], completed: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    command = ["bash", "-c", ASK, "bash", script("bash", capsys), "moldau", *words]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() == completed


@pytest.mark.parametrize("shell", SHELLS)
def test_each_script_has_every_command_action_and_option(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = script(shell, capsys)
    for level in levels_of(parser(), "moldau"):
        assert f'"{level.path}"' in text
        for name in [*level.actions, *(option.removeprefix("--") for option in level.options)]:
            assert name in text
    assert all(each.name in text for each in SUBCOMMANDS)


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_that_is_here_reads_its_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    text = script(shell, capsys)
    subprocess.run([shell, "-n"], input=text, text=True, check=True)
