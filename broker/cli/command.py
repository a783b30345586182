"""The command line `moldau`: runs the subcommand that is named, and prints its failures."""

from __future__ import annotations

import argparse
import os  # noqa: TID251 the process's variables and its broken pipes enter here and nowhere else
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from io import TextIOWrapper
from typing import Any, Final, NamedTuple, NoReturn

from moldau.broker.cli.invocation import (
    CommandError,
    Invocation,
    Terminal,
    is_of_output,
    reason_of,
    warnings_as_lines,
)

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130
_DESCRIPTION: Final = """\
A broker that Apache Kafka's clients and tools take for Apache Kafka 4.3.1."""

_EPILOG: Final = """\
examples:
  moldau serve                                      a ready node on 127.0.0.1:9092, its data in ./data
  moldau serve --data /var/lib/moldau               the same, its data elsewhere
  moldau cluster --nodes 3                          three nodes on ports 9092 to 9094, under one terminal
  moldau format -c server.properties --standalone   prepare the directories that a file names
  moldau serve server.properties                    run the node that a file describes
  moldau dump-log --deep data/orders-0/*.log        what is in these files, as JSON lines

Settings are Apache Kafka's own: server.properties, then variables such as KAFKA_LISTENERS, then --override.
'moldau COMMAND --help' tells more of each command."""


class Subcommand(NamedTuple):
    """The name, the summary and the module of a subcommand.

    `module` is imported only when the subcommand or its help is asked for, so that other subcommands start faster.
    """

    name: str
    summary: str
    module: str


SUBCOMMANDS: Final = (
    Subcommand("serve", "run a node", "moldau.broker.cli.serve"),
    Subcommand("cluster", "run several nodes on this machine", "moldau.broker.cli.cluster"),
    Subcommand("topic", "list, make, change and delete topics", "moldau.broker.cli.daily.topic"),
    Subcommand("group", "list groups, show their lag, reset their offsets", "moldau.broker.cli.daily.group"),
    Subcommand("produce", "write records to a topic", "moldau.broker.cli.daily.produce"),
    Subcommand("consume", "print the records of topics", "moldau.broker.cli.daily.consume"),
    Subcommand("erase", "erase records from every replica of a topic", "moldau.broker.cli.daily.erase"),
    Subcommand("config", "read and change settings of topics, brokers, groups", "moldau.broker.cli.daily.config"),
    Subcommand("acl", "list, add, remove and explain permissions", "moldau.broker.cli.daily.acl"),
    Subcommand("user", "list, make, change and delete users", "moldau.broker.cli.daily.user"),
    Subcommand("quota", "list, set and remove quotas", "moldau.broker.cli.daily.quota"),
    Subcommand("reassign", "move replicas to other brokers", "moldau.broker.cli.daily.reassign"),
    Subcommand("elect", "elect leaders of partitions", "moldau.broker.cli.daily.elect"),
    Subcommand("cluster-status", "show nodes, controller, what is not well", "moldau.broker.cli.daily.cluster_status"),
    Subcommand("format", "prepare the directories of a new node", "moldau.broker.cli.format_storage"),
    Subcommand("health", "ask a node whether it is ready", "moldau.broker.cli.health"),
    Subcommand("container", "run a node as the image does, from variables", "moldau.broker.cli.container"),
    Subcommand("random-uuid", "make an id for a cluster or a directory", "moldau.broker.cli.random_uuid"),
    Subcommand("dump-log", "show log files, indexes and checkpoints as JSON lines", "moldau.broker.cli.dump_log"),
    Subcommand("backup", "back up a cluster, list and verify its backups", "moldau.broker.cli.backups.backup"),
    Subcommand("restore", "make log directories from a backup", "moldau.broker.cli.backups.restore"),
    Subcommand("capture", "take a window of topics into a file, for tests", "moldau.broker.cli.backups.capture"),
    Subcommand("tier", "look after remote storage: status, verify, sweep", "moldau.broker.cli.tier"),
    Subcommand("read", "print the rows of a topic, or of a query over topics", "moldau.broker.cli.read"),
    Subcommand("spark", "run a job over the segments of a topic", "moldau.broker.cli.spark"),
    Subcommand("follow-table", "keep an Iceberg table up to date with a topic", "moldau.broker.cli.follow_table"),
    Subcommand("lake", "verify the Iceberg table of a topic", "moldau.broker.cli.lake"),
    Subcommand("completion", "print the completion of a shell", "moldau.broker.cli.daily.completion"),
    Subcommand("version", "say which version this is", "moldau.broker.cli.version"),
)

