"""The page on the command line: its commands are known, and run in their order; the README's five commands tell their
story.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from moldau.broker.cli.command import parser
from moldau.testing.cluster import Cluster
from moldau.testing.namespace import Namespace
from tests.support.daily_command import DailyCommand
from tests.support.daily_stories import send, two_hours_ago

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "command-line.md").read_text("utf-8")
README = (ROOT / "README.md").read_text("utf-8")
COMMAND = re.compile(r"^    moldau (.*)$", re.MULTILINE)
STORY = [shlex.split(line) for line in COMMAND.findall(README.split("## Daily work")[1].split("\n## ")[0])]
WITH_ACLS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
ORDERS = "customer,amount\nada,3\ngrace,5\nbarbara,7\nada,9\n"


def commands_of(text: str) -> list[list[str]]:
    return [shlex.split(line) for line in COMMAND.findall(text) if ">" not in line]


def test_every_command_of_the_page_is_known() -> None:
    commands = commands_of(PAGE)
    assert len(commands) > 25
    for words in commands:
        assert parser(None, words[0]).parse_args(words)


def test_the_page_has_every_daily_command_and_exit_status() -> None:
    from moldau.broker.cli.command import SUBCOMMANDS
    from moldau.broker.cli.daily import failures

    daily = [each.name for each in SUBCOMMANDS if ".daily." in each.module]
    assert [name for name in daily if f"| `moldau {name}` |" not in PAGE] == []
    statuses = [value for name, value in vars(failures).items() if name.startswith("EXIT_")]
    assert [status for status in statuses if f"\n| {status} | " not in PAGE] == []


@pytest.mark.processes
@pytest.mark.moldau(nodes=1)
def test_the_story_of_the_readme(kafka_cluster: Cluster, tmp_path: Path) -> None:
    assert len(STORY) <= 5
    (tmp_path / "orders.csv").write_text(ORDERS)
    run = DailyCommand(kafka_cluster.bootstrap_servers)
    create, produce, consume, describe, reset = (
        [str(tmp_path / word) if word == "orders.csv" else word for word in words] for words in STORY
    )
    assert run.done(*create) == "topic orders is made: 3 partitions, 1 replica each\n"
    assert run.done(*produce) == "4 records to orders\n"
    assert sorted(run.done(*consume).splitlines()) == [
        '{"customer":"ada","amount":"3"}',
        '{"customer":"ada","amount":"9"}',
        '{"customer":"barbara","amount":"7"}',
        '{"customer":"grace","amount":"5"}',
    ]
    assert "lag:          0 records" in run.done(*describe)
    assert run.rows(*reset)[0]["new_offset"] == 0
    assert run.rows(*describe)[0]["lag"] == 4
    assert len(run.done(*consume).splitlines()) == 4


@pytest.mark.processes
@pytest.mark.moldau(
    settings={
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
)
def test_the_commands_of_the_page_run_in_their_order(kafka: Namespace, tmp_path: Path) -> None:
    run = DailyCommand(kafka.bootstrap_servers)
    (tmp_path / "orders.csv").write_text(ORDERS)
    (tmp_path / "password.txt").write_text("secret\n")
    places = {
        "password.txt": str(tmp_path / "password.txt"),
        "orders.csv": str(tmp_path / "orders.csv"),
        "before.csv": str(tmp_path / "before.csv"),
    }
    first, groups, records, rest = re.split(r"\n## (?:Groups|Records|Settings.*)\n", PAGE.split("\n## What all")[0])
    (topic_made, *topics) = commands_of(first)
    run.done(*topic_made)
    send(kafka.bootstrap_servers, "orders", {part: [("v", two_hours_ago())] * 200 for part in (0, 1, 2)})
    run.done("group", "reset", "orders-app", "--topic", "orders", "--to", "latest", "--execute")
    for words in commands_of(groups) + topics + commands_of(records) + commands_of(rest.split("\n## Completion")[0]):
        said = run(*[places.get(word, word) for word in words])
        expected = (0, 3) if "explain" in words else (0,)
        assert said.status in expected, f"{words}: {said.err}"
