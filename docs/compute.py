"""Computes the pages of docs/ that follow from the code: `python docs/compute.py` writes them, a test compares them."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PACKAGES = (
    "broker",
    "backup",
    "protocol",
    "storage",
    "security",
    "replication",
    "kraft",
    "coordinator",
    "tables",
    "lake",
    "spark_jobs",
    "testing",
)

sys.path.insert(0, str(ROOT))


def divergences() -> list[tuple[str, str]]:
    """(where, why) for each `DIVERGES:` in the product, the comment or docstring read to its end."""
    found = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            lines = path.read_text().splitlines()
            for number, line in enumerate(lines):
                if "DIVERGES:" in line:
                    found.append((str(path.relative_to(ROOT)), _reason(lines[number:])))
    return found


def _reason(lines: list[str]) -> str:
    words = [lines[0].partition("DIVERGES:")[2]]
    is_comment = lines[0].lstrip().startswith("#")
    for line in lines[1:]:
        text = line.strip()
        if '"""' in words[-1] or not text or (is_comment and not text.startswith("#")):
            break
        words.append(text.lstrip("# "))
    return re.sub(r'\s+|"""', " ", " ".join(words)).strip()


def divergence_page() -> str:
    rows = [f"| `{where}` | {why} |" for where, why in divergences()]
    return "\n".join(
        [
            "# Where we differ from Apache Kafka 4.3.1 on purpose",
            "",
            "Computed from the `DIVERGES:` marks in the code by `python docs/compute.py`.",
            "",
            "| where | what, and why |",
            "|---|---|",
            *rows,
            "",
        ]
    )


