"""The scenario of Spark's own Kafka connector, on this broker and on Apache Kafka."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Final

from bench.spark_reads import connector_jars
from tests.conformance.outcome import Failed, Unavailable
from tests.conformance.scenarios.directories import DirectoryScenario, Workshop

TIMEOUT_S: Final = 560
DEMANDS: Final = "batch, stream, read_committed, minPartitions, headers, restart; a checkpoint changes its format"


def connector(side: str) -> Callable[[Workshop], None]:
    def story(work: Workshop) -> None:
        try:
            import pyspark  # noqa: F401

            jars = ",".join(map(str, connector_jars()))
        except (ImportError, OSError, subprocess.CalledProcessError) as missing:
            raise Unavailable(f"Spark's Kafka connector: {missing}") from None
        broker = work.moldau() if side == "moldau" else work.apache()
        broker.format()
        broker.start()
        try:
            words = [sys.executable, "-m", "tests.conformance.spark.story", broker.bootstrap, str(work.directory), jars]
            done = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_S)
        finally:
            broker.stop()
        told = [line for line in done.stdout.splitlines() if line.startswith("FACTS ")]
        if not told:
            raise Failed(f"the story ended with status {done.returncode}: {done.stderr[-1500:]}")
        work.facts |= json.loads(told[0].removeprefix("FACTS "))

    return story


SPARK_SCENARIOS: Final = tuple(
    DirectoryScenario("spark-connector", DEMANDS, connector(side), side) for side in ("moldau", "apache")
)
