"""The faults in force on one node, and a timeline of requests and faults."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Final, NamedTuple

from moldau.broker.faults.clock import MovableClock
from moldau.broker.faults.fault import Apis, Fault, FaultSubject, object_of
from moldau.broker.faults.messages import InvalidFault

FAULTS_MAX: Final = 1_000
"""The most faults in force. Adding one more raises `InvalidFault`."""
TIMELINE_MAX: Final = 20_000
"""The most entries of the timeline. A further entry replaces the oldest one."""
TIMELINE_LENGTH_MAX: Final = 8 << 20
"""The most characters of the timeline. Further entries replace the oldest ones."""
TEXT_LENGTH_MAX: Final = 2_048
"""The most characters of one entry; the rest is left out."""
FAULTS_LENGTH_MAX: Final = 32 << 20
"""The most characters of the JSON of all faults in force. Adding one more fault raises `InvalidFault`."""


class TimelineEntry(NamedTuple):
    number: int
    at_ms: int
    """The time, in ms since 1970."""
    what: str
    """The kind of the entry, such as `request`, `answer`, `fault begins`, `fault meets`, `fault ends`, `clock`."""
    text: str

    def as_json(self) -> dict[str, object]:
        return self._asdict()


class Faults:
    """The faults of a node. All methods are called on the event loop, except that `FaultyFiles` calls `fault_for` from
    any thread, one call at a time."""

    def __init__(self, apis: Apis, now_ms: Callable[[], int]) -> None:
        """`apis` has the response classes of the APIs that the node serves. `now_ms` is the wall clock, for the
        timeline.
        """
        self._apis = apis
        self._now_ms = now_ms
        self.clock = MovableClock()
        self._faults: dict[int, Fault] = {}
        self._lengths: dict[int, int] = {}
        """The number of characters of each fault's JSON, by the id of the fault."""
        self._next_id = 1
        self._timeline: deque[TimelineEntry] = deque()
        self._timeline_length = 0
        self._numbers = count(1)
        self._held: list[tuple[Fault, Callable[[], None]]] = []
        """The requests that are held: the fault that holds each, and the function that carries the request out."""

    # Adding and ending

    def add(self, described: object) -> Fault:
        """Put a fault in force. `described` is its JSON, as the control interface takes it. Raises `InvalidFault`."""
        (fault,) = self._put_in_force([described])
        return fault

    def add_all(self, described: object) -> list[Fault]:
        """Put the faults of a script in force: {"faults": [...]}. If one of them is invalid, none is put in force.
        Raises `InvalidFault`.
        """
        listed = object_of(described, "the script").get("faults")
        if not isinstance(listed, list):
            raise InvalidFault("the script has no list of faults")
        return self._put_in_force(listed)

    def _put_in_force(self, described: list[object]) -> list[Fault]:
        """Put all of these faults in force, or none."""
        faults = [Fault.read(self._next_id + i, each, self._apis) for i, each in enumerate(described)]
        if len(self._faults) + len(faults) > FAULTS_MAX:
            raise InvalidFault(f"at most {FAULTS_MAX} faults are in force; end some first")
        lengths = {fault.id: len(repr(fault.source)) for fault in faults}
        if sum(self._lengths.values()) + sum(lengths.values()) > FAULTS_LENGTH_MAX:
            raise InvalidFault(
                f"the faults in force are described by at most {FAULTS_LENGTH_MAX} characters; end some first"
            )
        self._next_id += len(faults)
        self._lengths |= lengths
        for fault in faults:
            self._faults[fault.id] = fault
            self.note("fault begins", f"{fault.name}: {fault.source}")
        return faults

    def end(self, fault_id: int) -> Fault | None:
        """End a fault, and carry out the requests that it holds. Returns None if no fault with this id is in force."""
        fault = self._faults.pop(fault_id, None)
        self._lengths.pop(fault_id, None)
        if fault is not None:
            self.note("fault ends", fault.name)
            if fault.action.hold:
                self._release(lambda held: held is fault)
        return fault

    def end_all(self) -> None:
        for fault_id in tuple(self._faults):
            self.end(fault_id)

    @property
    def in_force(self) -> list[Fault]:
        """The faults in force, the oldest first."""
        return list(self._faults.values())

    @property
    def slow_or_failing_files(self) -> bool:
        """Whether a fault in force is about files."""
        return any(fault.scope.disk is not None for fault in self._faults.values())

    # Meeting

    def fault_for(self, subject: FaultSubject) -> Fault | None:
        """Return the first fault that is applied to a request or a file operation; None if there is none. If the fault
        will not be applied again, it ends, unless it holds requests.
        """
        for fault in tuple(self._faults.values()):
            if not fault.applies_to(subject):
                continue
            self.note("fault meets", f"{fault.name}: {text_of(subject)}")
            if fault.is_used_up and not fault.action.hold:
                self.end(fault.id)
            return fault
        return None

    def hold(self, fault: Fault, handle: Callable[[], None]) -> None:
        """Hold a request until the fault releases it. Then `handle` is called, which carries the request out."""
        self._held.append((fault, handle))

    def drop(self, handle: Callable[[], None]) -> None:
        """Forget a held request, because its connection is closed. `handle` is the function given to `hold`."""
        self._held = [(fault, each) for fault, each in self._held if each is not handle]

    def note_arrival(self, subject: FaultSubject) -> None:
        """Note that a request has arrived. If it is in the `until` scope of a fault, release the requests that the
        fault holds.
        """
        self._release(lambda fault: (until := fault.action.until) is not None and until.has(subject))
        for fault in tuple(self._faults.values()):
            if fault.action.hold and fault.is_used_up and not any(held is fault for held, _ in self._held):
                self.end(fault.id)

    def _release(self, goes_on: Callable[[Fault], bool]) -> None:
        going = [(fault, handle) for fault, handle in self._held if goes_on(fault)]
        self._held = [(fault, handle) for fault, handle in self._held if not goes_on(fault)]
        for _, handle in going:
            handle()

    # The timeline

    def note(self, what: str, text: str) -> None:
        """Add an entry to the timeline."""
        if len(text) > TEXT_LENGTH_MAX:
            text = f"{text[:TEXT_LENGTH_MAX]}... ({len(text)} characters)"
        self._timeline.append(TimelineEntry(next(self._numbers), self._now_ms(), what, text))
        self._timeline_length += len(text)
        while len(self._timeline) > TIMELINE_MAX or self._timeline_length > TIMELINE_LENGTH_MAX:
            self._timeline_length -= len(self._timeline.popleft().text)

    def timeline(self, after: int = 0) -> list[TimelineEntry]:
        """The entries of the timeline with numbers above `after`."""
        return [entry for entry in self._timeline if entry.number > after]


def text_of(subject: FaultSubject) -> str:
    """Describe a request or a file operation in one line."""
    if subject.disk:
        return f"{subject.disk} {subject.path}"
    sender = f"node {subject.from_node}" if subject.from_node >= 0 else f"client {subject.client_id!r}"
    words = [f"{subject.api} of {sender}"]
    for topic, partitions in sorted(subject.topics.items()):
        words.append(topic + (f" {','.join(map(str, sorted(partitions)))}" if partitions else ""))
    words += [f"group {each}" for each in sorted(subject.groups)]
    words += [f"transactional id {each}" for each in sorted(subject.transactional_ids)]
    return ", ".join(words)
