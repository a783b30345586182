"""What the daily commands do and say, as stories that run against any cluster. A story returns its facts, which are the
same for Moldau and for Apache Kafka: the unit tests ask the one, the conformance asks both.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tests.support.daily_command import DailyCommand, Said
from tests.support.daily_members import classic_member, member

Facts = dict[str, Any]


def topics(run: DailyCommand, name: str) -> Facts:
    """Topics made, shown, altered, emptied and deleted, and each mistake."""
    facts: Facts = {}
    facts["made"] = run.rows("topic", "create", name, "-p", "3", "--config", "retention.ms=86400000")
    facts["again"] = run("topic", "create", name).failure
    facts["left alone"] = run.done("topic", "create", name, "--if-not-exists")
    facts["checked"] = run.done("topic", "create", f"{name}-2", "-p", "2", "-r", "1", "--dry-run")
    mistakes = {
        "unknown setting": ("create", f"{name}-2", "--config", "retenton.ms=1"),
        "bad value": ("create", f"{name}-2", "--config", "retention.ms=soon"),
        "no partition": ("create", f"{name}-2", "-p", "0"),
        "too many partitions": ("create", f"{name}-2", "-p", "2000000"),
        "bad name": ("create", "a b"),
        "fewer partitions": ("alter", name, "-p", "2"),
        "setting of no topic": ("alter", name, "--set", "xyz=1"),
        "unknown topic": ("describe", f"{name}x"),
        "past the end": ("delete-records", name, "--before", "5"),
        "bad time": ("delete-records", name, "--before", "yesterday"),
        "no pair": ("create", f"{name}-2", "--config", "retention.ms"),
        "unknown partition": ("delete-records", name, "--before", "0", "--partition", "9"),
    }
    for mistake, words in mistakes.items():
        said = run("topic", *words)
        facts[mistake] = [said.status, said.failure]
    run.done("topic", "alter", name, "-p", "5", "--set", "cleanup.policy=compact,delete", "--unset", "retention.ms")
    (described,) = run.rows("topic", "describe", name)
    described.pop("topic_id")
    for each in described["partition_list"]:
        for field in ("leader", "replicas", "in_sync"):
            each[field] = each[field] is not None
    facts["described"] = described
    (listed,) = run.rows("topic", "list", name)
    listed.pop("topic_id")
    facts["listed"] = listed
    facts["shown"] = run.done("topic", "list", name).splitlines()
    facts["internal hidden"] = [row["topic"] for row in run.rows("topic", "list") if row["is_internal"]]
    facts["would be deleted"] = run.rows("topic", "delete", name)
    facts["deleted"] = run.rows("topic", "delete", name, "--execute")
    facts["gone"] = run("topic", "delete", name, "--execute").status
    facts["left out"] = run.done("topic", "delete", name, "--if-exists", "--execute")
    return facts


def groups(run: DailyCommand, bootstrap: str, name: str, directory: str) -> Facts:
    """A group of each kind: listed, described with and without members, reset in every way, deleted."""
    facts: Facts = {}
    topic = f"{name}-read"
    run.done("topic", "create", topic, "-p", "2")
    begin = two_hours_ago()
    send(bootstrap, topic, {0: [(f"a{number}", begin + number) for number in range(10)], 1: []})
    names = {kind: f"{name}-{kind}" for kind in ("classic", "consumer", "share", "streams")}
    with classic_member(bootstrap, names["classic"], topic, 10):
        facts["meant"] = run("group", "describe", f"{name}-clasic").failure
        facts["classic with a member"] = told_of(run, names["classic"])
        facts["classic is not reset"] = run("group", "reset", names["classic"], "--to", "earliest").failure
        facts["classic is not deleted"] = run("group", "delete", names["classic"], "--execute").failure
    for kind in ("consumer", "share", "streams"):
        with member(bootstrap, kind, names[kind], topic):
            facts[f"{kind} with a member"] = told_of(run, names[kind])
            facts[f"{kind} is not reset"] = run("group", "reset", names[kind], "--to", "earliest").status
    listed = {row["group"]: [row["type"], row["state"]] for row in run.rows("group", "list", f"{name}-*")}
    facts["listed"] = [listed[each] for each in names.values()]
    facts["shares alone"] = [row["group"] for row in run.rows("group", "list", f"{name}-*", "--type", "share")]
    for kind, group in names.items():
        facts[f"{kind} shown"] = run.rows("group", "reset", group, "--topic", topic, "--to", "4")
        steps = {
            "offset": ("--topic", f"{topic}:0", "--to", "4"),
            "by": ("--by", "-3"),
            "time": ("--to", str(begin + 7)),
            "ago": ("--to", "1h"),
            "earliest": ("--to", "earliest"),
            "latest": ("--to", "latest", "--to-file", f"{directory}/{kind}.csv"),
            "back": ("--topic", f"{topic}:0", "--to", "2"),
            "file": ("--from-file", f"{directory}/{kind}.csv"),
            "current": ("--to", "current"),
        }
        for step, words in steps.items():
            rows = run.rows("group", "reset", group, *words, "--execute")
            facts[f"{kind} to {step}"] = [[row["partition"], row["new_offset"]] for row in rows]
        run.done("group", "reset", group, "--topic", f"{topic}:0", "--to", "4", "--execute")
        (described,) = run.rows("group", "describe", group)
        facts[f"{kind} lag"] = [
            [row["committed"], row["lag"], row["behind_ms"] is None] for row in described["offsets"]
        ]
        facts[f"{kind} is hours behind"] = described["behind_ms"] >= 7_200_000 - 4
        facts[f"{kind} loses offsets"] = run.rows("group", "delete-offsets", group, "--topic", topic, "--execute")
        facts[f"{kind} would go"] = run.done("group", "delete", group)
        facts[f"{kind} goes"] = run.done("group", "delete", group, "--execute")
    mistakes = {
        "unknown group to reset": ("reset", f"{name}-gone", "--to", "latest"),
        "unknown topic": ("reset", f"{name}-new", "--topic", "nosuch", "--to", "latest"),
        "unknown partition": ("reset", f"{name}-new", "--topic", f"{topic}:7", "--to", "latest"),
        "bad time": ("reset", f"{name}-new", "--topic", topic, "--to", "noon"),
        "no file": ("reset", f"{name}-new", "--from-file", f"{directory}/none.csv"),
    }
    for mistake, words in mistakes.items():
        said = run("group", *words)
        facts[mistake] = [said.status, said.err.splitlines()[-1].replace(directory, "DIR")]
    return facts


def two_hours_ago() -> int:
    """A timestamp (ms) that retention keeps."""
    return time.time_ns() // 1_000_000 - 7_200_000


def told_of(run: DailyCommand, group: str) -> Facts:
    """What is told of a group with one member, without what changes from run to run."""
    (described,) = run.rows("group", "describe", group)
    (one,) = described["members"]
    explained = {row["symptom"] for row in run.rows("group", "explain", group)}
    return {
        "kind": described["type"],
        "client": one["client"],
        "host": one["host"],
        "offsets": [[row["partition"], row["committed"], row["lag"]] for row in described["offsets"]],
        "has a history": "no-history" not in explained,
    }


def send(bootstrap: str, topic: str, records: dict[int, list[tuple[str, int]]]) -> None:
    """Produce values with timestamps to partitions."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap})
    for partition, values in records.items():
        for value, timestamp in values:
            producer.produce(topic, value, partition=partition, timestamp=timestamp)
    producer.flush()


