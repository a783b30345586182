"""Raft over the metadata log (KIP-595, KIP-853, KIP-996): a state machine without I/O, with one module for each role.

    effects = raft.step(event, now_ms, wall_ms)        one thread, one event at a time, in the order of their happening

**Events in.** `Started` first, once, when the log and quorum-state are read. Then what the world does: a request of a
peer or a client (`RequestReceived`), the outcome of each `Send` (`ResponseReceived`, without a response if there was
none), the time of `next_deadline_ms()` (`DeadlineReached`), the end of a controller (`Resign`, `RaiseVersion`), a clean
stop (`Stop`). And what the shell, the code of the node that does the machine's I/O, has done: see the third column.

**Effects out.** They are carried out in the order of the list, before those of a later step.

| effect | the shell | and feeds |
|---|---|---|
| SaveElection | writes and syncs quorum-state; at most one is in progress | ElectionSaved |
| Append, AppendFetched | appends to the log, then syncs it | LogAppended at once, LogFlushed after the sync |
| TruncateLog | removes the end of the log | LogTruncated |
| WriteSnapshotPart | writes bytes of a fetched snapshot | |
| CompleteSnapshot | syncs it, replaces the log by it, loads it | SnapshotLoaded or SnapshotRefused |
| Send | sends a request, with the timeout | ResponseReceived, exactly once |
| Respond, RespondWithRecords, RespondWithSnapshot | answers the request of the token | |
| Lead, Follow | starts the controller of an epoch, or ends it | |
| Commit | applies the records before the high watermark | |
| Stopped | ends the process | |

**What the shell owes.** `LogView` shows the log after every effect that was carried out. What is reported as flushed or
saved is on the disk. A failed sync ends the process: it is never reported, and never retried. `now_ms` does not go
back. Appends of the controller are reported like those of the machine. After a crash the machine is made anew from the
log and quorum-state, and nothing else.

**What the machine owes.** No message leaves in an epoch, or with a vote, before that is durable (`outbox.py`). It never
blocks, and never fails: an event that a role cannot receive (`EVENTS` in `raft.py`) is a bug of the shell.
"""
