"""I2, I4, I8 of the metadata: what a node shows is committed; below their high watermarks all logs are the same, name
the same voters, and are durable on a majority of these."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.invariants.observation import LogContent, Node, Observation, StoredBatch, Violation

Identity = tuple[int, int, int, int]


class MetadataLogs:
    def __init__(self) -> None:
        self._contents: dict[tuple[int, int], LogContent] = {}
        self._glances: dict[tuple[int, int], object] = {}
        self._committed: dict[int, tuple[Identity, int]] = {}
        """By base offset: the batch, and the node that was the first to call it committed."""
        self._described: dict[int, tuple[object, int]] = {}
        """By end offset: what the quorum is, as the log says up to there."""

    def check(self, seen: Observation) -> None:
        moved = []
        for node in seen.nodes:
            quorum = node.broker.quorum
            shown, log = quorum.image.provenance.end_offset, quorum.opened.log.log
            if shown > quorum.high_watermark:
                raise Violation(
                    f"node {node.id} shows metadata up to {shown}; committed there are {quorum.high_watermark}"
                )
            place = (node.id, node.life)
            # What a failed sync took was never said to be durable; what was said before must be there all the same.
            end_offset = log.synced_end_offset if node.is_losing_metadata else None
            newest = (log.end_offset, log.epochs.latest_epoch)
            glance = (quorum.high_watermark, newest, log.log_start_offset, quorum.leader_epoch, end_offset)
            if log.failure is None and self._glances.get(place) != glance:
                self._glances[place] = glance
                self._contents.setdefault(place, LogContent()).read(node.disk, log, end_offset)
                moved.append(node)
        for node in moved:
            self._compare(node)
            self._compare_voters(node)
            self._check_vouched(node)
        for node in moved:
            if node.broker.quorum.active_controller is not None:
                self._check_majority(node, seen)

    def _compare(self, node: Node) -> None:
        content, high_watermark = self._contents[node.id, node.life], node.broker.quorum.high_watermark
        while content.verified < len(content.batches):
            batch = content.batches[content.verified]
            if batch.last_offset >= high_watermark:
                return
            known, first = self._committed.setdefault(batch.base_offset, (batch.identity, node.id))
            if known != batch.identity:
                raise Violation(f"node {node.id} has committed {batch.identity} as metadata, node {first} {known}")
            content.verified += 1

    def _compare_voters(self, node: Node) -> None:
        quorum = node.broker.quorum
        end_offset = quorum.image.provenance.end_offset
        description = quorum.opened.history.description_at(end_offset)
        known, first = self._described.setdefault(end_offset, (description, node.id))
        if end_offset and known != description:
            raise Violation(f"at {end_offset} of the metadata node {node.id} knows {description}, node {first} {known}")

    def _check_vouched(self, node: Node) -> None:
        """What the node counts as durable, and so vouches for, is."""
        flushed_end_offset = node.broker.quorum.opened.raft.member.flushed_end_offset
        for batch in reversed(self._contents[node.id, node.life].batches):
            if batch.last_offset < flushed_end_offset:
                if not self._is_durable(node, batch):
                    raise Violation(f"node {node.id} counts its metadata as durable up to {flushed_end_offset}")
                return

    def _check_majority(self, leader: Node, seen: Observation) -> None:
        """One that is down may have it: nobody can say."""
        quorum = leader.broker.quorum
        last = next(self._committed_of(leader), None)
        if last is None:
            return
        lacking = {
            node.id
            for node in seen.nodes
            if (node.id, node.life) in self._contents
            and node.broker.quorum.opened.log.log.failure is None
            and not self._is_durable(node, last)
        }
        now, before = (
            quorum.opened.history.voters,
            quorum.opened.history.description_at(quorum.high_watermark).voters or (),
        )
        sets = [now, before] if before else [now]
        if all(len(set(voters.by_id) - lacking) < voters.majority for voters in sets):
            raise Violation(f"metadata up to {last.last_offset} is committed, and not durable on {sorted(lacking)}")

    def _committed_of(self, node: Node) -> Iterator[StoredBatch]:
        """The last one first."""
        high_watermark = node.broker.quorum.high_watermark
        for batch in reversed(self._contents[node.id, node.life].batches):
            if batch.last_offset < high_watermark:
                yield batch

    def _is_durable(self, node: Node, batch: StoredBatch) -> bool:
        log, snapshot = node.broker.quorum.opened.log.log, node.broker.quorum.opened.log.latest_snapshot
        if batch.last_offset < (log.log_start_offset if snapshot is None else snapshot.end_offset):
            return True  # in a snapshot
        for each in reversed(self._contents[node.id, node.life].batches):
            if each.identity == batch.identity:
                data = node.disk.peek_durable(f"{log.directory}/{each.segment_offset:020d}.log")
                return bytes(data[each.position : each.position + len(each.head)]) == each.head
            if each.last_offset < batch.base_offset:
                break
        return False