def records(run: DailyCommand, name: str, directory: str) -> Facts:
    """Records of each format produced, and consumed with forms, filters and ends; a group that reads on; mistakes."""
    facts: Facts = {}
    topic, copy = f"{name}-a", f"{name}-b"
    for each in (topic, copy):
        run.done("topic", "create", each, "-p", "3")
    file = f"{directory}/orders.csv"
    with open(file, "w") as text:
        text.write('customer,amount\nada,3\ngrace,"5,5"\nbarbara,7\nada,9\n')
    timestamp = str(two_hours_ago())
    facts["csv"] = run.rows("produce", topic, file, "--key-field", "customer", "--timestamp", timestamp)
    row = '{"customer":{"id":"x"},"amount":1}\n'
    run.done("produce", topic, "--format", "jsonl", "--key-field", "customer.id", "-p", "1", "-H", "a=1", given=row)
    run.done("produce", topic, "-K", ":", "-p", "1", "-z", "zstd", given="k:v:w\nk2:")
    run.done("produce", topic, "-k", "gone", "-Z", "-p", "1", given="\n")
    run.done("produce", topic, "-p", "1", given=b"\xff\x00\n")

    def consumed(*words: str, of: str = topic) -> list[str]:
        return run.done("consume", of, "--until-end", *words).splitlines()

    everything = run("consume", topic, "-e", "--json")
    facts["everything"] = [{**each, "timestamp": each["timestamp"] == int(timestamp)} for each in everything.rows]
    facts["copied"] = run("produce", copy, "--format", "records", given=everything.out).out
    facts["copy is the same"] = [each["value"] for each in run("consume", copy, "-e", "--json").rows if "value" in each]
    forms = {"tokens": "%t/%p/%o %k[%K]: %s[%S] %h\\n", "line": "line", "csv": "csv"}
    for form, template in forms.items():
        lines = consumed("-f", template, "-k", "ada")
        facts[f"form {form}"] = [line[:14] if form == "line" else line.replace(timestamp, "TIME") for line in lines[1:]]
    chosen = {
        "key": ("-k", "grace"),
        "grep": ("--grep", "b.r"),
        "header": ("--header", "a"),
        "header value": ("--header", "a=2"),
        "field": ("--where", "amount=9"),
        "deep field": ("--where", "customer.id=x"),
        "both": ("-k", "ada", "--where", "amount=3"),
        "count": ("-n", "2"),
        "last": ("--from", "-1"),
        "offset": ("--from", "4"),
        "since": ("--from", "1h"),
        "until a time": ("--from", "earliest"),
        "latest": ("--from", "latest"),
    }
    for choice, words in chosen.items():
        facts[f"chosen by {choice}"] = sorted(consumed("-f", "%p %o\\n", *words))
    facts["until an hour ago"] = run.done("consume", topic, "--until", "1h", "-f", "%p %o\\n").split("\n")
    facts["until an offset"] = run.done("consume", f"{topic}:1", "--until", "2", "-f", "%o\\n").split()
    group = f"{name}-reader"
    facts["a group begins"] = len(consumed("--group", group, "-n", "3", "-f", "%o\\n"))
    facts["a group goes on"] = len(consumed("--group", group, "-f", "%o\\n"))
    facts["a group is done"] = consumed("--group", group, "-f", "%o\\n")
    (described,) = run.rows("group", "describe", group)
    facts["lag"] = [described["lag"], [each["committed"] for each in described["offsets"]]]
    run.done("group", "reset", group, "--to", "1h", "--execute")
    facts["an hour ago"] = len(consumed("--group", group, "-f", "%o\\n"))
    mistakes = {
        "unknown topic": (("consume", f"{topic}x"), ""),
        "unknown partition": (("consume", f"{topic}:9"), ""),
        "bad form": (("consume", topic, "-f", "%q"), ""),
        "bad pattern": (("consume", topic, "--grep", "("), ""),
        "future": (("consume", topic, "--until", "2099-01-01"), ""),
        "no separator": (("produce", topic, "-K", "="), "ab"),
        "no JSON": (("produce", topic, "--format", "jsonl"), '{"a":1'),
        "no field": (("produce", topic, "--format", "jsonl", "--key-field", "b"), '{"a":1}'),
        "a short row": (("produce", topic, "--format", "csv"), "a,b\n1\n"),
        "no such partition": (("produce", topic, "-p", "9"), "x"),
        "no such topic": (("produce", f"{topic}x"), "x"),
        "too large": (("produce", topic), "x" * 2_000_000),
        "no file": (("produce", topic, "nofile.csv"), ""),
        "a field of a line": (("produce", topic, "--key-field", "a"), ""),
    }
    for mistake, (words, given) in mistakes.items():
        said = run(*words, given=given)
        facts[mistake] = [said.status, said.failure]
    return facts