def protocol_page() -> str:
    from moldau.broker.apis.catalogue import apis
    from moldau.broker.network.route import ListenerRole

    names = {
        ListenerRole.BROKER: "broker",
        ListenerRole.CONTROLLER: "controller",
        ListenerRole.BOTH: "broker, controller",
    }
    rows = [
        f"| {api.key} | {api.name} | {api.first}-{api.last} | {names[api.listeners.role]} |"
        + (" yes |" if api.listeners.is_advertised else " no |")
        for api in apis()
    ]
    return "\n".join(
        [
            "# What we speak",
            "",
            "Computed from `broker/apis/catalogue.py` by `python docs/compute.py`.",
            "What is not in this table is not advertised,",
            "and a request for it closes the connection, as in Apache Kafka. What is served and not advertised is so",
            "there as well, as long as nothing receives the metrics of clients.",
            "",
            "| key | API | versions | listener | advertised |",
            "|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


def metrics_page() -> str:
    from moldau.broker.metrics.catalogue import metrics

    rows = []
    for metric in metrics().values():
        labels = ", ".join(metric.labels)
        kafka_name = f"`{metric.kafka_name}`" if metric.kafka_name else ""
        rows.append(f"| {kafka_name} | `{metric.name}` | {metric.kind} | {labels} | {metric.meaning} |")
    alerts = [f"| {each.name} | `{each.expression}` | {each.lasts} | {each.means} | {each.remedy} |" for each in ALERTS]
    return "\n".join([*_METRICS_INTRODUCTION, *alerts, *_METRICS_TABLE, *rows, ""])


class Alert(NamedTuple):
    """One thing to alert on."""

    name: str
    expression: str
    """In PromQL."""
    lasts: str
    means: str
    remedy: str


ALERTS = (
    Alert(
        "MoldauNodeDown",
        "up == 0 or kafka_server_kafkaserver_brokerstate != 3",
        "1 min",
        "a node does not run, or does not serve",
        "[the table of failed starts](start.md#where-a-node-cannot-start); `/readyz` says why",
    ),
    Alert(
        "MoldauPartitionsOffline",
        "max(kafka_controller_kafkacontroller_offlinepartitionscount) > 0",
        "1 min",
        "partitions without a leader: no reads, no writes",
        "start the brokers that have their replicas",
    ),
    Alert(
        "MoldauQuorumWithoutLeader",
        "kafka_server_raft_metrics_current_leader == -1",
        "1 min",
        "the metadata quorum has no leader: nothing can be created, changed or elected",
        "start controllers until more than half run",
    ),
    Alert(
        "MoldauUnderMinIsr",
        "kafka_server_replicamanager_underminisrpartitioncount > 0",
        "1 min",
        "partitions refuse `acks=all`",
        "start the missing brokers",
    ),
    Alert(
        "MoldauDiskFailed",
        "kafka_log_logmanager_offlinelogdirectorycount > 0 or kafka_server_replicamanager_offlinereplicacount > 0",
        "at once",
        "a disk has failed, or replicas are damaged",
        "[replacing a disk](cluster.md#replacing-a-disk)",
    ),
    Alert(
        "MoldauDiskFull",
        "moldau_log_directories_full > 0",
        "at once",
        "a disk is full: it is read, and takes nothing",
        "[a full disk](cluster.md#a-full-disk)",
    ),
    Alert(
        "MoldauDamagedReplicas",
        "moldau_damaged_replicas > 0",
        "at once",
        "a batch in a log is damaged",
        "[damaged logs](reliability.md)",
    ),
    Alert(
        "MoldauUnderReplicated",
        "kafka_server_replicamanager_underreplicatedpartitions > 0",
        "10 min",
        "replicas are missing: the next failure may cost availability",
        "a broker is down, slow, or being moved to",
    ),
    Alert(
        "MoldauBrokerFenced",
        "max(kafka_controller_kafkacontroller_fencedbrokercount) > 0",
        "5 min",
        "a registered broker does not serve",
        "start it, or [unregister](cluster.md#a-broker-more-a-broker-less) it",
    ),
    Alert(
        "MoldauLoopStalls",
        "moldau_event_loop_stall_p999_seconds > 0.5",
        "10 min",
        "one request in a thousand waits so long for the loop",
        "[slow requests](latency.md)",
    ),
    Alert(
        "MoldauLoginsFail",
        "rate(kafka_server_socket_server_metrics_failed_authentication_total[5m]) > 1",
        "10 min",
        "logins fail",
        "the log names the reason of each",
    ),
    Alert(
        "MoldauFewFileDescriptors",
        "process_open_fds / process_max_fds > 0.9",
        "10 min",
        "few file descriptors are left",
        "raise `ulimit -n`; [limits](limits.md)",
    ),
    Alert(
        "MoldauRemoteStorageFails",
        'rate(kafka_server_brokertopicmetrics_remotecopyerrors_total{topic=""}[10m]) > 0',
        "30 min",
        "segments do not reach the remote storage, and stay on the disk",
        "[tiered storage](tiered_storage.md)",
    ),
    Alert(
        "MoldauTransactionHangs",
        "kafka_server_replicamanager_partitionswithlatetransactionscount > 0",
        "at once",
        "a transaction hangs: `read_committed` readers wait behind it",
        "`kafka-transactions.sh find-hanging`",
    ),
    Alert(
        "MoldauGroupFarBehind",
        "max by (group, kind) (kafka_consumergroup_group_max_lag_seconds) > 300",
        "10 min",
        "a group has not read records that are five minutes old",
        "`moldau group explain GROUP`; [groups](groups.md)",
    ),
    Alert(
        "MoldauGroupFallsBehind",
        "sum by (group, kind) (kafka_consumergroup_group_sum_lag) > 1000 and"
        " sum by (group, kind) (deriv(kafka_consumergroup_group_sum_lag[15m])) > 0 and"
        " max by (group, kind) (kafka_consumergroup_group_max_lag_seconds) > 60",
        "30 min",
        "the lag of a group grows: its members are slower than the producers",
        "`moldau group explain GROUP` names the member that cannot keep up",
    ),
)


def alert_rules() -> str:
    """The alerts as rules of Prometheus."""
    lines = [
        "# Computed from docs/compute.py by `python docs/compute.py`. docs/metrics.md says what to do.",
        "groups:",
        "  - name: moldau",
        "    rules:",
    ]
    for each in ALERTS:
        number, _, unit = each.lasts.partition(" ")
        remedy = re.sub(LINK, r"\1", each.remedy)
        lasts = f"{number}{unit[0]}" if unit == "min" else "0m"
        lines += [
            f"      - alert: {each.name}",
            f"        expr: {json.dumps(each.expression)}",
            f"        for: {lasts}",
            "        annotations:",
            f"          summary: {json.dumps(each.means)}",
            f"          description: {json.dumps(remedy)}",
        ]
    return "\n".join([*lines, ""])


LINK = r"\[([^\]]*)\]\([^)]*\)"
"""A link of Markdown."""

_METRICS_INTRODUCTION = (
    "# Metrics and health",
    "",
    "Computed from `broker/metrics/catalogue.py` by `python docs/compute.py`.",
    "",
    "`moldau serve --override moldau.http.listener=http://127.0.0.1:9464` opens an HTTP port of its own; without that",
    "setting nothing is served and next to nothing is measured. Without [the console](console.md) it has no access",
    "control: bind it where only your monitoring reaches it.",
    "",
    "| path | says |",
    "|---|---|",
    "| `/metrics` | what follows, in Prometheus' text format |",
    "| `/healthz` | 200 while the process lives and its loop turns |",
    "| `/readyz` | 200 while clients are served; else 503, and why: starting, stopping, no quorum leader, fenced |",
    "",
    "## What to alert on",
    "",
    "[alerts.yml](prometheus/alerts.yml) has them as rules of Prometheus. A configuration that scrapes and loads them:",
    "`prometheus --config.file=docs/prometheus/prometheus.yml`.",
    "",
    "| alert | condition | lasts | what it means | what to do |",
    "|---|---|---|---|---|",
)

_METRICS_TABLE = (
    "",
    "Watch the free space of each disk as well.",
    "",
    "## Logins",
    "",
    "If the console asks for a login, `/metrics` does too (`moldau.metrics.login`), for a user of the listener that",
    "may describe the cluster. If the listeners encrypt, logins are taken from the machine itself alone, so that no",
    "password is sent in the clear: scrape through a proxy with TLS on that machine, or by an agent there.",
    "",
    "    kafka-acls.sh --bootstrap-server HOST:9092 --command-config admin.properties --add \\",
    "      --allow-principal User:prometheus --operation Describe --cluster",
    "",
    "    scrape_configs:",
    "      - job_name: moldau",
    "        basic_auth: {username: prometheus, password_file: /etc/prometheus/moldau-password}",
    "        static_configs:",
    "          - targets: ['HOST:9464']",
    "",
    "## Lag",
    "",
    "The names are those of kafka-lag-exporter, which has the lag in seconds too. Its label `cluster_name` is",
    "left to the scrape configuration. What other exporters call the same:",
    "",
    "| here | there |",
    "|---|---|",
    "| `kafka_consumergroup_group_lag` | `kafka_consumergroup_lag` (kafka_exporter) |",
    "|  | `kminion_kafka_consumer_group_topic_partition_lag` (kminion) |",
    "|  | `kafka_burrow_partition_lag` (Burrow's exporter) |",
    "| `kafka_consumergroup_group_topic_sum_lag` | `kafka_consumergroup_lag_sum` (kafka_exporter) |",
    "|  | `kminion_kafka_consumer_group_topic_lag` (kminion) |",
    "| `kafka_consumergroup_group_sum_lag` | `kafka_burrow_total_lag` (Burrow's exporter) |",
    "| `kafka_consumergroup_group_offset` | `kafka_consumergroup_current_offset` (kafka_exporter) |",
    "",
    "- The lag is the number of records that a read_committed consumer of the group still receives: without",
    "  markers of transactions, aborted records and what compaction removed. A share group is measured from its",
    "  start offset, without what is acknowledged behind it.",
    "- The seconds are the age of the first record that was not read, by the timestamp of its batch.",
    "- Each broker tells the groups that it coordinates: `sum by (group) (…)` over all brokers counts each once.",
    "- A scrape takes a sample, unless there is one of the last 5 s. A sample reads 2 MiB of batches at most, of",
    "  600 partitions, and goes on with the next sample. Until then the lag of a partition is the difference of",
    "  two offsets, which `moldau_group_lag_uncounted_partitions` counts, and its seconds may be missing.",
    "- `moldau.metrics.lag.groups` says which groups are exported, by patterns such as `orders*`. Partitions and",
    "  topics have samples of their own up to `moldau.metrics.lag.partitions.max` partitions of all groups, by",
    "  the order of the groups' ids; the others have those of the group.",
    "",
    "## All metrics",
    "",
    "Names are those that Prometheus' JMX exporter makes of Apache Kafka's. `docs/grafana/moldau.json` is a dashboard.",
    "",
    "- Rates are counters here: use `rate()`.",
    "- Of the traffic of topics, a sample without the label `topic` is the sum over all, deleted topics with it: ask",
    '  for `topic=""` or `topic!=""`.',
    "- At most `moldau.metrics.series.max` topics, partitions, clients, addresses and groups each have samples of",
    "  their own. Of the labels that clients choose (`user`, `client_id`, `ip`, `group`), the others are one series",
    "  with the label `other`, and so are those with a label of more than 249 characters; `moldau_series_left_out`",
    "  counts them.",
    "- The first of several broker processes of a machine ([cores](cores.md)) answers for all: `/metrics` has the",
    "  series of one node, each the sum over the processes (the largest or smallest value for what is no count), and",
    "  `/metrics/brokers` the series of each process with its node id in the label `broker`. `/readyz` is 200 if",
    "  every process is ready.",
    "- Times are of every request of a connection, from its last received byte to the last byte of its reply that the",
    "  kernel was given; they are the sum of their stages. [The runbook for slow requests](latency.md) uses them.",
    "",
    "| Apache Kafka's name | here | kind | labels | meaning |",
    "|---|---|---|---|---|",
)


def long_lists_page() -> str:
    from bench.rows import LONG_LIST, LONG_LIST_USERS
    from bench.runs import KEPT_LONG, BenchRun
    from moldau.broker.apis.api import list_paths
    from moldau.broker.apis.catalogue import apis

    measured = BenchRun.read(KEPT_LONG).figures if KEPT_LONG.exists() else {}

    def times(api: str, path: str) -> str:
        """The cells of the two users."""
        cells = []
        for user in LONG_LIST_USERS:
            figure = measured.get(f"{LONG_LIST} {api}.{path}, {user}")
            if figure is None or figure.peer is None:
                cells.append("")
            else:
                cells.append(f"{figure.ours:.0f} ({figure.peer:.0f})")
        return " | ".join(cells)

    rows = [
        f"| {api.name} | `{path}` | {api.treatment(path)} | {times(api.name, path)} |"
        for api in sorted(apis(), key=lambda api: api.name)
        for path in sorted(list_paths(api.request))
    ]
    return "\n".join([*_LISTS_INTRODUCTION, *rows, ""])


_LISTS_INTRODUCTION = (
    "# Long lists in requests",
    "",
    "Computed from the declarations in `protocol/messages/` and from `broker/apis/` and",
    "`kraft/controller/apis.py` by `python docs/compute.py`: every list in every request, and what keeps the event",
    "loop free if it is long.",
    "",
    "- *parts of n*: a request with more elements is handled in parts of at most n. For each part the ACLs are asked",
    "  and the handler runs; the responses are joined. Other requests have their turn after each slice of 2 ms. What",
    "  Apache Kafka decides about a request as a whole (an element that is named twice, one batch of records) holds",
    "  within a part.",
    "- *at most n*: a request with more elements is refused with INVALID_REQUEST. Lists inside the elements of another",
    "  list count together, unless the outer list is cut into parts.",
    "- *one pass*: the elements are looked at once, which is short for as many as a request may hold.",
    "",
    "A request that decodes into more than 512 KB of objects is decoded in an executor thread, and one that decodes",
    "into more than 56 MB ends its connection. `make limits` sends each list with 100,000 elements to a real process:",
    "to a broker before login, without rights and as a super user, to a controller as a node of the cluster does, and",
    "to a controller in an Envelope, as a broker forwards the request of a client.",
    "",
    "The last two columns are the times (ms) of one request with 100,000 elements, and in brackets those of Apache",
    "Kafka 4.3.1 for the same bytes, of the long run that [performance.md](performance.md) shows (`make bench-long`).",
    "Apache Kafka is not waited for after 40 s. A list without times is in a request that only nodes of the cluster",
    "send, or the run left this group out.",
    "",
    "| API | list | what happens | without rights, ms | super user, ms |",
    "|---|---|---|---|---|",
)


def front_chart() -> str:
    """The chart of the README, of the kept run."""
    from bench.front import chart_svg
    from bench.runs import KEPT, BenchRun

    return chart_svg(BenchRun.read(KEPT))


def performance_page() -> str:
    from bench.document import kept_page

    return kept_page()


def api_versions() -> str:
    """The module of the keys and versions that a node tells before it imports the declarations."""
    from moldau.broker.apis.catalogue import CATALOGUE, declared_versions, request_of

    rows = [f'    "{name}": {declared_versions(request_of(name))},' for name in CATALOGUE]
    return "\n".join([*_VERSIONS_BEGIN, *rows, "}", ""])


_VERSIONS_BEGIN = (
    '"""The key, the first and the last version of the APIs in `broker/apis/catalogue.py`, for a node that has not',
    "imported their messages yet. Computed from the declarations in `protocol/messages/` by `python docs/compute.py`.",
    '"""',
    "",
    "from __future__ import annotations",
    "",
    "from collections.abc import Mapping",
    "from typing import Final",
    "",
    "VERSIONS: Final[Mapping[str, tuple[int, int, int]]] = {",
)


PAGES = {
    "../protocol/versions.py": api_versions,
    "beside-kafka.svg": front_chart,
    "divergence.md": divergence_page,
    "long-lists.md": long_lists_page,
    "metrics.md": metrics_page,
    "performance.md": performance_page,
    "prometheus/alerts.yml": alert_rules,
    "protocol-support.md": protocol_page,
}


def main() -> None:
    """Write every page."""
    for name, page in PAGES.items():
        (ROOT / "docs" / name).write_text(page(), "utf-8")


if __name__ == "__main__":
    main()
