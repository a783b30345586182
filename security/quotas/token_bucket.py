"""The bucket of controller mutations (KIP-599): a client spends tokens at once, and the bucket refills at the client's
rate.

The capacity is the rate times the length of all windows. A client may overdraw the bucket once: the balance is then
negative, and the client waits until it is not.
"""

from __future__ import annotations

from moldau.security.quotas.sampled_rate import Windows, round_half_up


class TokenBucket:
    """A bucket, full at first. Times must not go back."""

    __slots__ = ("_rate", "_tokens", "_updated_ms", "_windows")

    def __init__(self, rate: float, windows: Windows, now_ms: int) -> None:
        """`rate`: tokens per second."""
        self._rate = rate
        self._windows = windows
        self._updated_ms = now_ms
        self._tokens = self.capacity

    @property
    def capacity(self) -> float:
        return self._rate * self._windows.kept * self._windows.size_ms / 1000

    def tokens(self, now_ms: int) -> float:
        """The balance in tokens; negative after an overdraft."""
        self._tokens = min(self.capacity, self._tokens + self._rate * (now_ms - self._updated_ms) / 1000)
        self._updated_ms = now_ms
        return self._tokens

    def change_rate(self, rate: float, now_ms: int) -> None:
        """Apply a changed quota. A negative balance stays."""
        self.tokens(now_ms)
        self._rate = rate
        self._tokens = min(self._tokens, self.capacity)

    def spend(self, count: float, now_ms: int) -> None:
        """Spend tokens, even if the balance becomes negative."""
        self._tokens = min(self.capacity, self.tokens(now_ms) - count)

    def try_to_spend(self, count: float, now_ms: int) -> bool:
        """Spend tokens unless the balance is negative: for requests whose version allows a refusal."""
        if self.tokens(now_ms) < 0:
            return False
        self.spend(count, now_ms)
        return True

    def throttle_ms(self, now_ms: int) -> int:
        """The time (ms) until the balance is not negative any more."""
        tokens = self.tokens(now_ms)
        return round_half_up(-tokens / self._rate * 1000) if tokens < 0 else 0