def settings_and_status(run: DailyCommand, name: str) -> Facts:
    """Settings read and changed, and the cluster as a whole."""
    facts: Facts = {}
    run.done("topic", "create", name, "-p", "2")
    config = ("config", "get", "topic", name)
    facts["none"] = run.done(*config)
    facts["one"] = run.rows(*config, "retention.ms")
    facts["set"] = run.done("config", "set", "topic", name, "retention.ms=5000", "cleanup.policy=compact,delete")
    facts["read"] = run.rows(*config)
    facts["checked"] = run.done("config", "set", "topic", name, "retention.ms=6000", "--dry-run")
    facts["unset"] = run.done("config", "unset", "topic", name, "retention.ms")
    facts["read again"] = [row["setting"] for row in run.rows(*config)]
    run.done("config", "set", "brokers", "background.threads=8")
    facts["brokers"] = until(lambda: setting_of(run, "brokers", "background.threads"), "8")
    run.done("config", "unset", "brokers", "background.threads")
    group = f"{name}-group"
    run.done("config", "set", "group", group, "consumer.session.timeout.ms=50000")
    facts["group"] = until(lambda: setting_of(run, "group", group, "consumer.session.timeout.ms"), "50000")
    mistakes = {
        "unknown setting": ("set", "topic", name, "retenton.ms=1"),
        "bad value": ("set", "topic", name, "retention.ms=soon"),
        "unknown topic": ("get", "topic", f"{name}x"),
        "unknown setting to read": ("get", "topic", name, "retenton.ms"),
        "unknown setting to unset": ("unset", "topic", name, "retenton.ms"),
        "unknown setting of a group": ("set", "group", group, "consumer.session.timeout=1"),
        "unknown logger": ("set", "broker-logger", "1", "no.such.logger=INFO"),
        "unknown broker": ("get", "broker", "77"),
        "no name": ("set", "topic", "retention.ms=1"),
        "no pair": ("set", "topic", name, "retention.ms"),
        "no id": ("get", "broker", "one"),
    }
    for mistake, words in mistakes.items():
        said = run("config", *words)
        facts[mistake] = [said.status, said.failure]
    (status,) = run.rows("cluster-status")
    facts["status"] = {
        "controller": status["controller"] in status["quorum"]["voters"],
        "problems": status["problems"],
        "levels": status["features"]["metadata.version"],
        "states": sorted({row["state"] for row in status["brokers"]}),
        "sizes": all(row["used_bytes"] is not None and row["free_bytes"] > 0 for row in status["brokers"]),
    }
    facts["all is well"] = run("cluster-status", "--check").out.splitlines()[0]
    return facts


