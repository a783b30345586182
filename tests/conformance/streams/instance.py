"""One instance of the shop application: a Java process with a state directory of its own."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.conformance.java_process import JavaProcess
from tests.conformance.secured.access import Access
from tests.conformance.streams.truth import DISTANCE_MS, WINDOW_MS
from tests.conformance.toolchain import Toolchain

HEAP = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
REPLACED = "REPLACED "
"""The application's mark of an exception that ended its thread; another thread took over."""


class Instance(JavaProcess):
    """A kill leaves its transaction open until its successor, or the coordinator, ends it; a stop leaves the group."""

    def __init__(self, name: str, toolchain: Toolchain, access: Access, guarantee: str, directory: Path) -> None:
        self._state = directory / name
        arguments = [access.bootstrap, str(self._state), guarantee, str(WINDOW_MS), str(DISTANCE_MS)]
        if access.settings:
            arguments.append(str(access.written(directory / f"{name}.properties")))
        super().__init__(name, [*toolchain.java_command(*HEAP), "ShopApplication", *arguments], directory)

    def forget(self) -> None:
        """Its state directory is lost: it comes back as an instance that the coordinators do not know."""
        shutil.rmtree(self._state, ignore_errors=True)

    def replaced(self) -> list[str]:
        """The exceptions that ended threads."""
        said = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return [line.removeprefix(REPLACED) for line in said if line.startswith(REPLACED)]
