"""Scenarios of Apache Kafka's command line tools: each does its work, and says what it says to Apache Kafka."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tests.conformance.session import expect
from tests.conformance.toolbox import Toolbox


@dataclass(frozen=True, slots=True)
class ToolScenario:
    name: str
    demands: str
    run: Callable[[Toolbox], None]


FROM_BEGINNING = "--from-beginning"

SETTINGS_OF_4_4 = ("errors.deadletterqueue.", "max.decompressed.message.bytes", "remote.copy.lag.")
"""The beginnings of the settings of topics that 4.3.1 does not know."""


def columns(text: str, *wanted: str) -> list[list[str]]:
    """The named columns of a table with a line of headings, its rows sorted."""
    rows = [line.split() for line in text.splitlines() if line.strip()]
    start = next(index for index, row in enumerate(rows) if wanted[0] in row)
    places = [rows[start].index(name) for name in wanted]
    return sorted([row[place] for place in places] for row in rows[start + 1 :] if len(row) > max(places))


def without(text: str, *patterns: str) -> list[str]:
    for pattern in patterns:
        text = re.sub(pattern, "", text)
    return [line.strip() for line in text.splitlines() if line.strip()]


def placed(box: Toolbox, described: str) -> str:
    """With several nodes: where replicas are is chance, how many are in sync is not."""
    if box.node_count == 1:
        return described
    led = re.sub(r"Leader: \d", "Leader: one of them", described)
    return re.sub(r"(Replicas|Isr): ([\d,]+)", lambda found: f"{found[1]}: {len(found[2].split(','))} nodes", led)


def topics(box: Toolbox) -> None:
    topic = box.name()
    run = box.run
    box.observe("create", run("kafka-topics", "--create", "--topic", topic, "--partitions", "3", *of_config()).strip())
    described = run("kafka-topics", "--describe", "--topic", topic)
    box.observe("describe", without(placed(box, described), r"TopicId: \S+"))
    expect(topic in run("kafka-topics", "--list").split(), "the topic is not listed")
    run("kafka-topics", "--create", "--topic", topic, status=1)
    run("kafka-topics", "--create", "--topic", topic, "--if-not-exists")
    run("kafka-topics", "--alter", "--topic", topic, "--partitions", "5")
    rows = run("kafka-topics", "--describe", "--topic", topic).splitlines()
    box.observe("partitions after alter", len(rows) - 1)
    run("kafka-topics", "--delete", "--topic", topic)
    run("kafka-topics", "--describe", "--topic", topic, status=1)
    box.observe("under-replicated", run("kafka-topics", "--describe", "--under-replicated-partitions").split())


def of_config() -> Iterable[str]:
    return ("--config", "retention.ms=3600000", "--config", "cleanup.policy=delete")


def configs(box: Toolbox) -> None:
    topic = box.create_topic()
    entity = ("--entity-type", "topics", "--entity-name", topic)
    alter, describe = ("kafka-configs", "--alter", *entity), ("kafka-configs", "--describe", *entity)
    box.run(*alter, "--add-config", "segment.bytes=2000000,cleanup.policy=[compact,delete]")
    box.observe("set", without(box.run(*describe)))
    box.run(*alter, "--delete-config", "segment.bytes")
    box.observe("deleted", without(box.run(*describe)))
    every = without(box.run(*describe, "--all"))
    box.observe("all", [line for line in every if not line.strip().startswith(SETTINGS_OF_4_4)])
    box.run(*alter, "--add-config", "no.such.config=1", status=1)
    broker = ("--entity-type", "brokers", "--entity-name", "1")
    box.run("kafka-configs", "--alter", *broker, "--add-config", "log.cleaner.threads=2")
    box.observe("broker", without(box.run("kafka-configs", "--describe", *broker)))
    box.run("kafka-configs", "--alter", *broker, "--delete-config", "log.cleaner.threads")


def console(box: Toolbox) -> None:
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        topic = box.create_topic(suffix=codec)
        lines = [f"line {index} with {codec}" for index in range(20)]
        box.send_lines(topic, *lines, codec=codec)
        read = box.read_lines(topic, 20, FROM_BEGINNING)
        expect(read == lines, f"{codec}: sent {lines[:2]}..., read {read[:2]}...")
    topic = box.create_topic(suffix="shapes")
    parse = [word for option in ("parse.key=true", "parse.headers=true") for word in ("--reader-property", option)]
    text = "h1:v1,h2:v2\tkey\tvalue\nh1:again\tother\tlast\n"
    box.run("kafka-console-producer", "--topic", topic, *parse, given=text)
    shown = ("print.key", "print.headers", "print.offset", "print.partition")
    options = [word for name in shown for word in ("--formatter-property", f"{name}=true")]
    box.observe("shapes", box.read_lines(topic, 2, FROM_BEGINNING, *options))


def consumer_groups(box: Toolbox) -> None:
    topic, group = box.create_topic(2), box.name("g")
    box.send_lines(topic, *[f"line {index}" for index in range(10)])
    box.read_lines(topic, 10, FROM_BEGINNING, "--group", group)
    of_group = ("--group", group)
    expect(group in box.run("kafka-consumer-groups", "--list").split(), "the group is not listed")
    described = box.run("kafka-consumer-groups", "--describe", *of_group)
    rows = columns(described, "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG")
    box.observe("lag", sorted({row[4] for row in rows}))
    expect(sum(int(row[2]) for row in rows) == 10, f"ten records were consumed and committed: {rows}")
    state = box.run("kafka-consumer-groups", "--describe", "--state", *of_group)
    box.observe("state", without(state, r"\S*127\.0\.0\.1:\d+", *([r"\(\d\)"] if box.node_count > 1 else [])))
    reset = box.run(
        "kafka-consumer-groups", "--reset-offsets", *of_group, "--topic", topic, "--to-earliest", "--execute"
    )
    box.observe("reset", columns(reset, "TOPIC", "PARTITION", "NEW-OFFSET"))
    again = box.read_lines(topic, 10, "--group", group)
    expect(len(again) == 10, "after the reset all ten are read again")
    deleted = box.run("kafka-consumer-groups", "--delete-offsets", *of_group, "--topic", topic)
    box.observe("offsets deleted", columns(deleted, "TOPIC", "PARTITION", "STATUS"))
    box.observe("deleted", box.run("kafka-consumer-groups", "--delete", *of_group).strip())
    expect(group not in box.run("kafka-consumer-groups", "--list").split(), "a deleted group is listed")


def get_offsets(box: Toolbox) -> None:
    topic = box.create_topic(2)
    box.send_lines(topic, *[f"line {index}" for index in range(6)])
    latest = box.run("kafka-get-offsets", "--topic", topic).split()
    expect(sum(int(line.rpartition(":")[2]) for line in latest) == 6, f"the ends add up to six: {latest}")
    box.observe("earliest", box.run("kafka-get-offsets", "--topic", topic, "--time", "earliest").split())
    greatest = box.run("kafka-get-offsets", "--topic", topic, "--time", "max-timestamp").split()
    expect(len(greatest) in (1, 2), f"partitions with a greatest timestamp: {greatest}")
    box.observe("in the future", box.run("kafka-get-offsets", "--topic", topic, "--time", "4000000000000").split())


def delete_records(box: Toolbox) -> None:
    topic = box.create_topic()
    box.send_lines(topic, *[f"line {index}" for index in range(6)])
    wanted = {"partitions": [{"topic": topic, "partition": 0, "offset": 4}], "version": 1}
    file = box.directory / f"{topic}.json"
    file.write_text(json.dumps(wanted))
    box.observe("delete", without(box.run("kafka-delete-records", "--offset-json-file", str(file))))
    box.observe("left", box.read_lines(topic, 2, FROM_BEGINNING))


def log_dirs(box: Toolbox) -> None:
    topic = box.create_topic(2)
    box.send_lines(topic, "one line")
    output = box.run("kafka-log-dirs", "--describe", "--topic-list", topic)
    answer = json.loads(next(line for line in output.splitlines() if line.startswith("{")))
    (directory,) = answer["brokers"][0]["logDirs"]
    box.observe("error", directory["error"])
    partitions = sorted(directory["partitions"], key=lambda each: str(each["partition"]))
    box.observe(
        "partitions", [{key: each[key] for key in ("partition", "offsetLag", "isFuture")} for each in partitions]
    )
    box.observe("size of both", sum(int(each["size"]) for each in partitions))


def broker_api_versions(box: Toolbox) -> None:
    output = box.run("kafka-broker-api-versions")
    box.observe("apis", {name: ranges.strip() for name, ranges in re.findall(r"(\w+\(\d+\)): ([^,\n]*)", output)})


def producer_perf(box: Toolbox) -> None:
    topic = box.create_topic()
    words = ("--topic", topic, "--num-records", "5000", "--record-size", "100", "--throughput", "-1")
    output = box.run("kafka-producer-perf-test", *words, "--command-property", "acks=all")
    expect("5000 records sent" in output, output[-300:])
    box.observe("offsets", box.run("kafka-get-offsets", "--topic", topic).split())


def consumer_perf(box: Toolbox) -> None:
    topic = box.create_topic()
    words = ("--topic", topic, "--num-records", "5000", "--record-size", "100", "--throughput", "-1")
    box.run("kafka-producer-perf-test", *words)
    output = box.run("kafka-consumer-perf-test", "--topic", topic, "--num-records", "5000", "--timeout", "20000")
    (row,) = [line.split(", ") for line in output.splitlines() if line[:4].isdigit()]
    box.observe("megabytes, records", [row[2], row[4]])


def e2e_latency(box: Toolbox) -> None:
    topic = box.create_topic()
    words = ("--topic", topic, "--num-records", "300", "--producer-acks", "all", "--record-size", "100")
    output = box.run("kafka-e2e-latency", *words)
    expect("Avg latency" in output and "Percentiles" in output, output[-300:])
    box.observe("offsets", box.run("kafka-get-offsets", "--topic", topic).split())


def verifiable(box: Toolbox) -> None:
    topic = box.create_topic()
    sent = events(box.run("kafka-verifiable-producer", "--topic", topic, "--max-messages", "50", "--acks", "-1"))
    box.observe("acknowledged", [sent[-1]["sent"], sent[-1]["acked"]])
    words = ("--topic", topic, "--group-id", box.name("g"), "--max-messages", "50")
    read = events(box.run("kafka-verifiable-consumer", *words))
    box.observe("consumed", sum(int(str(event["count"])) for event in read if event["name"] == "records_consumed"))
    committed = [event for event in read if event["name"] == "offsets_committed"]
    box.observe("committed", [committed[-1]["offsets"], committed[-1]["success"]])


def events(output: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def dump_log(box: Toolbox) -> None:
    topic = box.create_topic()
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        box.send_lines(topic, *[f"{codec} {index}" for index in range(3)], codec=codec)
    segment = box.replica(topic) / "00000000000000000000.log"
    output = box.run_offline("kafka-dump-log", "--files", str(segment), "--print-data-log", "--deep-iteration")
    changing = (r"Dumping \S+", r"CreateTime: \d+", r"crc: \d+", r"producerId: \d+", r"size: \d+", r"position: \d+")
    box.observe("segment", without(output, *changing))


def metadata_quorum(box: Toolbox) -> None:
    output = box.run("kafka-metadata-quorum", "describe", "--status")
    changing = (r"(ClusterId|LeaderEpoch|HighWatermark):\s+\S+", r'"directoryId": "\S+"', r"127\.0\.0\.1:\d+")
    of_many = (r"(LeaderId|MaxFollowerLag|MaxFollowerLagTimeMs):\s+\S+",) if box.node_count > 1 else ()
    box.observe("status", without(output, *changing, *of_many))


def features(box: Toolbox) -> None:
    rows = re.findall(r"Feature: (\S+)\s.*FinalizedVersionLevel: (\S+)", box.run("kafka-features", "describe"))
    box.observe("finalized", dict(rows))


TOOL_SCENARIOS = (
    ToolScenario("kafka-topics", "create, describe, list, alter, delete", topics),
    ToolScenario("kafka-configs", "alter and describe a topic's and a broker's configuration", configs),
    ToolScenario("kafka-console", "console producer and consumer with every codec, keys and headers", console),
    ToolScenario("kafka-consumer-groups", "describe, reset, delete", consumer_groups),
    ToolScenario("kafka-get-offsets", "earliest, latest, greatest timestamp", get_offsets),
    ToolScenario("kafka-delete-records", "records before an offset go", delete_records),
    ToolScenario("kafka-log-dirs", "sizes on disk", log_dirs),
    ToolScenario("kafka-broker-api-versions", "every API with its versions", broker_api_versions),
    ToolScenario("kafka-producer-perf-test", "5,000 records", producer_perf),
    ToolScenario("kafka-consumer-perf-test", "5,000 records", consumer_perf),
    ToolScenario("kafka-e2e-latency", "300 records there and back", e2e_latency),
    ToolScenario("kafka-verifiable", "verifiable producer and consumer agree", verifiable),
    ToolScenario("kafka-dump-log", "a segment with five codecs, record by record", dump_log),
    ToolScenario("kafka-metadata-quorum", "status of the quorum", metadata_quorum),
    ToolScenario("kafka-features", "finalized levels", features),
)