def setting_of(run: DailyCommand, kind: str, *words: str) -> str | None:
    said = run("config", "get", kind, *words, "--json")
    return said.rows[0]["value"] if said.status == 0 and said.rows else None


def users_and_quotas(run: DailyCommand, name: str) -> Facts:
    """Users made, changed, listed and deleted; quotas set, listed and removed; and each mistake."""
    facts: Facts = {}
    facts["made"] = run.done("user", "create", name, given="secret\n")
    facts["again"] = failed(run("user", "create", name, given="secret\n"))
    facts["second mechanism"] = run.done("user", "update", name, "--mechanism", "scram-sha-256", given="secret\n")
    facts["listed"] = until(lambda: [row["mechanism"] for row in run.rows("user", "list", name)], BOTH)
    facts["no password"] = failed(run("user", "create", f"{name}-2", given="\n"))
    facts["no user"] = failed(run("user", "update", f"{name}x", given="secret\n"))
    facts["no mechanism"] = failed(run("user", "create", f"{name}-2", "--mechanism", "PLAIN", given="secret\n"))
    facts["few iterations"] = failed(run("user", "create", f"{name}-2", "--iterations", "1", given="secret\n"))
    facts["would go"] = run.rows("user", "delete", name)
    facts["one gone"] = run.rows("user", "delete", name, "--mechanism", "SCRAM-SHA-256", "--execute")
    facts["one left"] = until(lambda: [row["mechanism"] for row in run.rows("user", "list", name)], BOTH[1:])
    run.done("user", "delete", name, "--execute")
    facts["none left"] = until(lambda: run("user", "list", name).status, 3)

    of = ("--user", name)
    facts["set"] = run.done("quota", "set", *of, "producer_byte_rate=1048576", "request_percentage=12.5")
    run.done("quota", "set", *of, "--client-id", "loader", "consumer_byte_rate=5")
    run.done("quota", "set", "--default-client-id", "controller_mutation_rate=10")
    run.done("quota", "set", "--ip", "10.0.0.7", "connection_creation_rate=20")
    facts["quotas"] = until(lambda: len(run.rows("quota", "list")), 5) and run.rows("quota", "list")
    facts["shown"] = run.done("quota", "list", *of, "--client-id", "loader").splitlines()
    facts["checked"] = run.done("quota", "set", *of, "producer_byte_rate=1", "--dry-run")
    facts["unset"] = run.done("quota", "unset", *of, "producer_byte_rate", "request_percentage")
    run.done("quota", "unset", *of, "--client-id", "loader", "consumer_byte_rate")
    run.done("quota", "unset", "--default-client-id", "controller_mutation_rate")
    run.done("quota", "unset", "--ip", "10.0.0.7", "connection_creation_rate")
    facts["no quotas"] = until(lambda: run.rows("quota", "list"), [])
    mistakes = {
        "of nobody": ("producer_byte_rate=1",),
        "no number": (*of, "producer_byte_rate=much"),
        "unknown quota": (*of, "byte_rate=1"),
        "two of a kind": (*of, "--default-user", "producer_byte_rate=1"),
        "address and user": (*of, "--ip", "10.0.0.7", "connection_creation_rate=1"),
        "no rate": (*of, "producer_byte_rate=-1"),
    }
    for mistake, words in mistakes.items():
        said = run("quota", "set", *words)
        facts[mistake] = [said.status, said.err.splitlines()[-1]]
    return facts


