"""The report of a restore: everything that the restore changed, as JSON fields and as sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from moldau.backup.group_offsets import MovedOffset
from moldau.backup.observed import RestoreMoment
from moldau.backup.settling import AbortedTransaction, AppendedMarker, TransactionRepairs
from moldau.backup.share_states import CutShareState
from moldau.coordinator.transaction.records import TransactionChange
from moldau.coordinator.transaction.transaction import NAMES
from moldau.kraft.image.configs import ConfigResource, ResourceType
from moldau.storage.checkpoints.partition_metadata import uuid_text

Fields = Mapping[str, object]


class CutLog(NamedTuple):
    """A restored log that ends earlier than in the backup."""

    topic: str
    partition: int
    end_offset: int
    backup_end_offset: int
    first_later_ms: int
    """The timestamp of the first batch that is left out."""


@dataclass(slots=True)
class RestoreReport:
    """The report of a restore, or of a dry run of one."""

    backup_id: str
    cluster_id: str
    moment: RestoreMoment
    metadata_ms: int
    """The time (ms since 1970) of the restored metadata: topics, settings, permissions and users."""
    nodes: Sequence[int] = ()
    topic_count: int = 0
    partition_count: int = 0
    size: int = 0
    """The size of all restored logs in bytes, counted once and not for each replica."""
    cut_logs: list[CutLog] = field(default_factory=list)
    settlement: TransactionRepairs = field(default_factory=TransactionRepairs)
    moved_offsets: list[MovedOffset] = field(default_factory=list)
    cut_share_states: list[CutShareState] = field(default_factory=list)
    lowered_settings: list[tuple[ConfigResource, str]] = field(default_factory=list)
    """The `min.insync.replicas` settings that are lowered to 1, with their previous values."""
    topics_with_expired_records: list[str] = field(default_factory=list)
    """The topics whose retention deletes records as soon as a node starts."""

    def as_json_fields(self) -> Fields:
        settlement = self.settlement
        return {
            "backup_id": self.backup_id,
            "cluster_id": self.cluster_id,
            "moment_ms": self.moment.time_ms,
            "is_time_asked_for": self.moment.is_requested_time,
            "metadata_ms": self.metadata_ms,
            "nodes": list(self.nodes),
            "topics": self.topic_count,
            "partitions": self.partition_count,
            "log_bytes": self.size,
            "cut_logs": [cut._asdict() for cut in self.cut_logs],
            "undone_transactions": [_undone_fields(each) for each in settlement.aborted_transactions],
            "appended_markers": [_ended_fields(each) for each in settlement.appended_markers],
            "rewritten_markers": [
                {"topic": topic, "partition": partition, "offset": offset}
                for (topic, partition), changes in sorted(settlement.marker_changes_by_log.items())
                for offset in sorted(changes.aborted_marker_offsets)
            ],
            "appended_states": [
                _state_fields(change)
                for changes in settlement.state_changes_by_partition.values()
                for change in changes
            ],
            "moved_group_offsets": [_moved_fields(each) for each in self.moved_offsets],
            "cut_share_states": [_cut_state_fields(each) for each in self.cut_share_states],
            "lowered_settings": [
                {"resource": _resource(resource), "min.insync.replicas": before}
                for resource, before in self.lowered_settings
            ],
            "topics_with_expired_records": self.topics_with_expired_records,
        }

    def as_sentences(self) -> Iterator[str]:
        """The report as sentences: the restored backup first, then each change."""
        settlement = self.settlement
        yield f"backup {self.backup_id} of cluster {self.cluster_id}, at {utc_time_text(self.moment.time_ms)}"
        yield (
            f"{_count(self.topic_count, 'topic')}, {_count(self.partition_count, 'partition')},"
            f" {self.size:,} bytes of logs, on {_count(len(self.nodes), 'node')}: {', '.join(map(str, self.nodes))}"
        )
        if self.moment.is_requested_time:
            yield f"topics, settings, permissions and users are those of {utc_time_text(self.metadata_ms)}"
        for cut in self.cut_logs:
            yield (
                f"{cut.topic}-{cut.partition} ends at offset {cut.end_offset}, not at {cut.backup_end_offset}:"
                f" the batch there is of {utc_time_text(cut.first_later_ms)}"
            )
        for undone in settlement.aborted_transactions:
            yield _undone_line(undone)
        for ended in settlement.appended_markers:
            outcome = "committed" if ended.is_commit else "aborted"
            yield f"{ended.partition[0]}-{ended.partition[1]}: {_owner(ended)} is {outcome} by a marker"
        rewritten = sum(len(changes.aborted_marker_offsets) for changes in settlement.marker_changes_by_log.values())
        if rewritten:
            yield f"{_count(rewritten, 'marker')} of undone transactions rewritten"
        for changes in settlement.state_changes_by_partition.values():
            for change in changes:
                assert change.value is not None
                yield (
                    f"transactional id {change.transactional_id}: {NAMES[change.value.state]},"
                    f" epoch {change.value.producer_epoch}"
                )
        for moved in self.moved_offsets:
            where = f"group {moved.group_id}, {moved.topic}-{moved.partition}: offset {moved.before.offset}"
            if moved.renamed is not None:
                yield f"{where} is offset {moved.after} of {moved.renamed}-{moved.partition}"
            else:
                yield f"{where} goes back to {moved.after}" if moved.after is not None else f"{where} is removed"
        for state in self.cut_share_states:
            yield (
                f"share group {state.key.group_id}, topic id {uuid_text(state.key.topic_id)}, partition"
                f" {state.key.partition}: what it had delivered from offset {state.end_offset} on is forgotten"
            )
        for resource, before in self.lowered_settings:
            yield f"{_resource(resource)}: min.insync.replicas is 1, it was {before}"
        if self.topics_with_expired_records:
            yield (
                f"warning: records of {', '.join(self.topics_with_expired_records)} are older than retention.ms:"
                " a node deletes them"
                " minutes after its start; start it with log.retention.check.interval.ms=2147483647, and raise"
                " retention.ms"
            )


def utc_time_text(time_ms: int) -> str:
    """A time in UTC as text, to the millisecond."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _undone_fields(undone: AbortedTransaction) -> Fields:
    decision = undone.decision
    return {
        "transactional_id": decision.transactional_id,
        "producer_id": decision.transaction.producer_id,
        "producer_epoch": decision.transaction.producer_epoch,
        "committed_ms": decision.transaction.updated_ms,
        "reason": undone.reason.name.lower(),
        "because_of": undone.cause,
        "partitions": [f"{topic}-{partition}" for topic, partition in sorted(decision.transaction.partitions)],
    }


