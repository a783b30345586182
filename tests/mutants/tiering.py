"""Planted bugs of tiered storage: copies, their metadata, retention of both tiers, and reads of what is remote.

Numbers 309 to 315 are the list that the simulator was asked to kill, as 9 to 15 of it.
"""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Hunt, Mutant
from tests.simulation.cluster.plan import STORAGE_FAULTS, Fault

FAULTS: Final = (Fault.KILL_LEADER, Fault.ISOLATE_LEADER, Fault.MOVE_LEADERS, *STORAGE_FAULTS)
TIERED: Final[tuple[tuple[str, object], ...]] = (
    ("is_tiered", True),
    ("transactional", 1),
    ("transforms", False),
    ("retains", "bytes"),
    ("skew_ms_max", 0),
    ("trims", False),
    ("table_keys", 0),
    ("producers", 1),
    ("partitions", 1),
    ("look_every_s", 0.03),
    ("strike_every_s", 1.0),
    ("pause_s", 0.06),
)

TIERING_MUTANTS: Final = (
    Mutant(
        309,
        "a local segment is deleted before its copy is finished",
        "storage/log/log_start.py",
        "if not is_hidden and not (is_due and (next_start <= tiered_end_offset or is_active)):",
        "if not is_hidden and not is_due:",
        Hunt.SCENARIOS,
    ),
    Mutant(
        310,
        "a copy beyond the last stable offset",
        "broker/tiering/copying.py",
        "copy_limit(its_log, partition.last_stable_offset)",
        "copy_limit(its_log, partition.high_watermark)",
        Hunt.SCENARIOS,
    ),
    Mutant(
        311,
        "remote retention counts the local part of what is remote",
        "broker/tiering/copying.py",
        "if log.tiered_end_offset <= segment.base_offset < high_watermark\n",
        "if segment.base_offset < high_watermark\n",
        Hunt.SCENARIOS,
    ),
    Mutant(
        312,
        "an object is deleted while the metadata still names it",
        "broker/tiering/copying.py",
        "        if segment.state is not DELETE_STARTED:\n            await self._write_state",
        "        await remove_manifest(storage, *place)\n"
        "        if segment.state is not DELETE_STARTED:\n            await self._write_state",
        Hunt.SCENARIOS,
    ),
    Mutant(
        313,
        "two leaders copy one range, and both copies count",
        "storage/tiered/metadata/epoch_segments.py",
        '        self._starts[first:end] = array("q", [start_offset])\n'
        '        self._rows[first:end] = array("i", [row])\n'
        "        self.unreferenced.update(displaced)\n",
        '        self._starts[first:first] = array("q", [start_offset])\n'
        '        self._rows[first:first] = array("i", [row])\n',
        Hunt.SCENARIOS,
    ),
    Mutant(
        314,
        "a follower is built with the leader epochs of an earlier time",
        "storage/tiered/follower_state.py",
        "    return tuple(entries)\n",
        "    return tuple(entries[:-1] or entries)\n",
        Hunt.SCENARIOS,
    ),
    Mutant(
        315,
        "a compacted generation is read mixed with its ancestors",
        "storage/tiered/metadata/remote_log.py",
        "            for ancestor_row, ancestor in ancestors.items():\n",
        "            for ancestor_row, ancestor in list(ancestors.items())[:1]:\n",
        Hunt.SCENARIOS,
    ),
    Mutant(
        320,
        "the copied transaction index lacks its first entry",
        "broker/tiering/segment_contents.py",
        "    aborted = segment.transaction_index.entries()\n    if aborted:\n",
        "    aborted = segment.transaction_index.entries()[1:]\n    if segment.transaction_index.entries():\n",
        Hunt.SWARM,
        FAULTS,
        shape=TIERED,
    ),
    Mutant(
        321,
        "a copy says that it holds the first offset of the next segment",
        "broker/tiering/segment_contents.py",
        "        found.end_offset - 1,\n",
        "        found.end_offset,\n",
        Hunt.SCENARIOS,
    ),
    Mutant(
        322,
        "the index cache serves the indexes of another segment",
        "storage/tiered/index_cache.py",
        "        entry = self._entries.get(segment_id)\n        if entry is None:\n",
        "        entry = self._entries.get(segment_id) or next(iter(self._entries.values()), None)\n"
        "        if entry is None:\n",
        Hunt.SCENARIOS,
    ),
    Mutant(
        323,
        "a partition that is followed again begins at the present end of the metadata",
        "broker/tiering/remote_log_metadata.py",
        "            self._positions[followed.metadata_index] = 0\n",
        "            self._positions.setdefault(followed.metadata_index, 0)\n",
        Hunt.SCENARIOS,
    ),
    Mutant(
        324,
        "a deposed leader finishes its copy",
        "broker/tiering/copying.py",
        "            self._check_copy(partition, followed, epoch, segment)\n"
        "        except (RemoteStorageError, NoLongerLeader, OSError) as error:\n",
        "        except (RemoteStorageError, NoLongerLeader, OSError) as error:\n",
        Hunt.SCENARIOS,
    ),
    Mutant(
        325,
        "a copy that was begun before is left where it is",
        "broker/tiering/copying.py",
        "            if segment.segment_id not in followed.under_way:\n",
        "            if segment.segment_id in followed.under_way:\n",
        Hunt.SCENARIOS,
    ),
    Mutant(
        326,
        "a copy has the producers of the end of the log",
        "broker/tiering/segment_contents.py",
        "    path = log.snapshots.path(found.end_offset)\n",
        "    path = log.snapshots.path(log.snapshots.offsets[-1])\n",
        Hunt.SWARM,
        FAULTS,
        shape=TIERED,
    ),
    Mutant(
        327,
        "a fetched record of the metadata is decoded from a buffer that the next response overwrites",
        "broker/tiering/remote_log_metadata.py",
        "            _copy_records(response)\n",
        "",
        Hunt.SCENARIOS,
    ),
    Mutant(
        328,
        "aborted transactions whose markers are in later segments are not looked for",
        "broker/tiering/remote_source.py",
        "            if each >= epoch and not is_complete:\n",
        "            if each == epoch and each > 0 and not is_complete:\n",
        Hunt.SWARM,
        FAULTS,
        shape=TIERED,
    ),
    Mutant(
        329,
        "a read of a segment begins behind the batch that holds the offset",
        "storage/tiered/remote_lookup.py",
        "if header.last_offset >= offset]",
        "if header.base_offset >= offset]",
        Hunt.SCENARIOS,
    ),
    Mutant(
        330,
        "the copy is finished before its manifest is there",
        "storage/tiered/segment_copy.py",
        "    await storage.put(manifest_key(partition, segment), manifest.encode())\n",
        "",
        Hunt.SCENARIOS,
    ),
    Mutant(
        331,
        "a leader deletes as unfinished a copy that was finished just before",
        "storage/tiered/metadata/remote_log.py",
        "if update.deletes_unfinished_copy and before.state is SegmentState.COPY_SEGMENT_FINISHED:",
        "if update.deletes_unfinished_copy and before.state is SegmentState.DELETE_SEGMENT_FINISHED:",
        Hunt.SCENARIOS,
    ),
    Mutant(
        332,
        "what a removal has deleted still counts as copied",
        "storage/tiered/metadata/remote_log.py",
        "            segments.forget_highest()\n",
        "            pass\n",
        Hunt.SCENARIOS,
    ),
    Mutant(
        333,
        "local retention counts on segments that are being removed",
        "broker/tiering/remote_partitions.py",
        "        if self.is_being_removed:\n            return 0\n",
        "",
        Hunt.SCENARIOS,
    ),
    Mutant(
        334,
        "the removal of a topic that is tiered again is left unfinished",
        "broker/tiering/tiering.py",
        "            is_own = mark.broker_id == metadata.node_id\n",
        "            is_own = mark.broker_id == metadata.node_id\n"
        "            if self._is_tiered_here(key):\n                continue\n",
        Hunt.SCENARIOS,
    ),
    Mutant(
        335,
        "a leader copies a segment with a batch that its disk has damaged",
        "broker/tiering/segment_contents.py",
        "    except DamagedBatch as damage:\n        raise DamagedSegment(",
        "    except DamagedBatch as damage:\n"
        "        from moldau.protocol.primitives import crc32c\n"
        "        parts = (segment.path(each) for each in (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX))\n"
        "        data, offsets, times = (bytes(log.fs.read(each)) for each in parts)\n"
        "        return CheckedSegment(open_file, crc32c(data, 0), offsets, times, segment.largest_timestamp())\n"
        "        raise DamagedSegment(",
        Hunt.SCENARIOS,
    ),
    Mutant(
        336,
        "a leader copies its index files as they are",
        "broker/tiering/segment_contents.py",
        "    return CheckedSegment(open_file, check.crc, check.offset_index, check.time_index, max_timestamp)\n",
        "    parts = (segment.path(each) for each in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX))\n"
        "    offsets, times = (bytes(log.fs.read(each)) for each in parts)\n"
        "    return CheckedSegment(open_file, check.crc, offsets, times, max_timestamp)\n",
        Hunt.SCENARIOS,
    ),
)
