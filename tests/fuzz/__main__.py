"""`python -m tests.fuzz`: a campaign of hostile input against a broker process, an honest client measured beside it.

The broker's process is watched: it must live, its memory stays bounded, its log names no handler that failed. The
honest client is measured three times, after as many inputs as it takes until each version of each API has been used
once (it is compiled then): alone, beside as many harmless connections that come and go as the hostile ones do, and
under attack. The bar is under attack against alone; against the harmless it shows what being hostile adds. The
attackers are one process that has a processor only when nobody else wants it, as if on another machine: on two cores
the broker and the honest client keep one each. With `--broker host:port:pid` one that runs already is attacked.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import IO, NamedTuple

from bench.processes import cpu_time, memory
from moldau.testing.ports import free_ports
from tests.fuzz.honest import TOPIC, HonestClient
from tests.fuzz.requests import Surroundings

HOST = "127.0.0.1"
WARM_UP_S = 3.0
ALLOWANCE_MB = 50.0
REQUEST_POOL_MB = 128.0
SLOWDOWN_MAX = 2.0
SHARES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
JUDGED = ("produce p99", "fetch p99")
WARM_SEED = 1_000_000
FAILURES = ("a handler failed", "Traceback", "the handler failed", "halted")


class Honest:
    """The honest client's process, for a while."""

    def __init__(self, port: int) -> None:
        command = [sys.executable, "-m", "tests.fuzz.honest", HOST, str(port)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def stop(self) -> dict[str, list[float]]:
        self.process.send_signal(signal.SIGTERM)
        text, _ = self.process.communicate(timeout=120)
        found: dict[str, list[float]] = json.loads(text)
        return found


class Target(NamedTuple):
    """A broker under attack."""

    port: int
    pid: int
    log: Path | None
    process: subprocess.Popen[bytes] | None


def start(directory: Path, settings: list[str], log: IO[bytes], port: int | None = None) -> Target:
    port, controller_port = port or free_ports(1)[0], free_ports(1)[0]
    overrides = [
        f"listeners=PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "auto.create.topics.enable=false",
        f"queued.max.request.bytes={round(REQUEST_POOL_MB * 1e6)}",
        *settings,
    ]
    command = [sys.executable, "-m", "moldau.broker.cli", "serve", "--data", str(directory / "data")]
    for each in overrides:
        command += ["--override", each]
    process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    for _ in range(200):
        with socket.socket() as probe:
            if probe.connect_ex((HOST, port)) == 0:
                return Target(port, process.pid, Path(log.name), process)
        time.sleep(0.05)
    raise SystemExit("the broker does not start")


class Wave(NamedTuple):
    """So many inputs, at a rate, or 0 for as fast as they go."""

    inputs: int
    seed: int
    rate: float
    is_harmless: bool = False


def attack(target: Target, wave: Wave, connections: int, topic_ids: list[bytes]) -> tuple[Counter[str], float]:
    """The outcomes by kind, and the largest resident memory meanwhile, in MB."""
    command = [sys.executable, "-m", "tests.fuzz.attack", HOST, str(target.port), str(wave.inputs)]
    command += ["--seed", str(wave.seed), "--rate", str(wave.rate), "--connections", str(connections)]
    command += ["--harmless"] * wave.is_harmless
    command += ["--topic-ids", *(each.hex() for each in topic_ids)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    most = 0.0
    while process.poll() is None:
        if not is_alive(target):
            process.kill()
            break
        most = max(most, memory(target.pid).resident_mb)
        time.sleep(0.05)
    text, _ = process.communicate()
    return Counter({f"{kind}: {outcome}": count for kind, outcome, count in json.loads(text or "[]")}), most


def is_alive(target: Target) -> bool:
    return target.process.poll() is None if target.process else Path(f"/proc/{target.pid}").exists()


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]


def measured(name: str, latencies: dict[str, list[float]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for api, values in latencies.items():
        for label, share in SHARES.items():
            found[f"{api} {label}"] = percentile(values, share)
        found[f"{api} max"] = max(values)
    print(f"{name:10}" + "  ".join(f"{key} {value:.2f} ms" for key, value in found.items()), flush=True)
    return found


def campaign(target: Target, given: argparse.Namespace) -> dict[str, object]:
    client = HonestClient(HOST, target.port)
    client.create_topic(TOPIC)
    topic_ids = [client.create_topic(name, 2) for name in Surroundings().topics]
    idle_mb = memory(target.pid).resident_mb
    began = time.monotonic()
    attack(target, Wave(given.warm, given.seed + WARM_SEED, given.rate), given.connections, topic_ids)
    rate = given.rate or given.warm / max(time.monotonic() - began, 1)
    honest = Honest(target.port)
    time.sleep(WARM_UP_S + given.calm)
    calm = measured("calm", {api: values[len(values) // 4 :] for api, values in honest.stop().items()})
    honest = Honest(target.port)
    attack(target, Wave(round(rate * given.calm), given.seed, rate, True), given.connections, topic_ids)
    harmless = measured("harmless", honest.stop())
    honest = Honest(target.port)
    started, cpu = time.monotonic(), cpu_time(target.pid)
    outcomes, most_mb = attack(target, Wave(given.inputs, given.seed, given.rate), given.connections, topic_ids)
    took_s = time.monotonic() - started
    busy_s = cpu_time(target.pid).since(cpu).total_s if is_alive(target) else 0.0
    attacked = measured("attacked", honest.stop())
    for name in JUDGED:
        against_calm, against_harmless = (attacked[name] / each[name] for each in (calm, harmless))
        print(f"honest {name}: {against_calm:.2f}x of alone, {against_harmless:.2f}x of beside harmless connections")
    time.sleep(2)
    lives = is_alive(target)
    after_mb = memory(target.pid).resident_mb if lives else 0.0
    for kind, count in sorted(outcomes.items()):
        print(f"  {count:9,}  {kind}")
    each_us = busy_s / max(outcomes.total(), 1) * 1e6
    print(
        f"{outcomes.total():,} inputs in {took_s:.0f} s, {busy_s:.0f} s of the broker's CPU, {each_us:.0f} us an input"
    )
    print(f"resident: {idle_mb:.0f} MB idle, {most_mb:.0f} MB at most, {after_mb:.0f} MB after")
    return {
        "inputs": outcomes.total(),
        "seconds": took_s,
        "broker_cpu_seconds": busy_s,
        "outcomes": outcomes,
        "idle_mb": idle_mb,
        "most_mb": most_mb,
        "after_mb": after_mb,
        "calm_ms": calm,
        "harmless_ms": harmless,
        "attacked_ms": attacked,
        "lives": lives,
    }


def verdict(target: Target, found: dict[str, object]) -> list[str]:
    """What is wrong."""
    wrong = []
    if not found["lives"]:
        wrong.append("the process has ended")
    limit_mb = float(str(found["idle_mb"])) + REQUEST_POOL_MB + ALLOWANCE_MB
    if float(str(found["most_mb"])) > limit_mb:
        wrong.append(f"resident memory above {limit_mb:.0f} MB")
    if target.log is not None:
        lines = [line for line in target.log.read_text(errors="replace").splitlines() if any(map(line.count, FAILURES))]
        wrong += lines[:20]
    calm, attacked = found["calm_ms"], found["attacked_ms"]
    assert isinstance(calm, dict) and isinstance(attacked, dict)
    for name in JUDGED:
        if attacked[name] > SLOWDOWN_MAX * calm[name]:
            wrong.append(f"honest {name}: {attacked[name]:.2f} ms instead of {calm[name]:.2f} ms")
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=0.0, help="inputs a second (0: as fast as they go)")
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--calm", type=float, default=10.0, help="seconds of the honest client alone before")
    parser.add_argument("--warm", type=int, default=20_000, help="inputs before anything is measured")
    parser.add_argument("--broker", help="host:port:pid of one that runs")
    parser.add_argument("--override", action="append", default=[], help="a setting of the broker that is started")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="moldau-fuzz-"))
    try:
        with open(directory / "broker.log", "wb") as log:
            if given.broker:
                _, port, pid = given.broker.rsplit(":", 2)
                target = Target(int(port), int(pid), None, None)
            else:
                target = start(directory, given.override, log)
            try:
                found = campaign(target, given)
            finally:
                if target.process is not None:
                    target.process.terminate()
                    target.process.wait(60)
        wrong = verdict(target, found)
        if given.json:
            given.json.write_text(json.dumps(found, indent=1))
        print("\n".join(wrong) if wrong else "held")
        if any("failed" in line or "Traceback" in line for line in wrong):
            shutil.copy(directory / "broker.log", given.json.with_suffix(".log") if given.json else os.devnull)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
