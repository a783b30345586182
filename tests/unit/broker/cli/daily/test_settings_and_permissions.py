"""Settings, permissions and the state of a cluster by the daily commands, also under TLS and SASL: the stories that the
conformance asks Apache Kafka too, with their facts.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from moldau.testing.namespace import Namespace
from tests.support.daily_command import DailyCommand, properties_text
from tests.support.daily_stories import other_authority, secured, settings_and_status

pytestmark = pytest.mark.processes


def test_settings_and_the_state_of_the_cluster(kafka: Namespace) -> None:
    facts = settings_and_status(DailyCommand(kafka.bootstrap_servers), "set")
    assert facts["none"] == "topic set has no settings of its own: --all shows the defaults\n"
    assert facts["one"][0]["value"] == "604800000" and facts["one"][0]["from"] == "default"
    assert facts["set"] == "changed for topic set: retention.ms=5000, cleanup.policy=compact,delete\n"
    assert [[row["setting"], row["value"], row["from"]] for row in facts["read"]] == [
        ["cleanup.policy", "compact,delete", "topic"],
        ["retention.ms", "5000", "topic"],
    ]
    assert facts["checked"] == "can be changed for topic set: retention.ms=6000\n"
    assert facts["unset"] == "changed for topic set: retention.ms as by default\n"
    assert facts["read again"] == ["cleanup.policy"]
    assert (facts["brokers"], facts["group"]) == ("8", "50000")
    meant = "there is no setting retenton.ms; did you mean retention.ms?"
    assert facts["unknown setting"] == [3, f"topic set: {meant} (INVALID_CONFIG)"]
    assert facts["unknown setting to read"] == [3, meant]
    assert facts["unknown setting to unset"] == [3, f"topic set: {meant}"]
    meant = "there is no setting consumer.session.timeout; did you mean consumer.session.timeout.ms? (INVALID_CONFIG)"
    assert facts["unknown setting of a group"] == [3, f"group set-group: {meant}"]
    assert facts["unknown logger"][0] == 3 and "there is no logger no.such.logger" in facts["unknown logger"][1]
    assert facts["unknown topic"][0] == facts["unknown broker"][0] == 3
    assert facts["unknown broker"][1].endswith("'moldau cluster-status' shows those that are there")
    assert facts["no name"][0] == facts["no pair"][0] == facts["no id"][0] == 2
    assert facts["status"] == {"controller": True, "problems": [], "levels": 30, "states": ["serving"], "sizes": True}
    assert facts["all is well"] == "all is well"


def test_a_setting_that_no_broker_knows_is_told(kafka: Namespace) -> None:
    run = DailyCommand(kafka.bootstrap_servers)
    said = run("config", "set", "broker", "1", "log.cleaner.thread=2")
    assert (said.status, said.err) == (0, "there is no setting log.cleaner.thread; did you mean log.cleaner.threads?\n")
    run.done("config", "unset", "broker", "1", "log.cleaner.thread")
    said = run("config", "set", "brokers", "moldau.erase.enable=true")
    assert (said.status, said.err) == (0, ""), "a broker lists a setting of its own once it is set"
    run.done("config", "unset", "brokers", "moldau.erase.enable")


@pytest.mark.moldau(secure=True, users=("alice",))
def test_a_closed_cluster(kafka: Namespace, tmp_path: Path) -> None:
    users: list[DailyCommand] = []
    for user, password in (("admin", None), ("alice", None), ("alice", "wrong"), ("admin", "other")):
        settings = kafka.client_settings("java", user)
        if password == "other":
            settings["ssl.truststore.certificates"] = other_authority()
        if password is not None:
            settings["sasl.jaas.config"] = settings["sasl.jaas.config"].partition("password=")[0] + 'password="wrong";'
        file = tmp_path / f"{user}-{password}.properties"
        file.write_text(properties_text(settings))
        users.append(DailyCommand(kafka.bootstrap_servers, {"MOLDAU_COMMAND_CONFIG": str(file)}))
    admin, alice, stranger, doubter = users
    facts = secured(admin, alice, stranger, doubter, "closed")
    statuses = {what.removeprefix("alice may not "): fact[0] for what, fact in facts.items() if "may not" in what}
    assert statuses == dict.fromkeys(statuses, 4)
    assert "the user has no right" in facts["alice may not create"][1]
    assert facts["alice may not write"][1].startswith("topic closed: the user has no right to do this with the topic")
    assert facts["alice sees no topic"] == [] and facts["alice sees brokers"] == [None, [None]]
    assert [facts[what] for what in ("listed", "would go", "gone", "matching")] == [3, 3, 3, 2]
    assert facts["alice reads"] == facts["alice commits"] == "one\ntwo\n"
    assert facts["explained"] == [
        [0, "allowed: an ALLOW matches: ALLOW User:alice from * READ on PREFIXED TOPIC closed\n"],
        [3, "denied: no ACL matches\n"],
    ]
    assert facts["no operation"][0] == facts["no resource"][0] == 2
    assert facts["wrong password"][0] == 4 and facts["wrong password"][1].startswith("the login failed: ")
    assert facts["not trusted"] == [4, True]
    assert facts["not encrypted"] == 5 and facts["another login module"] == [2, True]


@pytest.mark.moldau(secure=True, users=("alice",))
def test_an_empty_list_of_a_user_who_logs_in_does_not_say_that_nothing_is_there(kafka: Namespace) -> None:
    kafka.topic("hidden")
    words = [f"-X{name}={value}" for name, value in kafka.client_settings("java", "alice").items()]
    alice = DailyCommand(kafka.bootstrap_servers)
    assert alice.done("topic", "list", *words).startswith("there are no topics that the user may describe: ")
    assert alice.done("group", "list", *words) == "there are no groups that the user may describe\n"


@pytest.mark.moldau(secure=True, users=("alice",))
def test_properties_come_from_the_environment_too(kafka: Namespace) -> None:
    settings = kafka.client_settings("java", "alice")
    variables = {f"MOLDAU_CLIENT_{name.upper().replace('.', '_')}": value for name, value in settings.items()}
    assert DailyCommand(kafka.bootstrap_servers, variables).rows("topic", "list") == []
