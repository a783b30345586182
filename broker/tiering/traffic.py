"""Counts of the traffic between the broker and remote storage for the metrics, in total and by topic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from enum import Enum


class RemoteCount(Enum):
    """The counts, with the names of Kafka's BrokerTopicMetrics without "PerSec"."""

    FETCH_BYTES = "RemoteFetchBytes"
    FETCH_REQUESTS = "RemoteFetchRequests"
    FETCH_ERRORS = "RemoteFetchErrors"
    COPY_BYTES = "RemoteCopyBytes"
    COPY_REQUESTS = "RemoteCopyRequests"
    COPY_ERRORS = "RemoteCopyErrors"
    DELETE_REQUESTS = "RemoteDeleteRequests"
    DELETE_ERRORS = "RemoteDeleteErrors"
    BUILD_REQUESTS = "BuildRemoteLogAuxStateRequests"
    BUILD_ERRORS = "BuildRemoteLogAuxStateErrors"


class RemoteTraffic:
    """Counts the traffic with remote storage. Its methods are called on the event loop."""

    def __init__(self) -> None:
        self.total: Counter[RemoteCount] = Counter()
        self.topics: dict[str, Counter[RemoteCount]] = {}

    def count(self, topic: str, what: RemoteCount, count: int = 1) -> None:
        self.total[what] += count
        self.topics.setdefault(topic, Counter())[what] += count

    def keep(self, is_here: Callable[[str], bool]) -> None:
        """Drop the topics that this broker does not have any more; the totals stay."""
        self.topics = {topic: counts for topic, counts in self.topics.items() if is_here(topic)}
