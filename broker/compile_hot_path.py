"""`python -m broker.compile_hot_path`: compile the modules that a produce passes through beside their sources.

The sources stay the one source, as with the record walk (`protocol/compile_kernel.py`): both forms behave the same, the
compiled one takes two thirds of the CPU. Python prefers an extension module to the source of the same name even where
the source has changed since: run this again after a change, or `--remove` what it made, or what is stale of it with
`--remove-stale`. A test refuses stale ones, and so does the simulator.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from protocol import compile_kernel
from protocol.compile_kernel import EXTENSION_SUFFIX, KERNEL, NEEDED, succeeds

ROOT: Final = Path(__file__).parent.parent
PACKAGES: Final = ("protocol", "storage", "replication", "kraft", "coordinator", "broker")
HOT_PATH: Final = (
    "broker/network/connection.py",
    "broker/network/flow_control.py",
    "broker/network/output.py",
    "broker/network/partial_frame.py",
    "broker/network/reply_queue.py",
    "broker/network/route.py",
    "broker/purgatory/delayed_fetch.py",
    "broker/purgatory/delayed_produce.py",
    "broker/network/direct_output.py",
    "broker/requests/follower_fetch.py",
    "broker/requests/handlers/fetch.py",
    "broker/requests/handlers/produce.py",
    "broker/purgatory/parked_fetches.py",
    "broker/network/peer_channel.py",
    "broker/runtime/pending.py",
    "broker/requests/produce_hook.py",
    "broker/requests/repeated_produce.py",
    "broker/replicas/replica_fetchers.py",
    "broker/replicas/replicas.py",
    "broker/network/reply.py",
    "broker/network/reply_memory.py",
    "broker/purgatory/timer_wheel.py",
    "broker/purgatory/wakes.py",
    "coordinator/shard/offset_walk.py",
    "protocol/primitives.py",
    "protocol/record_batch.py",
    "protocol/record_validation.py",
    "protocol/tagged_section.py",
    "replication/commit_waits.py",
    "replication/fetch_effects.py",
    "replication/fetch_session.py",
    "replication/follower_progress.py",
    "replication/leadership.py",
    "replication/partition.py",
    "replication/replica_fetcher.py",
    "replication/replica_news.py",
    "replication/replica_session.py",
    "replication/replication_quota.py",
    "storage/log/append_result.py",
    "storage/segment/batch_run.py",
    "storage/segment/batch_scan.py",
    "storage/files/file_slice.py",
    "storage/checkpoints/leader_epochs.py",
    "storage/log/boundaries.py",
    "storage/log/log.py",
    "storage/log/log_state.py",
    "storage/log/leader_append.py",
    "storage/log/follower_append.py",
    "storage/log/reading.py",
    "storage/segment/offset_index.py",
    "storage/producers/producer_state.py",
    "storage/segment/segment.py",
    "storage/segment/segment_files.py",
    "storage/segment/sparse_index.py",
)
"""From the bytes of a request to the write, or to the socket; and the loading of committed offsets.

The codecs are compiled by protocol/compiler.py at run time. Files (storage/files/) stay as they are: a
compiled `__del__` that runs while the interpreter ends crashes.
"""
GROUP: Final = "moldau_hot_path"
LIBRARY: Final = ROOT / f"{GROUP}__mypyc{EXTENSION_SUFFIX}"


def main(arguments: list[str]) -> str:
    """Compile where this machine can; the sentence to show."""
    if "--remove" in arguments:
        remove_compiled()
        return "the hot path is plain Python"
    if "--remove-stale" in arguments:
        return remove_stale()
    if LIBRARY.exists() and is_current():
        return "the hot path is compiled already"
    remove_compiled()
    sys.stderr.write("compiling the hot path, once for this installation: about a minute\n")
    with tempfile.TemporaryDirectory(prefix="moldau-hot-path-") as name:
        reason = compile_in(Path(name))
    if reason is not None:
        remove_compiled()
        return f"the hot path stays plain Python: {reason}"
    return "the hot path is compiled"


def compiled_files() -> Iterator[tuple[Path, Path]]:
    """Extension modules that are there, each with its source, also of modules that are not in the list any more."""
    for package in PACKAGES:
        for path in (ROOT / package).rglob(f"*{EXTENSION_SUFFIX}"):
            source = path.with_name(path.name.removesuffix(EXTENSION_SUFFIX) + ".py")
            if source.exists() and source != KERNEL:
                yield path, source


def stale_files() -> list[Path]:
    """Extension modules that would be run in the stead of newer sources."""
    return [path for path, source in compiled_files() if path.stat().st_mtime < source.stat().st_mtime]


def is_current() -> bool:
    """Whether what is compiled is what the list names, as the sources are."""
    return {source for _, source in compiled_files()} == {ROOT / name for name in HOT_PATH} and not stale_files()


def remove_compiled() -> None:
    for path, _ in compiled_files():
        path.unlink()
    LIBRARY.unlink(missing_ok=True)


def remove_stale() -> str:
    """Before something that must run the sources as they are, with no minute to spare: the sentence to show."""
    stale = [*stale_files(), *compile_kernel.stale_files()]
    if not stale:
        return "nothing that is compiled is older than its source"
    remove_compiled()
    compile_kernel.remove_compiled()
    return f"{stale[0].name} was older than its source: plain Python runs until `make compiled`"


def compile_in(directory: Path) -> str | None:
    """Compile in a copy of the sources and bring the extensions here; the reason where that fails."""
    ignored = shutil.ignore_patterns("*.so", "__pycache__")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, directory / package, ignore=ignored)
    tools = directory / "tools"
    if any(find_spec(module) is None for module in NEEDED):
        install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", str(tools), *NEEDED]
        if not succeeds(install, directory):
            return f"{' and '.join(NEEDED)} could not be installed"
    if not succeeds(["-c", RUN_MYPYC, str(tools), GROUP, *HOT_PATH], directory):
        return "mypyc failed, or there is no C compiler"
    for name in (*(str(Path(source).with_suffix("")) for source in HOT_PATH), f"{GROUP}__mypyc"):
        shutil.copyfile(directory / f"{name}{EXTENSION_SUFFIX}", ROOT / f"{name}{EXTENSION_SUFFIX}")
    return None if succeeds(["-c", CHECK, *HOT_PATH], ROOT) else "the extensions cannot be loaded"


RUN_MYPYC: Final = """
import sys
tools, group, *sources = sys.argv[1:]
sys.path.insert(0, tools)
sys.argv = ["setup.py", "build_ext", "--inplace"]
from mypyc.build import mypycify
from setuptools import setup
extensions = mypycify(["--follow-imports=silent", "--ignore-missing-imports", *sources], group_name=group)
setup(name=group, packages=[], ext_modules=extensions)
"""
CHECK: Final = """
import sys
from importlib import import_module
for source in sys.argv[1:]:
    assert not import_module(source.removesuffix(".py").replace("/", ".")).__file__.endswith(".py")
"""

if __name__ == "__main__":
    sys.stdout.write(main(sys.argv[1:]) + "\n")