Run = Callable[[argparse.Namespace, Invocation], int]

OPTIONS_OF_OTHER_TOOLS: Final = {
    "--broker": "--bootstrap-server",
    "--brokers": "--bootstrap-server",
    "--broker-list": "--bootstrap-server",
    "--bootstrap-servers": "--bootstrap-server",
    "--from-beginning": "--from earliest",
    "--max-messages": "--count",
    "--replicas": "--replication-factor",
    "--list": "list",
    "--describe": "describe",
    "--create": "create",
    "--alter": "alter",
    "--delete": "delete",
    "--reset-offsets": "reset",
    "--add-config": "set",
    "--delete-config": "unset",
    "--allow-principal": "--principal",
    "--offset": "--from",
    "--partition": "TOPIC[:PARTITION,...]",
    "--property": "--format",
    "--shift-by": "--by",
    "--to-current": "--to current",
    "--to-datetime": "--to",
    "--to-earliest": "--to earliest",
    "--to-latest": "--to latest",
    "--to-offset": "--to",
    "--by-duration": "--to",
    "alter": "set",
    "describe": "get",
}
"""Options of Apache Kafka's tools and of other clients, and actions that another command of `moldau` has, with the
options or actions that do the same."""
LETTERS_OF_KCAT: Final = {
    "-C": "consume",
    "-L": "topic list",
    "-P": "produce",
    "-Q": "group reset",
    "-t": "TOPIC without -t",
    "-g": "GROUP without -g",
    "-p": "TOPIC[:PARTITION,...]",
    "-G": "--group",
    "-J": "--json",
    "-c": "--count",
    "-l": "--format lines",
}
"""Options of kcat, with what does the same here. Those in capitals are its modes."""
COMMANDS_OF_OTHER_TOOLS: Final = {
    "brokers": "cluster-status",
    "console-consumer": "consume",
    "console-producer": "produce",
    "consumer-groups": "group",
    "delete-records": "topic delete-records",
    "get-offsets": "topic describe",
    "info": "cluster-status",
    "leader-election": "elect",
    "log-dirs": "cluster-status",
    "metadata-quorum": "cluster-status",
    "reassign-partitions": "reassign",
    "run": "serve",
    "server-start": "serve",
    "share-groups": "group",
    "start": "serve",
    "status": "cluster-status",
    "storage": "format",
    "streams-groups": "group",
}
"""Commands of Apache Kafka, without `kafka-` and `.sh`, and of other tools, with the commands that do the same."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command `moldau`. `arguments` are those of the process by default. Returns the exit status."""
    _open_streams()
    invocation = Invocation(Terminal(sys.stdout, os.environ), Terminal(sys.stderr, os.environ), os.environ)
    try:
        return _run(sys.argv[1:] if arguments is None else arguments, invocation)
    except CommandError as refusal:
        invocation.errors.say(f"moldau: {refusal}", "red")
        for detail in refusal.details:
            invocation.errors.say(f"  - {detail}")
        return refusal.status
    except UnicodeEncodeError as problem:
        invocation.errors.say(f"moldau: {problem.object[:200]!a} is not UTF-8", "red")
        return EXIT_USAGE
    except BrokenPipeError:
        return 0  # The reader of the pipe has closed it, as in `moldau dump-log … | head`.
    except OSError as problem:
        if not is_of_output(problem):
            raise
        invocation.errors.say(f"moldau: the output cannot be written: {reason_of(problem)}", "red")
        return EXIT_FAILED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    finally:
        _drop_unwritten()


def _run(words: Sequence[str], invocation: Invocation) -> int:
    if not words:
        parser(invocation.errors, "").print_help(sys.stderr)
        return EXIT_USAGE
    if words[0] == "--version":
        words = ["version", *words[1:]]  # The form of most other commands.
    parsed = parser(invocation.out, words[0]).parse_args(words)
    run: Run = parsed.run
    refuse_windows(sys.platform)
    with warnings_as_lines(invocation.errors):
        return run(parsed, invocation)


