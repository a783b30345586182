"""The Compose file as a parser reads it: the services of each profile, their settings, volumes and addresses agree."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from moldau.broker.cli.container import HTTP_LISTENER, container_settings
from moldau.broker.config import Config
from moldau.broker.config.loading import checked_config

ROOT = Path(__file__).parents[3]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
BROKERS = [f"moldau-{number}" for number in (1, 2, 3)]
TIERED = [f"moldau-tiered-{number}" for number in (1, 2, 3)]


def of_profile(profile: str | None) -> set[str]:
    wanted = [] if profile is None else [profile]
    return {name for name, each in SERVICES.items() if each.get("profiles", []) == wanted}


def config_of(name: str) -> Config:
    variables = {name: str(value) for name, value in SERVICES[name]["environment"].items()}
    return checked_config(container_settings({}, variables))


def test_profiles() -> None:
    assert of_profile(None) == set(BROKERS)
    assert of_profile("spark") == {"spark", "spark-master", "spark-worker-1", "spark-worker-2"}
    assert of_profile("tiered") == {"minio", "minio-bucket", *TIERED}
    for each in SERVICES.values():
        assert set(each.get("depends_on", [])) <= SERVICES.keys()


@pytest.mark.parametrize("names", [BROKERS, TIERED], ids=["plain", "tiered"])
def test_nodes_of_a_cluster_find_each_other(names: list[str]) -> None:
    configs = [config_of(name) for name in names]
    voters = [f"{config.node_id}@{name}:9093" for config, name in zip(configs, names, strict=True)]
    for name, config in zip(names, configs, strict=True):
        variables = SERVICES[name]["environment"]
        assert variables["KAFKA_CONTROLLER_QUORUM_VOTERS"] == ",".join(voters)
        assert f"INSIDE://{name}:19092" in variables["KAFKA_ADVERTISED_LISTENERS"]
        published = published_of(name)["9092"]
        assert variables["KAFKA_ADVERTISED_LISTENERS"].endswith(f"localhost:{published}")
        assert SERVICES[name]["volumes"] == [f"{name}:{config.log_dirs[0]}"]
    assert len({config.node_id for config in configs}) == 3


def published_of(name: str) -> dict[str, str]:
    """The ports of this machine by those of a service."""
    ports = (port.split(":") for port in SERVICES[name].get("ports", []))
    return {inside: outside for _, outside, inside in ports}


def test_each_published_port_is_there_once_and_for_this_machine_alone() -> None:
    ports = [port for each in SERVICES.values() for port in each.get("ports", [])]
    assert all(port.startswith("127.0.0.1:") for port in ports)
    assert len({port.split(":")[1] for port in ports}) == len(ports)


def test_the_console_of_the_first_node_is_on_and_published() -> None:
    config = config_of("moldau-1")
    assert config.flag("moldau.console") and config.text(HTTP_LISTENER).endswith(":9464")
    assert published_of("moldau-1")["9464"] == "9464"


def test_the_image_installs_the_versions_of_the_lock_file_each_with_its_hashes() -> None:
    """The head of the file has the command that makes it."""
    lock = dict(line.split("==") for line in (ROOT / "requirements.lock").read_text().split("\n") if "==" in line)
    text = (ROOT / "building/image/requirements.txt").read_text()
    pinned = dict(re.findall(r"^([\w.-]+)==([\w.]+)", text, re.MULTILINE))
    assert {name.lower().replace("_", "-"): version for name, version in lock.items()}.items() >= pinned.items()
    for block in re.split(r"\n(?=\w)", text):
        assert block.startswith("#") or "--hash=sha256:" in block, block
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = (*needed["dependencies"], *needed["optional-dependencies"]["tiered"])
    assert {re.split("[>;<= ]", each)[0] for each in named} <= pinned.keys()


def test_every_volume_is_declared_and_used() -> None:
    used = {volume.partition(":")[0] for each in SERVICES.values() for volume in each.get("volumes", [])}
    assert used == COMPOSE["volumes"].keys()


def test_spark_reads_the_volumes_of_the_brokers_and_cannot_write_them() -> None:
    mounted = [f"{name}:/brokers/{number}:ro" for number, name in enumerate(BROKERS, 1)]
    for name in of_profile("spark"):
        assert SERVICES[name]["volumes"] == [*mounted, "spark-output:/output"]
        assert SERVICES[name]["environment"]["SPARK_LOCAL_HOSTNAME"] == SERVICES[name]["hostname"] == name
    master = SERVICES["spark"]["environment"]["MASTER"]
    assert master == "spark://spark-master:7077"
    assert "--host spark-master --port 7077" in SERVICES["spark-master"]["command"]
    for name in ("spark-worker-1", "spark-worker-2"):
        assert SERVICES[name]["command"].endswith(f" {master}")


def test_targets_and_extras_are_there() -> None:
    stages = re.findall(r"^FROM \S+ AS (\S+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert SERVICES["spark"]["build"]["target"] in stages
    assert "target" not in str(SERVICES["moldau-1"]["build"]), "the last stage is the broker"
    extras = set(re.findall(r"^(\w+) = \[", (ROOT / "pyproject.toml").read_text(), re.MULTILINE))
    assert set(SERVICES["spark"]["build"]["args"]["EXTRAS"].split(",")) <= extras


def test_tiered_nodes_reach_the_store_that_is_started() -> None:
    store = SERVICES["minio"]["environment"]
    (script,) = (each for each in SERVICES["minio-bucket"]["entrypoint"] if "mc mb" in each)
    for name in TIERED:
        variables = SERVICES[name]["environment"]
        assert container_settings({}, variables)["moldau.tiered.storage"] == "s3://moldau/cluster"
        assert variables["KAFKA_MOLDAU_TIERED_STORAGE_ENDPOINT"] == "http://minio:9000"
        assert variables["AWS_ACCESS_KEY_ID"] == store["MINIO_ROOT_USER"]
        assert variables["AWS_SECRET_ACCESS_KEY"] == store["MINIO_ROOT_PASSWORD"]
    assert f"{store['MINIO_ROOT_USER']} {store['MINIO_ROOT_PASSWORD']}" in script and "store/moldau" in script


def test_what_the_image_is_made_of_is_in_the_context() -> None:
    """`.dockerignore` leaves out everything that it does not name."""
    copied = re.findall(r"^COPY (?!--from)(?:--\S+ )?(.+) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    named = {line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().split() if line.startswith("!")}
    assert {path.partition("/")[0] for paths in copied for path in paths.split()} <= named
