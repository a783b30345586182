"""The quota of controller mutations: the partitions that a client may create and delete per second (KIP-599).

strict       versions with the error THROTTLING_QUOTA_EXCEEDED: topics are refused while the balance is negative
permissive   older versions: all is done, and the connection is muted until the balance is not negative

A client spends tokens of its bucket at once, and the bucket refills at the client's rate. The capacity is the rate
times the length of all windows. A client may overdraw the bucket once: the balance is then negative, and the client
waits until it is not.
"""

from __future__ import annotations

from typing import Final, Protocol

from moldau.security.principal import Requester
from moldau.security.quotas.entity import CONTROLLER_MUTATION_RATE
from moldau.security.quotas.limits import QuotaLimits, QuotaTags
from moldau.security.quotas.sampled_rate import QuotaWindows, rounded_throttle_ms

BUCKETS_MAX: Final = 10_000
"""The maximum number of buckets that are kept; beyond it the least recently used one is dropped."""


class Mutations(Protocol):
    """The mutations that one request may make under a quota of controller mutations."""

    def spend(self, partitions: int) -> bool:
        """Count partitions that are about to be created or deleted. Returns False if the quota refuses them."""

    @property
    def throttle_ms(self) -> int:
        """The time (ms) for which the client is throttled because of the mutations that this request made, or tried to
        make."""


class UnlimitedMutations:
    """The mutations of a request without a quota: all are allowed, and none leads to a throttle time."""

    throttle_ms: Final = 0

    def spend(self, partitions: int) -> bool:
        return True


UNLIMITED_MUTATIONS: Final = UnlimitedMutations()


class LimitedMutations:
    """The mutations of a request under a quota, which spend tokens of a bucket."""

    def __init__(self, bucket: TokenBucket, now_ms: int, *, is_strict: bool) -> None:
        self._bucket = bucket
        self._now_ms = now_ms
        self._is_strict = is_strict
        self._is_refused = False

    def spend(self, partitions: int) -> bool:
        if not self._is_strict:
            self._bucket.spend(partitions, self._now_ms)
            return True
        if self._bucket.try_to_spend(partitions, self._now_ms):
            return True
        self._is_refused = True
        return False

    @property
    def throttle_ms(self) -> int:
        """The throttle time (ms). A strict client without a refusal is not throttled, although it may have overdrawn
        the bucket.
        """
        return 0 if self._is_strict and not self._is_refused else self._bucket.throttle_ms(self._now_ms)


class MutationQuotas:
    """The token buckets of a controller, one for each set of clients with a common quota. They are full at the
    beginning of the controller's term.
    """

    def __init__(self, windows: QuotaWindows) -> None:
        self.limits = QuotaLimits()
        self._windows = windows
        self._buckets: dict[QuotaTags, TokenBucket] = {}
        """The buckets, by the tags of the clients that share them. The least recently used bucket is first."""

    def mutations_of(self, requester: Requester, now_ms: int) -> Mutations:
        """The mutations that a request of `requester` may make."""
        if requester.is_strict is None:
            return UNLIMITED_MUTATIONS
        limit = self.limits.limit_of_client(CONTROLLER_MUTATION_RATE, requester.principal.name, requester.client_id)
        if limit is None:
            return UNLIMITED_MUTATIONS
        bucket = self._buckets.pop(limit.tags, None)
        if bucket is None:
            if len(self._buckets) >= BUCKETS_MAX:
                del self._buckets[next(iter(self._buckets))]
            bucket = TokenBucket(limit.value, self._windows, now_ms)
        else:
            bucket.change_rate(limit.value, now_ms)
        self._buckets[limit.tags] = bucket
        return LimitedMutations(bucket, now_ms, is_strict=requester.is_strict)

    def tokens(self, now_ms: int) -> dict[QuotaTags, float]:
        """The number of tokens in each bucket, for metrics."""
        return {tags: bucket.tokens(now_ms) for tags, bucket in self._buckets.items()}


class TokenBucket:
    """A token bucket, full at first. Each call must have a time (ms) that is not before that of the previous call."""

    __slots__ = ("_rate", "_tokens", "_updated_ms", "_windows")

    def __init__(self, rate: float, windows: QuotaWindows, now_ms: int) -> None:
        """`rate` is in tokens per second."""
        self._rate = rate
        self._windows = windows
        self._updated_ms = now_ms
        self._tokens = self.capacity

    @property
    def capacity(self) -> float:
        return self._rate * self._windows.kept * self._windows.size_ms / 1000

    def tokens(self, now_ms: int) -> float:
        """The number of tokens at this time; negative after an overdraft."""
        self._tokens = min(self.capacity, self._tokens + self._rate * (now_ms - self._updated_ms) / 1000)
        self._updated_ms = now_ms
        return self._tokens

    def change_rate(self, rate: float, now_ms: int) -> None:
        """Set another rate, because the quota has changed. If there are more tokens than the new capacity, they are
        reduced to it; a negative balance is not changed.
        """
        self.tokens(now_ms)
        self._rate = rate
        self._tokens = min(self._tokens, self.capacity)

    def spend(self, count: float, now_ms: int) -> None:
        """Spend tokens, even if the balance becomes negative."""
        self._tokens = min(self.capacity, self.tokens(now_ms) - count)

    def try_to_spend(self, count: float, now_ms: int) -> bool:
        """Spend tokens unless the balance is negative. Returns whether they were spent."""
        if self.tokens(now_ms) < 0:
            return False
        self.spend(count, now_ms)
        return True

    def throttle_ms(self, now_ms: int) -> int:
        """The time (ms) until the balance is not negative any more; 0 if it is not negative."""
        tokens = self.tokens(now_ms)
        return rounded_throttle_ms(-tokens / self._rate * 1000) if tokens < 0 else 0