BOTH = ["SCRAM-SHA-256", "SCRAM-SHA-512"]


def placement(run: DailyCommand, name: str) -> Facts:
    """What is said of moves and elections on a cluster of one broker."""
    facts: Facts = {}
    run.done("topic", "create", name, "-p", "2", "-r", "1")
    until(lambda: len(run.rows("topic", "list", name)), 1)
    (broker,) = (str(row["broker"]) for row in run.rows("cluster-status")[0]["brokers"])
    facts["nothing moves"] = [run.done("reassign", "list"), run.done("reassign", "cancel")]
    facts["there already"] = run.done("reassign", "move", name, "--brokers", broker)
    facts["elected"] = run.done("elect", "preferred", name)
    facts["has a leader"] = run.done("elect", "unclean", f"{name}:0")
    mistakes = {
        "too few brokers": ("reassign", "move", name, "--brokers", broker, "-r", "2"),
        "unknown broker": ("reassign", "move", name, "--brokers", "77"),
        "no ids": ("reassign", "move", name, "--brokers", "one"),
        "no topic": ("reassign", "move", f"{name}x", "--brokers", broker),
        "no partition": ("elect", "preferred", f"{name}:9"),
        "nothing named": ("reassign", "move"),
        "no file": ("reassign", "move", "--from-file", "/no/such/file"),
        "no index": ("elect", "unclean", f"{name}:first"),
    }
    for mistake, words in mistakes.items():
        facts[mistake] = failed(run(*words))
    run.done("topic", "delete", name, "--execute")
    return facts


