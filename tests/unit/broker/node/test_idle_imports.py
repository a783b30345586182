"""A plain node imports nothing that it does not use: each module of `UNUSED` costs an idle node memory and start time.

The node is composed, started and asked for its APIs in a process of its own, because the modules that the tests import
stay in this one.
"""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from building.hot_path import COMPILED_SOURCES
from moldau.broker.apis.catalogue import CATALOGUE

ROOT: Final = Path(__file__).parents[4]
UNUSED: Final = (
    "_hashlib",
    "_ssl",
    "aiofiles",
    "moldau.broker.console",
    "moldau.broker.http",
    "moldau.broker.metrics.service",
    "moldau.broker.network.authentication.sasl",
    "moldau.broker.network.tls.stream",
    "moldau.broker.node.audit_log",
    "moldau.broker.node.oauthbearer",
    "moldau.broker.tiering",
    "moldau.coordinator.classic.join",
    "cryptography",
    "h11",
    "hashlib",
    "jinja2",
    "ipaddress",
    "lz4",
    "obstore",
    "pathlib",
    "pickle",
    "re2",
    "moldau.protocol.messages.join_group",
    "moldau.protocol.messages.share_group_heartbeat",
    "moldau.security.acl.authorizer",
    "moldau.security.tls.principal_rules",
    "snappy",
    "ssl",
    "moldau.storage.compaction.cleaning",
    "moldau.storage.tiered.index_cache",
    "moldau.storage.tiered.manifest",
    "moldau.storage.tiered.metadata",
    "tempfile",
    "zstandard",
)
OF_HELP: Final = ("moldau/broker/cli/command.py", "moldau/broker/cli/invocation.py")
LATE: Final = ("moldau/protocol/late_dataclass.py", "moldau/protocol/late_tuple.py")
STANDARD: Final = re.compile(
    r"^from (?:dataclasses import (?:\([^)]*|.*)\bdataclass|typing import (?:\([^)]*|.*)\bNamedTuple)\b", re.MULTILINE
)
"""An import of what compiles methods when a class is declared."""
MODULES: Final = {f"moldau.broker.apis.{module}" for module, _ in CATALOGUE.values()}
ASKED: Final = {f"moldau.broker.apis.{name}" for name in ("cluster.api_versions", "records.fetch", "records.produce")}
"""The ones that a node holds once it has told its APIs; `main.load_hot_path` says why."""
ASK: Final = bytes.fromhex("0000000a 0012 0000 00000001 ffff")
"""ApiVersions, version 0."""
PROGRAM: Final = """
from moldau.broker.runtime.event_loop import import_event_loop
import_event_loop()
import asyncio, sys
from moldau.broker.cli.invocation import load_config
from moldau.broker.node.main import Formatting, NodeProcess, StartOptions, TimedLoop
from moldau.broker.runtime.environment import LocalEnvironment

data, addresses, request = sys.argv[1:]

def greet(report):
    tasks.append(loop.create_task(ask(int(report.listeners["PLAINTEXT"].rpartition(":")[2]))))

async def ask(port):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(bytes.fromhex(request))
    await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
    print(*sorted(sys.modules), flush=True)
    life._stop("the modules are told")

tasks = []
loop = TimedLoop(LocalEnvironment.precise_ns)
asyncio.set_event_loop(loop)
config = load_config(None, data, ["listeners=" + addresses], {})
start = StartOptions(formatting=Formatting(), greet=greet)
life = NodeProcess(config, LocalEnvironment(loop), loop, start, lambda: None)
sys.exit(loop.run_until_complete(life.run()))
"""


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> frozenset[str]:
    """The modules of a node that serves and has answered one request."""
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    client, controller = (probe.getsockname()[1] for probe in probes)
    for probe in probes:
        probe.close()
    addresses = f"PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}"
    data = tmp_path_factory.mktemp("idle") / "data"
    command = [sys.executable, "-c", PROGRAM, str(data), addresses, ASK.hex()]
    return frozenset(subprocess.check_output(command, cwd=ROOT, text=True, timeout=120).split())


@pytest.mark.processes
def test_a_plain_node_imports_nothing_that_it_does_not_use(imported: frozenset[str]) -> None:
    assert "moldau.broker.node.node" in imported and "moldau.broker.apis.catalogue" in imported
    held = [module for module in imported if any(f"{module}.".startswith(f"{each}.") for each in UNUSED)]
    assert held == []


@pytest.mark.processes
def test_a_handler_is_imported_at_the_first_request_of_its_api(imported: frozenset[str]) -> None:
    assert imported & MODULES == ASKED


@pytest.mark.processes
def test_no_import_of_a_start_compiles_the_methods_of_dataclasses_and_tuples(imported: frozenset[str]) -> None:
    """`protocol/late_dataclass.py` and `late_tuple.py` say what they cost. mypyc knows those of the standard library
    alone, and the help of the command line imports nothing of the protocol.
    """
    ours = {f"{name.replace('.', '/')}.py" for name in imported if name.startswith("moldau.")}
    paths = [each for each in ours - {*COMPILED_SOURCES, *OF_HELP, *LATE} if (ROOT / each).is_file()]
    assert len(paths) > 300
    assert [each for each in paths if STANDARD.search((ROOT / each).read_text())] == []


@pytest.mark.parametrize(
    ("line", "is_found"),
    [
        ("from dataclasses import dataclass, field", True),
        ("from dataclasses import field, replace", False),
        ("from typing import (\n    Final,\n    NamedTuple,\n)", True),
        ("from typing import Final\n# NamedTuple", False),
        ("from moldau.protocol.late_tuple import NamedTuple", False),
    ],
)
def test_an_import_of_the_standard_ones_is_found(line: str, is_found: bool) -> None:
    assert bool(STANDARD.search(f"import re\n{line}\n")) is is_found


def test_the_modules_are_those_of_today() -> None:
    """A module that was renamed would be looked for in vain."""
    ours = [name for name in UNUSED if name.startswith("moldau.")]
    assert len(ours) > 10 and len(UNUSED) - len(ours) >= 5
    for name in ours:
        path = ROOT / name.replace(".", "/")
        assert path.is_dir() or path.with_suffix(".py").is_file(), name
