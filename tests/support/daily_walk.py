"""A walk through every action of the commands that speak to a cluster: right arguments, and wrong ones. The table of
actions is compared with the command line itself.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from moldau.broker.cli.command import parser

NOTHING, FAILED, USAGE, UNKNOWN, DENIED, UNREACHABLE = range(6)
"""The exit statuses of the commands."""


class Step(NamedTuple):
    """An action with its right arguments."""

    words: tuple[str, ...]
    wrong: tuple[tuple[int, tuple[str, ...]], ...] = ()
    """Wrong arguments in place of the right ones, with the exit status that they give."""
    denied: int = DENIED
    """The exit status for a user without any right."""
    right: tuple[int, ...] = (NOTHING,)
    """The exit statuses that are right: more than one if the answer depends on the broker."""

    @property
    def action(self) -> str:
        """The command, or the command and its action."""
        return " ".join(self.words[: 2 if self.words[0] in WITH_ACTIONS else 1])


AT_CONTROLLERS: Final = ("backup", "capture")
"""The actions that ask the leader of the controllers, too, which has a listener of its own."""
WITH_ACTIONS: Final = ("topic", "group", "config", "acl", "user", "quota", "reassign", "elect", "tier")


def actions_of_command_line() -> dict[str, argparse.ArgumentParser]:
    """Every action that speaks to a cluster, as the command line declares them."""
    found: dict[str, argparse.ArgumentParser] = {}
    for name, command in _choices(parser()).items():
        for action, declared in (_choices(command) or {"": command}).items():
            if "--bootstrap-server" in declared._option_string_actions:
                found[f"{name} {action}".strip()] = declared
    return found


def _choices(command: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in command._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def steps(name: str, broker: int, directory: Path) -> Iterator[Step]:
    """The actions in an order in which each finds what it needs. `name` begins the names of topics, groups and users;
    `broker` is the id of a broker.
    """
    topic, group, user, node = f"{name}-topic", f"{name}-group", f"{name}-user", str(broker)
    values, password = directory / "values.txt", directory / "password.txt"
    values.write_text("one\ntwo\nthree\n")
    password.write_text("secret of a user\n")
    none = "/no/such/file"

    def of(command: str, *wrong: tuple[int, str]) -> tuple[tuple[int, tuple[str, ...]], ...]:
        return tuple((status, (*command.split(), *words.split())) for status, words in wrong)

    def line(text: str) -> tuple[str, ...]:
        return tuple(text.split())

    yield Step(
        line(f"topic create {topic} -p 2"),
        of("topic create", (USAGE, ""), (USAGE, f"{topic} -p many"), (FAILED, f"{topic}2 -p 0"), (FAILED, "a@b")),
    )
    yield Step(line(f"topic list {topic}"), of("topic list", (UNKNOWN, f"{topic}x"), (UNKNOWN, f"{topic}x*")))
    yield Step(line(f"topic describe {topic}"), of("topic describe", (USAGE, ""), (UNKNOWN, f"{topic}x")))
    yield Step(
        line(f"topic alter {topic} --set retention.ms=86400000"),
        of(
            "topic alter",
            (USAGE, topic),
            (FAILED, f"{topic} -p 1"),
            (UNKNOWN, f"{topic} --set a.b=1"),
            (UNKNOWN, f"{topic} --unset a.b"),
        ),
    )
    yield Step(
        line(f"produce {topic} {values} -p 0"),
        of("produce", (USAGE, ""), (UNKNOWN, f"{topic} {values} -p 9"), (USAGE, f"{topic} {none}")),
    )
    yield Step(
        line(f"consume {topic} --until-end"),
        of("consume", (USAGE, ""), (UNKNOWN, f"{topic}:9 -e"), (USAGE, f"{topic} -e -f %q"), (USAGE, f"{topic}:a -e")),
    )
    yield Step(line(f"consume {topic} -e -n 2 --group {group} --json"))
    yield Step(line(f"group list {group}"), of("group list", (UNKNOWN, f"{group}x*"), (USAGE, "--type big")))
    yield Step(line(f"group describe {group}"), of("group describe", (USAGE, ""), (UNKNOWN, f"{group}x")))
    yield Step(line(f"group explain {group}"), of("group explain", (USAGE, ""), (UNKNOWN, f"{group}x")))
    yield Step(
        line(f"group reset {group} --to earliest --execute"),
        of(
            "group reset",
            (USAGE, group),
            (USAGE, f"{group} --to noon"),
            (USAGE, f"{group} --from-file {none}"),
            (UNKNOWN, f"{group} --topic {topic}:9 --to latest"),
        ),
    )
    yield Step(
        line(f"group delete-offsets {group} --topic {topic} --execute"),
        of("group delete-offsets", (USAGE, group), (UNKNOWN, f"{group} --topic {topic}x")),
    )
    yield Step(
        line(f"group delete {group} --execute"), of("group delete", (USAGE, ""), (UNKNOWN, f"{group}x --execute"))
    )
    yield Step(
        line(f"config set topic {topic} retention.ms=5000000"),
        of("config set", (USAGE, f"topic {topic}"), (USAGE, f"planet {topic} a=1"), (UNKNOWN, f"topic {topic} a.b=1")),
    )
    yield Step(
        line(f"config get topic {topic}"),
        of(
            "config get",
            (USAGE, ""),
            (UNKNOWN, f"topic {topic}x"),
            (UNKNOWN, "broker 77"),
            (UNKNOWN, f"topic {topic} a"),
        ),
    )
    yield Step(
        line(f"config unset topic {topic} retention.ms"),
        of("config unset", (USAGE, "topic"), (USAGE, "planet a b"), (UNKNOWN, f"topic {topic} a.b")),
    )
    add = f"--principal User:{user} --operation Read --topic {topic}"
    yield Step(
        line(f"acl add {add}"),
        of(
            "acl add",
            (USAGE, f"--principal User:{user} --operation Read"),
            (USAGE, f"--principal User:{user} --operation Fly --topic {topic}"),
            (USAGE, f"--principal {user} --operation Read --topic {topic}"),
        ),
    )
    yield Step(line(f"acl list --topic {topic}"), of("acl list", (USAGE, f"--operation Fly --topic {topic}")))
    yield Step(line(f"acl explain {add}"), of("acl explain", (USAGE, f"--topic {topic}")))
    yield Step(
        line(f"acl remove --principal User:{user} --execute"), of("acl remove", (USAGE, "--execute --operation Fly"))
    )
    created = f"--password-file {password}"
    yield Step(
        line(f"user create {user} {created}"),
        of(
            "user create",
            (USAGE, ""),
            (USAGE, f"{user}2 --password-file {none}"),
            (USAGE, f"{user}2 {created} --mechanism P"),
        ),
    )
    yield Step(line(f"user list {user}"), of("user list", (UNKNOWN, f"{user}x")))
    yield Step(line(f"user update {user} {created}"), of("user update", (USAGE, ""), (UNKNOWN, f"{user}x {created}")))
    yield Step(line(f"user delete {user} --execute"), of("user delete", (USAGE, ""), (UNKNOWN, f"{user}x --execute")))
    of_user = f"--user {user}"
    yield Step(
        line(f"quota set {of_user} producer_byte_rate=1000000"),
        of(
            "quota set",
            (USAGE, of_user),
            (USAGE, "producer_byte_rate=1"),
            (USAGE, f"{of_user} byte_rate=x"),
            (UNKNOWN, f"{of_user} byte_rate=1"),
        ),
    )
    yield Step(line(f"quota list {of_user}"), of("quota list", (USAGE, f"{of_user} --default-user")))
    yield Step(
        line(f"quota unset {of_user} producer_byte_rate"), of("quota unset", (USAGE, of_user), (USAGE, "byte_rate"))
    )
    yield Step(line("reassign list"), of("reassign list", (UNKNOWN, f"{topic}x")))
    yield Step(
        line(f"reassign move {topic} --brokers {node}"),
        of("reassign move", (USAGE, ""), (UNKNOWN, f"{topic} --brokers 77"), (USAGE, f"{topic} --brokers one")),
    )
    yield Step(line("reassign cancel --execute"), of("reassign cancel", (UNKNOWN, f"{topic}x")))
    yield Step(line(f"elect preferred {topic}"), of("elect preferred", (UNKNOWN, f"{topic}:9"), (USAGE, f"{topic}:a")))
    yield Step(line(f"elect unclean {topic}:0"), of("elect unclean", (USAGE, ""), (UNKNOWN, f"{topic}x")))
    yield Step(line("cluster-status"), (), NOTHING)
    yield Step(
        line(f"erase {topic} --key nobody"), of("erase", (USAGE, ""), (USAGE, topic), (UNKNOWN, f"{topic}x --key a"))
    )
    yield Step(
        line("tier status"), of("tier status", (USAGE, "--storage"), (USAGE, topic)), denied=FAILED, right=(FAILED,)
    )
    tier = f"--storage {directory / 'tier'}"
    for action in ("verify", "sweep"):
        yield Step(
            line(f"tier {action} {tier}"),
            of(f"tier {action}", (USAGE, ""), (USAGE, f"{tier} {topic}"), (FAILED, f"--storage ftp://{name}")),
            denied=FAILED,
            right=(FAILED,),
        )
    store, captured = directory / "store", directory / "walk.capture"
    store.mkdir(exist_ok=True)
    yield Step(
        line(f"backup {store}"),
        of("backup", (USAGE, ""), (UNKNOWN, none), (USAGE, f"{store} --keep none"), (UNKNOWN, f"{none} --list")),
    )
    yield Step(
        line(f"capture {captured} --topic {topic}"),
        of("capture", (USAGE, ""), (USAGE, f"{captured}"), (USAGE, f"{captured} --topic {topic} --sample 2")),
    )
    yield Step(
        line(f"topic delete-records {topic} --before 1 --partition 0 --execute"),
        of(
            "topic delete-records", (USAGE, topic), (USAGE, f"{topic} --before noon"), (UNKNOWN, f"{topic}x --before 1")
        ),
    )
    yield Step(
        line(f"topic delete {topic} --execute"), of("topic delete", (USAGE, ""), (UNKNOWN, f"{topic}x --execute"))
    )


COMMON_MISTAKES: Final = (
    ("--nonsense",),
    ("--timeout", "0"),
    ("--timeout", "soon"),
    ("-X", "sasl.mechanism"),
    ("-X", "security.protocol=TLS"),
    ("-X", "request.timeout.ms=soon"),
    ("-b", "nowhere"),
    ("-b", "kafka://127.0.0.1:9092"),
    ("--command-config", "/no/such/file"),
)
"""Words that are wrong after the right ones of every action. The exit status is that of wrong arguments."""