def _undone_line(undone: AbortedTransaction) -> str:
    decision = undone.decision
    because = f" ({undone.cause})" if undone.cause else ""
    return (
        f"transactional id {decision.transactional_id}: the transaction that was committed at"
        f" {utc_time_text(decision.transaction.updated_ms)} is undone: {undone.reason.value}{because}"
    )


def _ended_fields(ended: AppendedMarker) -> Fields:
    return {
        "topic": ended.partition[0],
        "partition": ended.partition[1],
        "transactional_id": ended.transactional_id,
        "producer_id": ended.producer_id,
        "producer_epoch": ended.producer_epoch,
        "outcome": "commit" if ended.is_commit else "abort",
    }


def _owner(ended: AppendedMarker) -> str:
    if ended.transactional_id is None:
        return f"the open transaction of producer {ended.producer_id}"
    return f"the open transaction of transactional id {ended.transactional_id}"


def _state_fields(change: TransactionChange) -> Fields:
    transaction = change.value
    assert transaction is not None
    return {
        "transactional_id": change.transactional_id,
        "state": NAMES[transaction.state],
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch,
    }


def _moved_fields(moved: MovedOffset) -> Fields:
    return {
        "group": moved.group_id,
        "topic": moved.topic,
        "partition": moved.partition,
        "from": moved.before.offset,
        "to": moved.after,
        **({} if moved.renamed is None else {"renamed_to": moved.renamed}),
    }


def _cut_state_fields(cut: CutShareState) -> Fields:
    return {
        "group": cut.key.group_id,
        "topic_id": uuid_text(cut.key.topic_id),
        "partition": cut.key.partition,
        "from": cut.before.start_offset,
        "to": cut.after.start_offset,
        "end_offset": cut.end_offset,
    }


def _resource(resource: ConfigResource) -> str:
    kind = "topic" if resource.type == ResourceType.TOPIC else "broker"
    return f"{kind} {resource.name or 'default'}"


def _count(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
