"""The list of the compiled modules: the code that handles a produce, a fetch and a replicated record, and the loops of
the log cleaner and of readers of tables.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
PACKAGES: Final = ("protocol", "storage", "security", "replication", "kraft", "coordinator", "broker", "tables")
"""The packages that contain compiled modules, or modules that these import."""
HOT_PATH: Final = (
    "broker/coordinators/heartbeat_hook.py",
    "broker/network/connection.py",
    "broker/network/direct_output.py",
    "broker/network/flow_control.py",
    "broker/network/memory.py",
    "broker/network/peer_channel.py",
    "broker/network/replies.py",
    "broker/network/request_times.py",
    "broker/network/route.py",
    "broker/network/turns.py",
    "broker/purgatory/purgatory.py",
    "broker/purgatory/timer_wheel.py",
    "broker/replicas/replica_fetchers.py",
    "broker/replicas/replicas.py",
    "broker/apis/records/fetched_records.py",
    "broker/apis/records/fetch.py",
    "broker/apis/records/produce.py",
    "broker/apis/list_lengths.py",
    "broker/apis/records/produce_hook.py",
    "broker/apis/records/produce_reply.py",
    "broker/runtime/pending.py",
    "coordinator/shard/offset_walk.py",
    "protocol/primitives.py",
    "protocol/produce_template.py",
    "protocol/record_batch.py",
    "protocol/record_reader.py",
    "protocol/record_validation.py",
    "replication/fetch_plan.py",
    "replication/fetch_session.py",
    "replication/follower_fetch.py",
    "replication/leadership.py",
    "replication/partition.py",
    "replication/replica_fetcher.py",
    "replication/replication_quota.py",
    "replication/source.py",
    "replication/verification.py",
    "storage/checkpoints/leader_epochs.py",
    "storage/compaction/batch_cleaner.py",
    "storage/compaction/segments.py",
    "storage/erasure/kept_records.py",
    "storage/files/file_slice.py",
    "storage/log/append.py",
    "storage/log/log.py",
    "storage/log/log_state.py",
    "storage/log/reading.py",
    "storage/producers/producer_state.py",
    "storage/producers/verification.py",
    "storage/segment/batch_run.py",
    "storage/segment/batch_scan.py",
    "storage/segment/segment.py",
    "storage/segment/sparse_index.py",
    "tables/decoding/coverage.py",
    "tables/decoding/segment_batches.py",
    "tables/decoding/span_rows.py",
)
"""The modules that mypyc compiles: from the bytes of a request to the write, or to the socket; the loading of committed
offsets; and what the log cleaner and the readers of tables do with each batch.

protocol/compiler.py compiles the codecs at run time. The modules of files (storage/files/local_files.py, open_files.py)
stay Python: a compiled `__del__` that runs while the interpreter ends crashes it.
"""
C_SOURCES: Final = (
    "moldau/protocol/record_spans.c",
    "moldau/storage/compaction/offset_map.c",
    "moldau/broker/runtime/file_sender.c",
)
"""The modules that are written in C. Each is the compiled form of the Python module of the same name, and has the same
results.
"""
HEADERS: Final = ("moldau/protocol/record_spans.h", "moldau/storage/compaction/offset_map.h")
"""The header files that modules in C include. A header has the name of its module, and is beside it."""
COMPILED_SOURCES: Final = (*(f"moldau/{name}" for name in HOT_PATH), *C_SOURCES)
"""The sources of all compiled modules, relative to the root of the checkout. Their paths are those by which Python
imports them: `moldau/` has a link to each folder.
"""
FOR_TABLES: Final = (
    "moldau/protocol/record_spans.c",
    *(f"moldau/{name}" for name in HOT_PATH if name.startswith("tables/")),
)
"""The compiled modules that only readers of tables load; a node does not load them."""
NEEDED_BY_TABLES: Final = ("numpy", "pyarrow")
"""The packages of the extra `arrow` that the modules in `FOR_TABLES` import. Neither a node nor a compile needs
them.
"""
GROUP: Final = "moldau.hot_path"
"""The name of the shared library into which mypyc puts the code of all modules. Each extension module only refers to
it.
"""


def digest_of(root: Path) -> str:
    """A digest of the list of the compiled modules and of the contents of their sources."""
    digest = hashlib.sha256()
    for name in (*COMPILED_SOURCES, *HEADERS):
        digest.update(name.encode())
        digest.update((root / name).read_bytes())
    return digest.hexdigest()
