"""The memory that the import of a library costs an idle node: the reason why a plain node imports none of them."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

from bench.figures import OURS, Figure
from bench.groups import RunForm
from bench.subjects import Bench

BEGINS: Final = "import: memory of "
"""The prefix of the names of these figures."""
LIBRARIES: Final = {
    "uvloop": "uvloop",
    "google-re2": "re2",
    "obstore": "obstore",
    "aiofiles": "aiofiles",
    "zstandard": "zstandard",
    "lz4": "lz4.block",
    "python-snappy": "snappy",
    "cryptography": "cryptography.x509",
}
"""The imported module, by the name of its distribution."""
PROGRAM: Final = """\
import asyncio, importlib, importlib.util, sys
def resident_kb():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))
before = resident_kb()
importlib.import_module(sys.argv[1])
print(resident_kb() - before)
"""


def measure(bench: Bench, form: RunForm) -> list[Figure]:
    """Measure how much each import increases the resident memory of a process that has imported asyncio."""
    figures = []
    for library, module in LIBRARIES.items():
        grown = [mib for mib in (_grown_mib(module) for _ in range(form.rounds)) if mib is not None]
        if grown:
            figures.append(Figure(f"{BEGINS}{library}, after asyncio", "MiB", {OURS: grown}))
            print(f"  {library}: {min(grown):.1f} to {max(grown):.1f} MiB", flush=True)
    return figures


def _grown_mib(module: str) -> float | None:
    """Return the increase (MiB) of memory by an import; None if the library is not installed."""
    command = [sys.executable, "-c", PROGRAM, module]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return int(done.stdout) / 1024 if done.returncode == 0 else None
