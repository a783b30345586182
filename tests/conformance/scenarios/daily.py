"""Scenarios of the daily commands: the same stories as in the unit tests, and the same facts from Apache Kafka."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.conformance.scenarios.directories import DirectoryScenario, Workshop
from tests.conformance.scenarios.tools import ToolScenario
from tests.conformance.secured.jaas import client_settings
from tests.conformance.secured.listeners import CLIENTS, Between, credentials, secured
from tests.conformance.secured.stores import Stores
from tests.conformance.toolbox import Toolbox
from tests.support import daily_stories
from tests.support.daily_command import DailyCommand, properties_text

ADMINISTRATOR: Final = "admin"
PASSWORDS: Final = {ADMINISTRATOR: "admin-secret", "alice": "alice-secret"}
NAME: Final = "closed"
"""Of the topic of the closed cluster."""


def topics(box: Toolbox) -> None:
    box.facts |= daily_stories.topics(DailyCommand(box.bootstrap), box.name())


def groups(box: Toolbox) -> None:
    run = DailyCommand(box.bootstrap)
    box.facts |= daily_stories.groups(run, box.bootstrap, box.name(), str(box.files()))


def records(box: Toolbox) -> None:
    box.facts |= daily_stories.records(DailyCommand(box.bootstrap), box.name(), str(box.files()))


def settings(box: Toolbox) -> None:
    box.facts |= daily_stories.settings_and_status(DailyCommand(box.bootstrap), box.name())


def users(box: Toolbox) -> None:
    box.facts |= daily_stories.users_and_quotas(DailyCommand(box.bootstrap), box.name())


def placement(box: Toolbox) -> None:
    box.facts |= daily_stories.placement(DailyCommand(box.bootstrap), box.name())


DAILY_TOOL_SCENARIOS: Final = (
    ToolScenario("moldau-topics", "moldau topic makes, shows, alters, deletes; each mistake is one sentence", topics),
    ToolScenario("moldau-groups", "moldau group tells lag and resets groups of four kinds", groups),
    ToolScenario("moldau-records", "moldau produce and consume: formats, filters, ends, a group", records),
    ToolScenario("moldau-users", "moldau user and quota: made, listed, removed; each mistake", users),
    ToolScenario("moldau-placement", "moldau reassign and elect on one broker; each mistake", placement),
    ToolScenario("moldau-settings", "moldau config and cluster-status", settings),
)


def closed(side: str) -> Callable[[Workshop], None]:
    def story(work: Workshop) -> None:
        broker = work.moldau() if side == "moldau" else work.apache()
        stores, port = Stores(work.directory), work.ports.pair()
        broker.set(secured(stores, broker.port, port, Between.CERTIFICATES))
        broker.set({"super.users": f"User:ANONYMOUS;User:node;User:{ADMINISTRATOR}"})
        broker.format_words = credentials(PASSWORDS)
        broker.format()

        other = work.directory / "other.pem"
        other.write_text(daily_stories.other_authority())

        def user(name: str, password: str, authority: Path = stores.ca) -> DailyCommand:
            security = {
                "protocol": "SASL_SSL",
                "ca": str(authority),
                "mechanism": CLIENTS,
                "user": name,
                "password": password,
            }
            file = work.directory / f"{name}-{password}-{authority.stem}.properties"
            file.write_text(properties_text(client_settings(security)))
            return DailyCommand(f"127.0.0.1:{port}", {"MOLDAU_COMMAND_CONFIG": str(file)})

        with work.running(broker):
            administrator, alice = (user(name, password) for name, password in PASSWORDS.items())
            doubter = user(ADMINISTRATOR, PASSWORDS[ADMINISTRATOR], other)
            facts = daily_stories.secured(administrator, alice, user("alice", "wrong"), doubter, NAME)
        work.facts = facts

    return story


CLOSED: Final = "the daily commands under TLS and SASL: permissions, and what a user is refused"
DAILY_DIRECTORY_SCENARIOS: Final = tuple(
    DirectoryScenario("moldau-closed", CLOSED, closed(side), side) for side in ("moldau", "apache")
)
