"""The controller with many partitions: the time to load its snapshot, to fence one of 300 brokers, and to elect new
leaders.

Each size runs in a process of its own, so that its memory is measured alone. `python -m bench.controller_scale 100000
DIR` is such a process: the metadata log on a real disk, the records encoded, appended and synced as a node does it.
"""

from __future__ import annotations

import gc
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

from bench.figures import OURS, Figure
from bench.large_metadata import figures_of_all_topics
from bench.processes import peak_memory_mb
from moldau.broker.config.catalogue_rules import CatalogueRules
from moldau.broker.metadata.metadata_log import MetadataLog
from moldau.broker.node.main import GC_THRESHOLDS
from moldau.kraft.controller.controller import Controller
from moldau.kraft.controller.settings import ControllerSettings
from moldau.kraft.features import METADATA_VERSION
from moldau.kraft.image.metadata_image import MetadataImage, Provenance
from moldau.kraft.image.replay import Replay
from moldau.kraft.quorum.control_records import QuorumDescription
from moldau.protocol.records.metadata import (
    BrokerEndpoint,
    FeatureLevelRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from moldau.storage.files.local_files import LocalFiles
from moldau.storage.log_config import LogConfig

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.groups import RunForm
    from bench.subjects import Bench

BROKERS: Final = 300
REPLICAS: Final = 3
PARTITIONS_OF_A_TOPIC: Final = 100
SMALL: Final = 100_000
LARGE: Final = 1_000_000
SESSION_MS: Final = 9_000
VICTIM: Final = 17


def measure(bench: Bench, form: RunForm) -> list[Figure]:
    """Measure each size. The large one is measured once, because it only shows how the time grows."""
    values: dict[str, list[float]] = {}
    rounds = [(SMALL, form.rounds), (LARGE, 1)]
    for partitions, count in rounds:
        for _ in range(count):
            for name, value in run_in_process(partitions, bench.directory / f"controller-{partitions}").items():
                values.setdefault(f"{partitions:,} partitions: {name}", []).append(value)
    for name in ("snapshot loaded", "a broker fenced, its leaders elected"):
        small, large = (sorted(values[f"{partitions:,} partitions: {name}"]) for partitions, _ in rounds)
        values[f"{LARGE:,} partitions: {name}, in times {SMALL:,}"] = [large[0] / small[len(small) // 2]]
    return [Figure(f"controller, {name}", figure_unit(name), {OURS: taken}) for name, taken in values.items()]


def figure_unit(name: str) -> str:
    return "MB" if "memory" in name else "x" if "times" in name else "partitions" if "touched" in name else "s"


def run_in_process(partitions: int, directory: Path) -> dict[str, float]:
    command = [sys.executable, "-m", "bench.controller_scale", str(partitions), str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
    print(f"  controller, {partitions:,} partitions: {done.stdout.strip()}", flush=True)
    shutil.rmtree(directory)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


# The process that is measured


def cluster_records(partitions: int) -> Iterator[object]:
    """Yield the records of a cluster: brokers in three racks, and topics whose replicas begin one broker further with
    each partition.
    """
    yield FeatureLevelRecord(name=METADATA_VERSION, feature_level=30)
    for broker_id in range(BROKERS):
        yield RegisterBrokerRecord(
            broker_id=broker_id,
            incarnation_id=broker_id.to_bytes(16, "big"),
            broker_epoch=broker_id,
            end_points=[BrokerEndpoint(name="PLAINTEXT", host=f"broker-{broker_id}", port=9092, security_protocol=0)],
            features=[],
            rack=f"rack-{broker_id % 3}",
            fenced=False,
            log_dirs=[(1000 + broker_id).to_bytes(16, "big")],
        )
    random = Random(1)
    for topic in range(partitions // PARTITIONS_OF_A_TOPIC):
        topic_id = random.randbytes(16)
        yield TopicRecord(name=f"topic-{topic}", topic_id=topic_id)
        start = random.randrange(BROKERS)
        for index in range(PARTITIONS_OF_A_TOPIC):
            step = random.randrange(1, BROKERS // REPLICAS)
            replicas = [(start + index + step * each) % BROKERS for each in range(REPLICAS)]
            yield PartitionRecord(
                partition_id=index,
                topic_id=topic_id,
                replicas=replicas,
                isr=replicas,
                leader=replicas[0],
                leader_epoch=5,
                partition_epoch=9,
                directories=[(1000 + replica).to_bytes(16, "big") for replica in replicas],
            )


def write_snapshot(partitions: int, directory: str) -> None:
    """Write a snapshot of the cluster with the code that a node uses."""
    image = Replay()
    image.replay(cluster_records(partitions), Provenance(partitions, 1, 0))
    log = MetadataLog.open(LocalFiles(), directory, LogConfig(), 0).log
    log.write_snapshot(image.image, QuorumDescription(), 0)


def measure_size(partitions: int, directory: str) -> dict[str, float]:
    gc.set_threshold(*GC_THRESHOLDS)
    before_mb = resident_mb()
    started, cpu_started = time.perf_counter(), time.process_time()
    loaded = MetadataLog.open(LocalFiles(), directory, LogConfig(), 0)
    loaded_s, loaded_cpu_s = time.perf_counter() - started, time.process_time() - cpu_started
    image_mb = resident_mb() - before_mb
    started, cpu_started = time.perf_counter(), time.process_time()
    controller = Controller(loaded.replay, controller_settings(), 0)
    activated_s, activated_cpu_s = time.perf_counter() - started, time.process_time() - cpu_started
    touched = len(controller.view.by_broker.partitions_in_sync(VICTIM))
    for broker in loaded.replay.image.cluster.brokers.values():
        controller._sessions.note_heartbeat(broker.id, broker.epoch, 0 if broker.id == VICTIM else SESSION_MS)
    started, cpu_started = time.perf_counter(), time.process_time()
    for decision in controller.tick(SESSION_MS):
        for batch in filter(None, decision.batches()):
            provenance = loaded.log.append(batch, 30, 1, 0)
            controller.replay(batch, provenance, SESSION_MS)
    loaded.log.log.flush(0)
    fenced_s, fenced_cpu_s = time.perf_counter() - started, time.process_time() - cpu_started
    check_failover(controller.image)
    return {
        "snapshot loaded": loaded_s,
        "snapshot loaded, CPU": loaded_cpu_s,
        "index made by a new controller": activated_s,
        "index made by a new controller, CPU": activated_cpu_s,
        "a broker fenced, its leaders elected": fenced_s,
        "a broker fenced, its leaders elected, CPU": fenced_cpu_s,
        "partitions touched": touched,
        "memory of the image": image_mb,
        "memory of the process": resident_mb(),
        "memory of the process at its peak": peak_memory_mb(),
        **figures_of_all_topics(controller.image),
    }


def controller_settings() -> ControllerSettings:
    return ControllerSettings(
        cluster_id="bench",
        config_rules=object.__new__(CatalogueRules),
        random=Random(1),
        new_uuid=lambda: bytes(16),
        metadata_max_idle_interval_ms=0,
        broker_session_timeout_ms=SESSION_MS,
    )


def check_failover(image: MetadataImage) -> None:
    """Check that the fenced broker leads no partition and is in no in-sync set, and that each partition
    has a leader.
    """
    assert image.cluster.brokers[VICTIM].fenced
    for _, _, partition in image.topics.partitions():
        assert partition.leader >= 0 and partition.leader != VICTIM and VICTIM not in partition.isr


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def main() -> None:
    partitions, directory = int(sys.argv[1]), sys.argv[2]
    shutil.rmtree(directory, ignore_errors=True)
    Path(directory).mkdir(parents=True)
    subprocess.run([sys.executable, "-m", "bench.controller_scale", "write", str(partitions), directory], check=True)
    print(json.dumps(measure_size(partitions, directory)))


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write_snapshot(int(sys.argv[2]), sys.argv[3])
    else:
        main()
