"""What the foreign clients need: found on the machine or fetched once into `.tools/`, and said if missing."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
CACHE = HERE.parent.parent / ".tools" / "conformance"


class Missing(Exception):
    """Says what is not there and how to get it."""


class Toolchain:
    """Paths of programs and fetched packages. With `fetch` false, only what is already there counts."""

    def __init__(self, *, fetch: bool) -> None:
        self._fetch = fetch

    def java(self) -> str:
        return self._program("java", "a JDK of version 17 or later")

    def jars(self) -> Path:
        """The directory of Apache Kafka's jars; MOLDAU_KAFKA_LIB names one that somebody else has filled."""
        given = os.environ.get("MOLDAU_KAFKA_LIB")
        return Path(given) if given else self._fetched(CACHE / "kafka", HERE / "peer" / "pom.xml")

    def tiered_jars(self) -> Path:
        """The directory of the jar with Apache Kafka's LocalTieredStorage, for a broker to load."""
        return self._fetched(CACHE / "kafka-tiered", HERE / "peer" / "tiered" / "pom.xml")

    def release_jars(self, version: str) -> Path:
        """The directory of the jars of the server of another release."""
        wanted = HERE / "peer" / "release" / "pom.xml"
        return self._fetched(CACHE / f"kafka-{version}", wanted, f"-Dkafka.version={version}")

    def _fetched(self, lib: Path, wanted: Path, *properties: str) -> Path:
        complete = lib / "complete.xml"
        if not complete.exists() or complete.read_bytes() != wanted.read_bytes():
            maven = self._program("mvn", "Maven, for Apache Kafka's jars")
            self._may_fetch("Apache Kafka's jars are not fetched")
            goal = ("dependency:copy-dependencies", f"-DoutputDirectory={lib}")
            self._run(maven, "-q", "-B", "-f", str(wanted), *goal, *properties)
            shutil.copy(wanted, complete)
        return lib

    def server_command(self, *options: str) -> list[str]:
        """`java` for a broker, a controller or the formatting of a directory. MOLDAU_KAFKA_SERVER_LIB names the jars of
        another release for them; tools and clients stay those of `jars`.
        """
        return self.java_command(*options, jars=self.server_jars())

    @staticmethod
    def server_jars() -> Path | None:
        """The jars of another release for brokers and controllers, if there are any."""
        given = os.environ.get("MOLDAU_KAFKA_SERVER_LIB")
        return Path(given) if given else None

    def java_command(self, *options: str, jars: Path | None = None) -> list[str]:
        """`java` with the peer's class path, or that of other jars; a class name and arguments go after it."""
        logging = f"-Dlog4j2.configurationFile={HERE / 'peer' / 'log4j2.properties'}"
        quick = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
        return [
            self.java(),
            *(options or ("-Xmx512m", *quick)),
            logging,
            "-cp",
            f"{jars or self.jars()}/*:{CACHE / 'classes'}",
        ]

    def compiled_java(self) -> None:
        """Compiles `java/*.java` if a class is older than its source."""
        compiler = self._program("javac", "a JDK of version 17 or later")
        sources = sorted((HERE / "java").glob("*.java"))
        classes = CACHE / "classes"
        stamp = classes / "compiled"
        if not stamp.exists() or any(source.stat().st_mtime > stamp.stat().st_mtime for source in sources):
            classes.mkdir(parents=True, exist_ok=True)
            self._run(compiler, "-nowarn", "-cp", f"{self.jars()}/*", "-d", str(classes), *map(str, sources))
            stamp.touch()

    def node_command(self, program: str = "driver.js") -> list[str]:
        """`node` with kafkajs; the module path is beside the copied program."""
        node = self._program("node", "Node.js of version 16 or later")
        home = CACHE / "kafkajs"
        home.mkdir(parents=True, exist_ok=True)
        for source in (HERE / "kafkajs").iterdir():
            shutil.copy(source, home / source.name)
        wanted, installed = home / "package.json", home / "installed.json"
        if not installed.exists() or installed.read_bytes() != wanted.read_bytes():
            self._may_fetch("kafkajs is not fetched")
            npm = self._program("npm", "npm, for kafkajs")
            self._run(npm, "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(home))
            shutil.copy(wanted, installed)
        return [node, str(home / program)]

    def go_command(self, name: str) -> list[str]:
        """The driver `golang/<name>`, built if it is older than its sources."""
        go = self._program("go", "Go of version 1.26 or later")
        home, driver = HERE / "golang", CACHE / "golang" / name
        sources = [home / "go.mod", *(home / "wire").glob("*.go"), *(home / name).glob("*.go")]
        if not driver.exists() or any(each.stat().st_mtime > driver.stat().st_mtime for each in sources):
            self._may_fetch(f"the driver of {name} is not built")
            driver.parent.mkdir(parents=True, exist_ok=True)
            self._run(go, "-C", str(home), "build", "-buildvcs=false", "-o", str(driver), f"./{name}")
            driver.touch()
        return [str(driver)]

    def kcat(self) -> str:
        return self._program("kcat", "kcat (Debian's package `kcat`)")

    def promtool(self) -> str:
        return self._program("promtool", "promtool (Debian's package `prometheus`)")

    def _program(self, name: str, what: str) -> str:
        found = shutil.which(name)
        if found is None:
            raise Missing(f"{name} is not on the PATH: install {what}")
        return found

    def _may_fetch(self, what: str) -> None:
        if not self._fetch:
            raise Missing(f"{what}: run `make conformance` once")

    @staticmethod
    def _run(*command: str) -> None:
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise Missing(f"{' '.join(command[:4])} ... failed: {(done.stdout + done.stderr)[-1500:]}")
