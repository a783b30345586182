"""The outcome of a load, for both loops of the generator."""

from __future__ import annotations

from array import array
from typing import NamedTuple


class LoadFailed(Exception):
    """Raised if a load cannot be measured: a reply has an error, a connection is closed, or no reply comes."""


class Outcome(NamedTuple):
    """The result of a load. A latency begins when its request is sent, in an open loop when the request is due, and
    ends when the end of the reply is read.
    """

    requests: int
    seconds: float
    sent_size: int
    received_size: int
    latencies_ns: array[int]
    """The latencies in ascending order."""
    generator_cpu_s: float

    @property
    def generator_share(self) -> float:
        """The CPU time of the generator itself, as a share of one core."""
        return self.generator_cpu_s / self.seconds

    def latency_ms(self, share: float) -> float:
        """A percentile of the latencies: `share` 0.99 gives the latency that one request in a hundred exceeds."""
        return self.latencies_ns[min(len(self.latencies_ns) - 1, int(share * len(self.latencies_ns)))] / 1e6
