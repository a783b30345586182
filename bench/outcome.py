"""What a load took, whichever loop ran it."""

from __future__ import annotations

from array import array
from typing import NamedTuple


class LoadFailed(Exception):
    """A reply with an error, a closed connection or silence: there is nothing to measure."""


class Outcome(NamedTuple):
    """Latencies run from the sending of a request to the reading of the end of its reply; in an open loop from the
    time that was set for the sending."""

    requests: int
    seconds: float
    sent_size: int
    received_size: int
    latencies_ns: array[int]
    """In ascending order."""
    generator_cpu_s: float

    @property
    def generator_share(self) -> float:
        """Of one core, what the generator itself used."""
        return self.generator_cpu_s / self.seconds

    def latency_ms(self, share: float) -> float:
        """A percentile: 0.99 is the latency that one request in a hundred exceeds."""
        return self.latencies_ns[min(len(self.latencies_ns) - 1, int(share * len(self.latencies_ns)))] / 1e6
