"""Planted in share partitions and in the share coordinator: what a share group has in flight."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Hunt, Mutant

IN_FLIGHT: Final = "replication/share/in_flight.py"
PARTITION: Final = "replication/share/share_partition.py"
ACQUISITION: Final = "replication/share/acquisition.py"
STATE: Final = "coordinator/share_coordinator/state.py"
SHARD: Final = "coordinator/share_coordinator/shard.py"
RUNNER: Final = "broker/share_partitions/runner.py"

SHARE_RECORD_MUTANTS: Final = (
    Mutant(
        450,
        "acknowledgements are lost at a failover of the share coordinator",
        STATE,
        "        batches=combined_batches(state.batches, update.batches, start_offset),\n",
        "        batches=combined_batches(update.batches, (), start_offset),\n",
        Hunt.SHARE_RECORDS,
    ),
    Mutant(
        451,
        "of two batches that overlap the lower delivery count is kept",
        STATE,
        "    if other < state:\n",
        "    if other > state:\n",
        Hunt.SHARE_RECORDS,
    ),
    Mutant(
        452,
        "an acquisition lock never ends",
        PARTITION,
        "        state.release(outcome, limits.delivery_count_max, limits.state_after_last_delivery)\n"
        "        state.cancel_lock()\n",
        "        state.cancel_lock()\n        return\n",
        Hunt.SHARE_RECORDS,
    ),
    Mutant(
        453,
        "the lock of an acknowledgement that was not stored does not end",
        IN_FLIGHT,
        "        if self.lock is not None and self.lock.has_expired:\n",
        "        if self.lock is None:\n",
        Hunt.SHARE_RECORDS,
    ),
    Mutant(
        454,
        "the delivery count begins anew with each lock that ends",
        PARTITION,
        "        state.cancel_lock()\n        released.append(",
        "        state.cancel_lock()\n        state.delivery_count = 0\n        released.append(",
        Hunt.SHARE_RECORDS,
    ),
    Mutant(
        455,
        "the delivery count begins anew with a new leader",
        PARTITION,
        "InFlightState(state, count, NO_MEMBER)",
        "InFlightState(state, min(count, 1), NO_MEMBER)",
        Hunt.SHARE_RECORDS,
    ),
    Mutant(
        456,
        "a record is delivered more often than the group allows",
        IN_FLIGHT,
        "        is_used_up = state is AVAILABLE and self.delivery_count >= delivery_count_max\n",
        "        is_used_up = state is AVAILABLE and self.delivery_count > delivery_count_max\n",
        Hunt.SHARE_RECORDS,
    ),
    Mutant(
        457,
        "an acknowledgement that is not stored stays",
        IN_FLIGHT,
        "            self.state, self.member_id = before\n",
        "            self.cancel_lock()\n",
        Hunt.SHARE_RECORDS,
    ),
    Mutant(
        458,
        "an acknowledgement is answered before it is stored",
        RUNNER,
        "        else:\n            self._store(answer, answered)\n",
        "        else:\n            answered(ErrorCode.NONE, None)\n            self._store(answer, None)\n",
        Hunt.SHARE_RECORDS,
    ),
    Mutant(
        459,
        "the share coordinator stores what an earlier leader of the partition sends",
        SHARD,
        "        if isinstance(request, (ReadState, WriteState)) and NO_EPOCH",
        "        if isinstance(request, ReadState) and NO_EPOCH",
        Hunt.SHARE_RECORDS,
    ),
    Mutant(
        460,
        "the share coordinator stores what belongs to the time before a reset",
        SHARD,
        "        if isinstance(request, (InitializeState, WriteState)) and",
        "        if isinstance(request, InitializeState) and",
        Hunt.SHARE_RECORDS,
    ),
    Mutant(
        461,
        "the epoch of a new leader is not stored",
        SHARD,
        "    if request.leader_epoch not in (NO_EPOCH, state.leader_epoch):\n",
        "    if request.leader_epoch == NO_EPOCH:\n",
        Hunt.SHARE_RECORDS,
    ),
    Mutant(
        462,
        "records that a state needs are pruned",
        SHARD,
        "        return min(entry.needed_offset for entry in self._entries.values())\n",
        "        return self.committed_end_offset\n",
        Hunt.SHARE_RECORDS,
    ),
    Mutant(
        463,
        "a snapshot lacks the update that caused it",
        SHARD,
        "    snapshot = updated_state(entry.state, update)._replace(\n",
        "    snapshot = entry.state._replace(\n",
        Hunt.SHARE_RECORDS,
    ),
    Mutant(
        464,
        "a share partition is loaded anew while the one before it still stores",
        RUNNER,
        "            former.call_when_stored(self._ask_state, is_loading=True)\n",
        "            self._ask_state()\n",
        Hunt.SHARE_RECORDS,
    ),
    Mutant(
        465,
        "the records of a member that has gone stay its own until their locks end",
        PARTITION,
        "            if whole is not None and whole.member_id == member_id and whole.state is ACQUIRED:\n",
        "            if False:\n",
        Hunt.SHARE_RECORDS,
    ),
    Mutant(
        466,
        "anybody may acknowledge what a member has acquired",
        PARTITION,
        "            if state.member_id != self._member_id:\n"
        '                return invalid_record_state_refusal("Member is not the owner of offset")\n',
        "",
        Hunt.SHARE_RECORDS,
    ),
    Mutant(
        467,
        "the start offset passes records whose acknowledgement is not stored yet",
        PARTITION,
        "                if whole.is_in_transition or not whole.is_final:\n",
        "                if not whole.is_final:\n",
        Hunt.SHARE_RECORDS,
    ),
    Mutant(
        468,
        "records of an aborted transaction are delivered",
        ACQUISITION,
        "    acquired = without_records_of(acquired, left_out)\n",
        "",
        Hunt.SHARE_RECORDS,
    ),
    Mutant(
        469,
        "an acknowledgement in the answer of the share coordinator that was not heard counts as undone",
        RUNNER,
        "            self.machine.finish_state_write(write, is_stored=is_stored)\n",
        "            self.machine.finish_state_write(write, is_stored=is_stored and len(writes) == 1)\n",
        Hunt.SHARE_RECORDS,
    ),
    Mutant(
        471,
        "a record is dead-lettered twice",
        RUNNER,
        "        is_idle = not self._letters\n        self._letters.extend(letters)\n",
        "        is_idle = not self._letters\n        self._letters.extend(letters * 2)\n",
        Hunt.SHARE_RECORDS,
    ),
    Mutant(
        472,
        "a rejected record is archived without a dead letter",
        PARTITION,
        "                if state.state is ARCHIVING:\n",
        "                if False:\n",
        Hunt.SHARE_RECORDS,
    ),
    Mutant(
        473,
        "what the leader before has not dead-lettered is left as it is",
        PARTITION,
        "                self._dead_letters.append(DeadLetter(first, last, count, is_rejected))\n",
        "                del is_rejected\n",
        Hunt.SHARE_RECORDS,
    ),
    Mutant(
        474,
        "a record that used up its deliveries as its lock ended has no dead letter",
        PARTITION,
        "            letters.append(DeadLetter(first, last, state.delivery_count, is_rejected=False))\n",
        "            pass\n",
        Hunt.SHARE_RECORDS,
    ),
    Mutant(
        475,
        "a run of dead letters that was split ends with its first one",
        RUNNER,
        "                self._store(self.machine.archive_dead_letter(letter), None)\n",
        "                first = letter._replace(last_offset=letter.first_offset)\n"
        "                self._store(self.machine.archive_dead_letter(first), None)\n",
        Hunt.SHARE_RECORDS,
    ),
    Mutant(
        470,
        "a renewed lock ends when it would have ended before",
        PARTITION,
        "        state.lock = self._partition.locks.add(first_offset, last_offset, self._locks_until_ms)\n",
        "        state.lock = self._partition.locks.add(first_offset, last_offset, self._locks_until_ms // 2)\n",
        Hunt.SHARE_RECORDS,
    ),
    Mutant(
        528,
        "writes that are stored together tell the start offset of the first one",
        RUNNER,
        "        last = writes[-1][0]\n",
        "        last = writes[0][0]\n",
        Hunt.SHARE_RECORDS,
    ),
    Mutant(
        533,
        "a deleted record whose lock expires becomes available",
        PARTITION,
        "        outcome = ARCHIVED if last < self.start_offset else AVAILABLE\n        state.release(",
        "        outcome = AVAILABLE\n        state.release(",
        Hunt.SHARE_RECORDS,
    ),
)
