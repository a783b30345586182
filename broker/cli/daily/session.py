"""The arguments, the client, the output and the clock that an action of a daily command uses."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module

from moldau.broker.cli.daily.client import Client
from moldau.broker.cli.daily.failures import EXIT_UNREACHABLE, Failure
from moldau.broker.cli.daily.output import Output
from moldau.broker.cli.daily.settings import client_properties
from moldau.broker.cli.invocation import Invocation
from moldau.tables.client.cluster import TransientError
from moldau.tables.client.connection import Disconnected


@dataclass(frozen=True, slots=True)
class Session:
    """One run of a daily command's action."""

    arguments: argparse.Namespace
    invocation: Invocation
    client: Client
    output: Output

    def note(self, text: str, *styles: str) -> None:
        """Write a line to standard error."""
        self.output.write(self.invocation.errors, text, *styles)

    @property
    def that_are_seen(self) -> str:
        """The words after the noun in a message that a list is empty. They say that the user may be unable to see what
        there is; without a login they are empty.
        """
        return "" if self.client.settings.protocol == "PLAINTEXT" else " that the user may describe"

    def now_ms(self) -> int:
        """The wall clock, in ms since 1970."""
        from time import time_ns

        return time_ns() // 1_000_000


Action = Callable[[Session], int]


def run_action(actions: Mapping[str, str], arguments: argparse.Namespace, invocation: Invocation) -> int:
    """Run the action that the arguments name. `actions` has the function of each action, as `module:function`. The
    module, relative to this package, is imported here. Returns the exit status. Raises `CommandError`, and `OSError` if
    the output was cut short.
    """
    module, _, function = actions[arguments.action].partition(":")
    action: Action = getattr(import_module(f"moldau.broker.cli.daily.{module}"), function)
    output = Output(invocation.out, is_json=arguments.json)
    with Client(client_properties(arguments, invocation)) as client:
        try:
            status = action(Session(arguments, invocation, client, output))
        except (TransientError, Disconnected) as problem:
            raise Failure(client.explain_problem(problem), status=EXIT_UNREACHABLE) from None
    if output.problem is not None:
        raise output.problem
    return status