def _open_streams() -> None:
    """Open the standard streams that the caller has closed, as in `moldau topic list >&-`. Then the input is empty, and
    the output is dropped.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))
    if isinstance(sys.stdout, TextIOWrapper):  # Names may have characters that the encoding of the terminal lacks.
        sys.stdout.reconfigure(errors="backslashreplace")


def _drop_unwritten() -> None:
    """Drop buffered output that cannot be written. Otherwise the interpreter would fail with it at its exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def refuse_windows(platform: str) -> None:
    """Raise `CommandError` on Windows, because its files and sockets differ. `platform` is `sys.platform`."""
    if platform == "win32":
        raise CommandError("Moldau does not run on Windows: use the container image, or WSL (docs/start.md)")


class HelpfulParser(argparse.ArgumentParser):
    """A parser whose help has bold headings on a terminal."""

    terminal: Terminal | None = None
    meant_by: Callable[[Sequence[str]], str | None] | None = None
    """A function of the subcommand's module, if it has one. From arguments of another tool it makes the command line of
    `moldau` that was probably meant; None if the arguments are not of that tool.
    """

    def format_help(self) -> str:
        """The help text, with bold headings on a terminal."""
        lines = super().format_help().split("\n")
        terminal = self.terminal
        if terminal is None:
            return "\n".join(lines)
        return "\n".join(terminal.styled(line, "bold") if _is_heading(line) else line for line in lines)

    def parse_known_args(  # type: ignore[override] # typeshed has one form for each kind of namespace
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Parse the arguments. An argument that a subcommand does not know is reported with the usage of the
        subcommand, not with that of `moldau`.
        """
        self._words = list(args or ())
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown and not any(word.startswith("-") for word in unknown):
            unknown = self._add_to_last(parsed, unknown)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return parsed, unknown

    def _add_to_last(self, parsed: Any, words: list[str]) -> list[str]:
        """Add arguments behind an option to the last positional argument, if that takes any number of them, as in
        `moldau produce orders -b HOST:PORT FILE`. argparse gives it only those before the option. Returns the arguments
        that are left.
        """
        positional = self._get_positional_actions()
        if not positional or positional[-1].nargs != argparse.ZERO_OR_MORE:
            return words
        name = positional[-1].dest
        setattr(parsed, name, [*getattr(parsed, name), *words])
        return []

    def error(self, message: str) -> NoReturn:
        """End the process with a message. The message also has the option or command that was probably meant."""
        command = self.meant_by(self._words) if self.meant_by is not None else None
        if command is not None:
            super().error(f"these are options of another tool; did you mean '{command}'?")
        names = names_of(self)
        meant = dict.fromkeys(name for word in unknown_words(message, self._words) for name in _meant(word, names))
        meant = dict.fromkeys(_command_meant(self._words, names)) or meant
        if meant:
            message = f"{message.partition(' (choose from')[0]}; did you mean {' and '.join(meant)}?"
        elif message.endswith((" COMMAND", " ACTION")):
            choices = (action.choices for action in self._get_positional_actions())
            message = f"{message}, one of {', '.join(name for each in choices for name in each or ())}"
        super().error(message)


def unknown_words(message: str, given: Sequence[str]) -> list[str]:
    """Read from a message of argparse the commands, choices or options that it does not know.

    argparse takes the word after an unknown option, such as `--list`, for the command. So if the message is about a
    choice or a missing argument, the options in `given` are returned too.
    """
    options = message.partition("unrecognized arguments: ")[2].split()
    choice = re.search(r"invalid choice: '([^']*)'", message)
    if choice is not None:
        options = [choice[1], *(word for word in given if word.startswith("--"))]
    elif "required" in message:
        options = list(given)
    return [
        word.partition("=")[0]
        for word in options
        if choice is not None or word.startswith("--") or word in LETTERS_OF_KCAT
    ]


def names_of(command: argparse.ArgumentParser) -> list[str]:
    """The options, choices and positional arguments of a command and of its subcommands."""
    names: list[str] = []
    for action in command._actions:
        names += [option for option in action.option_strings if option.startswith("--")]
        names += [action.metavar] if not action.option_strings and isinstance(action.metavar, str) else []
        names += [choice for choice in action.choices or () if isinstance(choice, str)]
        if isinstance(action.choices, dict):
            names += [name for each in action.choices.values() for name in names_of(each)]
    return names


def _meant(word: str, names: Sequence[str]) -> list[str]:
    """The name in `names` that was probably meant by `word`: the counterpart of another tool's option, or the most
    similar name. The list is empty if there is none.
    """
    from difflib import get_close_matches

    if word in names:
        return []
    letter = LETTERS_OF_KCAT.get(word, "")
    if letter:
        is_there = letter.partition(" ")[0] in names or letter.endswith(f" without {word}")
        return [letter] if is_there and any(name.startswith(_leading_word(letter)) for name in names) else []
    other = OPTIONS_OF_OTHER_TOOLS.get(word, "")
    if other.partition(" ")[0] in names:
        return [other]
    alone = [f"{name} without {word}" for name in names if word == f"--{_leading_word(name).lower()}"]
    return alone or get_close_matches(word, names, n=1)


def _command_meant(words: Sequence[str], names: Sequence[str]) -> list[str]:
    """The command that was probably meant by the first words of a command line whose first word is not a command: the
    counterpart of a command of another tool, or the same words in another order, as in `moldau list topics`. The list
    is empty if there is none.
    """
    if "cluster-status" not in names or not words or words[0] in names:
        return []
    first = words[0].removeprefix("kafka-").removesuffix(".sh")
    other = LETTERS_OF_KCAT.get(first, COMMANDS_OF_OTHER_TOOLS.get(first, ""))
    if not other and len(words) > 1 and words[1].removesuffix("s") in names:
        other = f"{words[1].removesuffix('s')} {first}"
    if not other and first.removesuffix("s") in names:
        other = first.removesuffix("s")
    return [other] if other.partition(" ")[0] in names else []


def _leading_word(name: str) -> str:
    """The name of a positional argument: `TOPIC` in `TOPIC[:PARTITION,...]`. Empty if `name` is not a positional
    argument.
    """
    return re.match(r"[A-Z]*", name)[0]  # type: ignore[index] # it matches always


def parser(terminal: Terminal | None = None, first_word: str | None = None) -> argparse.ArgumentParser:
    """The parser of the command `moldau`, with every subcommand if `first_word` is None.

    If `first_word` names a subcommand, the parser has only that one. Otherwise it has all, without their arguments. So
    at most one module of a subcommand is imported for a first word.
    """
    command = HelpfulParser(
        prog="moldau",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=_formatter,
    )
    command.terminal = terminal
    subcommands = command.add_subparsers(title="commands", metavar="COMMAND", required=True)
    asked = [each for each in SUBCOMMANDS if each.name == first_word]
    for name, summary, module_name in asked or SUBCOMMANDS:
        if first_word is not None and not asked:
            subcommands.add_parser(name, help=summary)
            continue
        module = import_module(module_name)
        subcommand = subcommands.add_parser(
            name,
            help=summary,
            description=module.DESCRIPTION,
            epilog=module.EPILOG,
            formatter_class=_formatter,
        )
        subcommand.terminal = terminal
        subcommand.meant_by = getattr(module, "meant_by", None)
        module.add_arguments(subcommand)
        subcommand.set_defaults(run=getattr(module, "run", None) or partial(_run_action, module.ACTIONS))
    return command


def _run_action(actions: Mapping[str, str], arguments: argparse.Namespace, invocation: Invocation) -> int:
    """Run the action of a daily command that the arguments name, from the actions in its module's `ACTIONS`."""
    from moldau.broker.cli.daily.session import run_action

    return run_action(actions, arguments, invocation)


def _formatter(prog: str) -> argparse.HelpFormatter:
    """Make a help formatter with the width of the terminal. argparse makes a formatter for each argument, and would
    import shutil and a dozen more modules to find the width.
    """
    try:
        width = int(os.environ.get("COLUMNS") or os.get_terminal_size(sys.stdout.fileno()).columns)
    except (OSError, ValueError):  # The output is not a terminal.
        width = 80
    return argparse.RawDescriptionHelpFormatter(prog, width=width - 2)


def _is_heading(line: str) -> bool:
    return line.endswith(":") and line[:1].isalpha()
