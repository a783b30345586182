"""`moldau completion`: prints a script with which a shell completes the commands, their options and the values of the
options.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from moldau.broker.cli.invocation import Invocation

DESCRIPTION: Final = "Print the completion of a shell: commands, actions, options, and values where there are few."
EPILOG: Final = """\
examples:
  source <(moldau completion bash)                      in ~/.bashrc
  source <(moldau completion zsh)                       in ~/.zshrc, after compinit
  moldau completion fish > ~/.config/fish/completions/moldau.fish"""
SHELLS: Final = ("bash", "zsh", "fish")

_BASH: Final = """\
_moldau() {
    local cur=${COMP_WORDS[COMP_CWORD]} path=moldau word words
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        case "$path $word" in
            PATHS) path="$path $word" ;;
        esac
    done
    case "$path ${COMP_WORDS[COMP_CWORD-1]}" in
VALUES
        *) case "$path" in
WORDS
        esac ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
}
complete -o default -F _moldau moldau
"""
_ZSH: Final = """\
#compdef moldau
_moldau() {
    local at=moldau word choices
    for word in "${(@)words[2,CURRENT-1]}"; do
        case "$at $word" in
            PATHS) at="$at $word" ;;
        esac
    done
    case "$at ${words[CURRENT-1]}" in
VALUES
        *) case "$at" in
WORDS
        esac ;;
    esac
    compadd -- ${=choices} || _files
}
compdef _moldau moldau
"""
_FISH: Final = """\
function __moldau_at
    set -l at moldau
    for word in (commandline -opc)[2..]
        switch "$at $word"
            case PATHS
                set at "$at $word"
        end
    end
    test "$at" = "$argv[1]"
end
"""


class Level(NamedTuple):
    """The words that may follow a command. `path` is the command with its action, such as `moldau topic list`."""

    path: str
    actions: Mapping[str, str]
    """The summary of each action that may follow."""
    options: Mapping[str, tuple[str, tuple[str, ...]]]
    """The help text and the allowed values of each option."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the subcommand's arguments."""
    parser.add_argument("shell", choices=SHELLS)


def run(arguments: argparse.Namespace, invocation: Invocation) -> int:
    """Print the completion script of the shell that the arguments name."""
    from moldau.broker.cli.command import parser

    levels = list(levels_of(parser(), "moldau"))
    invocation.out.stream.write(SCRIPTS[arguments.shell](levels))
    return 0


def levels_of(parser: argparse.ArgumentParser, path: str) -> Iterator[Level]:
    """The levels of a command: the command itself, then each of its actions, recursively."""
    actions: dict[str, str] = {}
    options: dict[str, tuple[str, tuple[str, ...]]] = {}
    below: dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            below |= action.choices
            actions |= {each.dest: each.help or "" for each in action._choices_actions}
            continue
        values = tuple(map(str, action.choices or ()))
        for option in action.option_strings:
            if option.startswith("--"):
                options[option] = ((action.help or "").replace("%(default)s", str(action.default)), values)
        if not action.option_strings:
            actions |= dict.fromkeys(values, "")
    yield Level(path, actions, options)
    for name, each in below.items():
        yield from levels_of(each, f"{path} {name}")


def _posix(levels: list[Level], template: str, variable: str) -> str:
    """Make the completion script of a shell that has `case` (bash or zsh), from `template`. `variable` is the shell
    variable that gets the words.
    """
    paths = "|".join(f'"{each.path}"' for each in levels[1:])
    words = [
        f'            "{each.path}") {variable}="{" ".join([*each.actions, *each.options])}" ;;' for each in levels
    ]
    values = [
        f'        "{each.path} {option}") {variable}="{" ".join(choices)}" ;;'
        for each in levels
        for option, (_, choices) in each.options.items()
        if choices
    ]
    text = template.replace("PATHS", paths)
    return text.replace("VALUES", "\n".join(values)).replace("WORDS\n", "\n".join(words) + "\n")


def _fish(levels: list[Level]) -> str:
    lines = [_FISH.replace("PATHS", " ".join(f'"{each.path}"' for each in levels[1:]))]
    for level in levels:
        where = f"complete -c moldau -n '__moldau_at \"{level.path}\"'"
        lines += [f"{where} -f -a {name} -d {_quoted(summary)}\n" for name, summary in level.actions.items()]
        for option, (summary, choices) in level.options.items():
            takes = f" -x -a {_quoted(' '.join(choices))}" if choices else ""
            lines.append(f"{where} -l {option.removeprefix('--')} -d {_quoted(summary)}{takes}\n")
    return "".join(lines)


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _bash_script(levels: list[Level]) -> str:
    return _posix(levels, _BASH, "words")


def _zsh_script(levels: list[Level]) -> str:
    return _posix(levels, _ZSH, "choices")


SCRIPTS: Final = {"bash": _bash_script, "zsh": _zsh_script, "fish": _fish}
