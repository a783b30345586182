"""The wheel as a stranger meets it: no compiler, and packages of their own with the names of our folders."""

from __future__ import annotations

import json
import os
import re
import signal
import site
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer

from building.hot_path import ROOT
from building.mypyc_build import CannotCompile, refuse_without_c_compiler
from building.wheel_tree import BESIDE, TARGET, files_of
from moldau.spark_jobs.java_runtime import find_java, home_for_spark
from moldau.testing.ports import free_ports

pytestmark = pytest.mark.processes

OWN_PACKAGES = ("broker", "storage", "protocol")
"""Of the stranger's project."""
README, SPARK_PAGE = ROOT / "README.md", ROOT / "docs/spark.md"
README_SERVER = "127.0.0.1:9092"
RECORDS = 20
SPARK = """
import broker, protocol, storage
assert {broker.OWNER, protocol.OWNER, storage.OWNER} == {"the project"}
from pyspark.sql import SparkSession
session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
rows = session.read.format("moldau").option("subscribe", "t").load("data").select("value").collect()
print(sorted(int(row.value) for row in rows))
"""


FIXTURES = """
import broker, protocol, storage
import moldau

def test_orders(kafka):
    assert {broker.OWNER, protocol.OWNER, storage.OWNER} == {"the project"}
    assert moldau.__file__.startswith(__import__("sys").prefix)
    topic = kafka.topic()
    kafka.produce(topic, "x")
    assert [record.value for record in kafka.records(topic)] == [b"x"]
"""


class Installed(NamedTuple):
    """A virtual environment with the wheel in it, and a project to work in."""

    bin: Path
    project: Path

    @property
    def variables(self) -> dict[str, str]:
        """No compiler is on the PATH; the project's packages are importable, as in many a shell."""
        return {"PATH": str(self.bin), "PYTHONPATH": str(self.project), "HOME": str(self.project)}

    def run(self, command: str, *arguments: str, **variables: str) -> str:
        return subprocess.check_output(
            [str(self.bin / command), *arguments], cwd=self.project, env=self.variables | variables, text=True
        )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the compiled modules of this checkout; without such the build compiles them."""
    try:
        refuse_without_c_compiler()
    except CannotCompile as reason:
        pytest.skip(str(reason))
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, env=os.environ | {"MOLDAU_WHEEL": "compiled"})
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Only the wheel is installed; what it depends on is borrowed from the environment of the tests."""
    base = tmp_path_factory.mktemp("stranger")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(base / "venv")], check=True)
    python = base / "venv/bin/python"
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-deps", str(wheel)], check=True
    )
    (packages,) = (base / "venv").glob("lib/python*/site-packages")
    (packages / "borrowed.pth").write_text("\n".join(site.getsitepackages()) + "\n")
    project = base / "project"
    for name in OWN_PACKAGES:
        (project / name).mkdir(parents=True)
        (project / name / "__init__.py").write_text('OWNER = "the project"\n')
    return Installed(base / "venv/bin", project)


@pytest.fixture(scope="module")
def greeting(installed: Installed) -> Iterator[dict[str, Any]]:
    """`moldau serve` in the project, and what it says when it serves."""
    client, controller = free_ports(2)
    settings = [
        f"listeners=PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}",
        "replica.high.watermark.checkpoint.interval.ms=100",
    ]
    overrides = [word for setting in settings for word in ("--override", setting)]
    command = [str(installed.bin / "moldau"), "serve", "--greeting", "json", *overrides]
    with (installed.project / "moldau.log").open("w") as log:
        node = subprocess.Popen(
            command, cwd=installed.project, env=installed.variables, stdout=subprocess.PIPE, stderr=log, text=True
        )
    try:
        assert node.stdout is not None
        yield json.loads(node.stdout.readline())
    finally:
        node.send_signal(signal.SIGTERM)
        status = node.wait(30)
    assert status == 0, (installed.project / "moldau.log").read_text()


def test_a_wheel_holds_one_package_beside_the_one_that_spark_looks_for(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.partition("/")[0] for name in archive.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"moldau", "pyspark_moldau"}


def test_the_files_of_a_wheel_are_those_of_the_tree(wheel: Path) -> None:
    """Byte for byte; compiled modules aside."""
    with zipfile.ZipFile(wheel) as archive:
        held = {
            name: archive.read(name)
            for name in archive.namelist()
            if ".dist-info/" not in name and not name.endswith(".so")
        }
    files = [path for top in (TARGET, *BESIDE) for path in files_of(ROOT / top)]
    assert held == {str(path.relative_to(ROOT)): path.read_bytes() for path in files}


def test_the_command_runs_compiled_and_says_so(installed: Installed) -> None:
    assert "hot path compiled" in installed.run("moldau", "version")
    assert "hot path compiled" in installed.run("python", "-m", "moldau", "version")
    assert installed.run("python", "-c", "import moldau; print(moldau.__version__)").count(".") == 2


def test_a_node_without_arguments_takes_and_gives_records(greeting: dict[str, Any], installed: Installed) -> None:
    assert greeting["compiled"] and greeting["formatted"] and greeting["data"] == [str(installed.project / "data")]
    servers = greeting["listeners"]["PLAINTEXT"]
    producer = Producer({"bootstrap.servers": servers})
    for number in range(RECORDS):
        producer.produce("t", str(number))
    assert producer.flush(20) == 0
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    taken = [message.value() for message in consumer.consume(RECORDS, timeout=20)]
    consumer.close()
    assert taken == [str(number).encode() for number in range(RECORDS)]


def test_spark_reads_the_topic_and_the_project_keeps_its_imports(
    greeting: dict[str, Any], installed: Installed
) -> None:
    script = installed.project / "report.py"
    script.write_text(SPARK)
    with home_for_spark(find_java(os.environ)) as java:
        said = installed.run("python", str(script), PATH=f"{installed.bin}:{os.environ['PATH']}", JAVA_HOME=str(java))
    assert json.loads(said.splitlines()[-1]) == list(range(RECORDS))


def test_the_program_of_the_readme_runs(greeting: dict[str, Any], installed: Installed) -> None:
    _, program = re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), re.DOTALL)
    assert program.count(README_SERVER) == 1
    said = installed.run("python", "-c", program.replace(README_SERVER, greeting["listeners"]["PLAINTEXT"]))
    assert [line.split(" ", 1)[1] for line in said.splitlines()] == [
        f"{name} hello {name}" for name in ("Ada", "Grace", "Barbara")
    ]


@pytest.mark.parametrize("page", [README, SPARK_PAGE], ids=lambda page: page.name)
def test_what_a_page_imports_is_installed(page: Path, installed: Installed) -> None:
    """Each import of its programs, in a place without the folders of the repository. `shop` is the reader's own."""
    lines = re.findall(r"^ *((?:from [\w.]+ )?import [\w., ]*\w)", page.read_text("utf-8"), re.MULTILINE)
    assert lines
    installed.run("python", "-c", "\n".join(line for line in lines if not line.startswith("from shop ")))


def test_the_fixtures_of_the_wheel_are_there_beside_the_packages_of_the_project(installed: Installed) -> None:
    (installed.project / "test_orders.py").write_text(FIXTURES)
    assert "1 passed" in installed.run("python", "-m", "pytest", "-p", "no:cacheprovider", "test_orders.py")


def test_every_page_of_help_names_only_what_is_installed(installed: Installed) -> None:
    assert "serve" in installed.run("moldau", "--help")