def failed(said: Said) -> list[object]:
    """The exit status of a command that fails, and its sentence."""
    return [said.status, said.failure]


def until(look: Callable[[], Any], wanted: Any) -> Any:
    """What is seen, as soon as it is what is wanted: brokers follow the controller a moment later."""
    deadline = time.monotonic() + 20
    while (seen := look()) != wanted and time.monotonic() < deadline:
        time.sleep(0.2)
    return seen


def secured(run: DailyCommand, alice: DailyCommand, stranger: DailyCommand, doubter: DailyCommand, name: str) -> Facts:
    """A closed cluster: permissions added, explained and removed; what a user without them is told, and a stranger.
    `run` is the administrator, `stranger` has a wrong password, `doubter` trusts another authority.
    """
    facts: Facts = {}
    run.done("topic", "create", name, "-p", "1")
    run.done("produce", name, given="one\ntwo\n")
    denied = {
        "describe": ("topic", "describe", name),
        "create": ("topic", "create", f"{name}-2"),
        "delete": ("topic", "delete", name, "--execute"),
        "produce": ("produce", name),
        "consume": ("consume", name, "-e"),
        "groups": ("group", "describe", f"{name}-g"),
        "acls": ("acl", "list"),
        "settings": ("config", "set", "topic", name, "retention.ms=1"),
        "broker": ("config", "get", "broker", "1"),
    }
    for what, words in denied.items():
        said = alice(*words)
        facts[f"alice may not {what}"] = [said.status, said.failure]
    facts["alice sees no topic"] = alice.rows("topic", "list")
    (status,) = alice.rows("cluster-status")
    facts["alice sees brokers"] = [status["quorum"], [row["used_bytes"] for row in status["brokers"]]]
    add = ("acl", "add", "--principal", "User:alice", "--consumer", "--topic", name)
    facts["added"] = run.rows(*add, "--group", f"{name}-", "--prefixed")
    facts["listed"] = until(lambda: len(run.rows("acl", "list", "--principal", "User:alice")), 3)
    facts["matching"] = len(run.rows("acl", "list", "--topic", f"{name}-long", "--matching"))
    facts["alice reads"] = until(lambda: alice("consume", name, "-e").out, "one\ntwo\n")
    facts["alice commits"] = until(lambda: alice("consume", name, "-e", "--group", f"{name}-g").out, "one\ntwo\n")
    facts["alice may not write"] = [alice("produce", name, given="x").status, alice("produce", name, given="x").failure]
    explain = ("acl", "explain", "--principal", "User:alice", "--topic", name, "--operation")
    facts["explained"] = [[said.status, said.out] for said in (run(*explain, each) for each in ("Read", "Write"))]
    facts["would go"] = len(run.rows("acl", "remove", "--principal", "User:alice"))
    facts["gone"] = len(run.rows("acl", "remove", "--principal", "User:alice", "--execute"))
    facts["none left"] = until(lambda: run.done("acl", "list", "--principal", "User:alice"), "there are no such ACLs\n")
    for what, words in {"operation": ("--operation", "Fly", "--cluster"), "resource": ("--operation", "Read")}.items():
        said = run("acl", "add", "--principal", "User:alice", *words)
        facts[f"no {what}"] = [said.status, said.failure]
    said = stranger("topic", "list")
    facts["wrong password"] = [said.status, said.failure.partition(": ")[2]]
    said = doubter("topic", "list")
    facts["not trusted"] = [said.status, "its certificate is not trusted" in said.failure]
    said = run("topic", "list", "-X", "security.protocol=SASL_PLAINTEXT")
    facts["not encrypted"] = said.status
    said = run("topic", "list", "-X", "sasl.mechanism=PLAIN")
    facts["another login module"] = [said.status, "ScramLoginModule serves" in said.failure]
    return facts


def other_authority() -> str:
    """A certificate that the cluster does not have."""
    from moldau.testing.security import Security

    return Security([], "127.0.0.1").authority_pem
