"""A compacted topic in remote storage: cleaned remote segments are files that Apache Kafka's tools accept."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

from tests.conformance.client import Client
from tests.conformance.scenarios.compacted_directories import (
    CONFIGS,
    EAGER,
    PARTITIONS,
    ROUNDS,
    TOPIC,
    fill,
    records,
    table,
)
from tests.conformance.scenarios.directories import COMPLAINTS, DirectoryScenario, Workshop
from tests.conformance.session import expect
from tests.conformance.toolbox import Toolbox

TIERED_S = 90.0
MANIFEST = ".manifest.json"
DUMPED = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")


def expected() -> dict[tuple[int, bytes | None], bytes | None]:
    """What `fill` leaves: the rounds that it aborts leave nothing."""
    latest: dict[tuple[int, bytes | None], bytes | None] = {}
    for number in range(ROUNDS + 1):
        if number % 3 == 2 and number % 2:
            continue
        written = records(number) if number < ROUNDS else records(ROUNDS)[:PARTITIONS]
        for record in written:
            latest[record.partition, record.key] = record.value
    return {key: value for key, value in latest.items() if value is not None}


def cleaned_manifests(bucket: Path) -> list[Path]:
    """The manifests of segments that were cleaned in remote storage, and hold records."""
    found = []
    for path in sorted(bucket.glob(f"topics/{TOPIC}.*/*/*{MANIFEST}")):
        try:
            manifest = json.loads(path.read_text("utf-8"))
        except FileNotFoundError:
            continue  # deleted since
        if manifest["generation"] and manifest["objects"]["log"]["size"]:
            found.append(path)
    return found


def fill_until_cleaned(client: Client, bucket: Path) -> None:
    """Write until a remote segment of each partition was cleaned: only newer records make it worth a pass."""
    fill(client)
    deadline = time.monotonic() + TIERED_S
    while len({path.parent for path in cleaned_manifests(bucket)}) < PARTITIONS:
        expect(time.monotonic() < deadline, f"cleaned remote segments: {cleaned_manifests(bucket)}")
        for number in range(ROUNDS):
            if not (number % 3 == 2 and number % 2):
                client.produce(TOPIC, records(number), codec="zstd")
        client.produce(TOPIC, records(ROUNDS)[:PARTITIONS], codec="none")
        time.sleep(2)


def remote_segments_accepted(work: Workshop) -> None:
    bucket = work.directory / "bucket"
    bucket.mkdir()
    ours = work.moldau(
        *EAGER,
        "remote.log.storage.system.enable=true",
        f"moldau.tiered.storage={bucket}",
        "rlmm.config.remote.log.metadata.topic.num.partitions=1",
        "rlmm.config.remote.log.metadata.topic.replication.factor=1",
        "remote.log.manager.task.interval.ms=500",
        "log.initial.task.delay.ms=500",
        "log.retention.check.interval.ms=500",
    )
    ours.format()
    configs = CONFIGS | {"remote.storage.enable": "true", "local.retention.bytes": "1"}
    with work.running(ours), work.client("confluent", ours) as client:
        client.create_topic(TOPIC, PARTITIONS, configs=configs)
        fill_until_cleaned(client, bucket)
        copies = work.directory / "copies"
        for path in cleaned_manifests(bucket):
            stem = path.name.removesuffix(MANIFEST)
            place = copies / path.parent.name / stem
            place.mkdir(parents=True)
            for suffix in DUMPED:
                if (path.parent / (stem + suffix)).exists():
                    shutil.copy(path.parent / (stem + suffix), place / (stem.partition("-")[0] + suffix))
        work.facts["the table is whole"] = table(client) == expected()
    expect(bool(work.facts["the table is whole"]), "a consumer of both tiers sees another table")
    expect_dumped(work, copies)


def expect_dumped(work: Workshop, copies: Path) -> None:
    """DumpLogSegments reads every object of every cleaned segment, and complains about none."""
    box = Toolbox(work.toolchain, "", "dump", work.directory)
    places = sorted(copies.glob("*/*"))
    for place in places:
        files = ",".join(str(file) for file in sorted(place.iterdir()))
        output = box.run_offline("kafka-dump-log", "--files", files, "--deep-iteration")
        bad = [line for line in output.splitlines() if any(complaint in line for complaint in COMPLAINTS)]
        expect(not bad, f"DumpLogSegments over {place.name}: {bad[:3]}")
    work.facts["cleaned remote segments accepted"] = len(places) >= PARTITIONS


COMPACTED_TIER_SCENARIOS = (
    DirectoryScenario(
        "remote-compacted",
        "a compacted topic in remote storage: DumpLogSegments accepts each object of a cleaned segment",
        remote_segments_accepted,
    ),
)
