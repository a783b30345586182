"""Who is served when requests take longer than an iteration has time for: sans I/O, by a clock of the test."""

from __future__ import annotations

import pytest

from moldau.broker.network.turns import BUDGET_NS, QUANTUM_NS, ConnectionRank, TurnScheduler
from tests.support.purgatories import ManualLoop
from tests.support.request_clocks import request_clock

US = 1_000
REQUEST_NS = 100 * US
HONEST_NS = 500 * US
"""A produce takes so long in plain Python."""


class Loop:
    """A loop whose time passes by requests alone."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.iterations = 0
        self.soon = ManualLoop()
        self.turns = TurnScheduler(request_clock(time_ns=lambda: self.now_ns), self.soon.call_soon)

    def iterate(self) -> int:
        """Run an iteration, and return how long it took."""
        began_ns = self.now_ns
        self.iterations += 1
        self.soon.iterate()
        return self.now_ns - began_ns


class Client:
    """A connection with requests that wait."""

    def __init__(self, loop: Loop, rank: ConnectionRank, left: int = 1, request_ns: int = REQUEST_NS) -> None:
        self._loop = loop
        self.rank = rank
        self.left = left
        self._request_ns = request_ns
        self.served_ns = 0
        self.turns = 0
        self.iteration = 0
        """That of its last turn."""
        loop.turns.wait(self, rank)

    def take_turn(self, until_ns: int) -> None:
        self.turns += 1
        self.iteration = self._loop.iterations
        while self.left:
            self.left -= 1
            self.served_ns += self._request_ns
            self._loop.now_ns += self._request_ns
            if self._loop.now_ns >= until_ns:
                break
        if self.left:
            self._loop.turns.wait(self, self.rank)


def test_what_takes_less_than_the_budget_waits_for_nothing_and_costs_no_callback() -> None:
    loop = Loop()
    for _ in range(3):
        assert loop.turns.end_ns(loop.now_ns) > loop.now_ns and not loop.turns.is_spent
        began_ns = loop.turns._clock.read()
        loop.now_ns += BUDGET_NS // 4
        loop.turns._clock.read()
        loop.turns.handled(began_ns)
    assert not loop.soon.ready and not loop.turns.is_spent
    began_ns, loop.now_ns = loop.now_ns, loop.now_ns + BUDGET_NS // 4
    loop.turns._clock.read()
    loop.turns.handled(began_ns)
    assert loop.turns.is_spent and len(loop.soon.ready) == 1
    loop.iterate()
    assert not loop.turns.is_spent and not loop.soon.ready
    assert loop.turns.end_ns(loop.now_ns) == loop.now_ns + BUDGET_NS


def test_an_honest_request_waits_for_an_iteration_beside_a_thousand_that_pipeline() -> None:
    loop = Loop()
    storm = [Client(loop, ConnectionRank.BACKLOG, 200) for _ in range(1_000)]
    for _ in range(100):
        honest = Client(loop, ConnectionRank.SINGLE, 1, HONEST_NS)
        loop.iterate()
        assert honest.left == 0
    assert sum(each.turns for each in storm) > 300


def test_many_honest_requests_at_once_are_served_in_a_few_iterations() -> None:
    loop = Loop()
    for _ in range(1_000):
        Client(loop, ConnectionRank.BACKLOG, 200)
    honest = [Client(loop, ConnectionRank.SINGLE, 1, HONEST_NS) for _ in range(10)]
    iterations = 0
    while any(each.left for each in honest):
        loop.iterate()
        iterations += 1
    assert iterations <= 4
    assert [each.iteration for each in honest] == sorted(each.iteration for each in honest)


@pytest.mark.parametrize("rank", [ConnectionRank.BACKLOG, ConnectionRank.LOGIN_BACKLOG])
def test_backlogs_are_served_for_the_same_time_however_dear_their_requests(rank: ConnectionRank) -> None:
    loop = Loop()
    cheap = [Client(loop, rank, 1 << 20, 20 * US) for _ in range(20)]
    dear = [Client(loop, rank, 1 << 20, QUANTUM_NS) for _ in range(20)]
    for _ in range(1_000):
        loop.iterate()
    times = [each.served_ns for each in cheap + dear]
    assert max(times) <= 1.1 * min(times) and min(times) > 0


def test_an_iteration_takes_little_more_than_the_budget() -> None:
    loop = Loop()
    for rank in ConnectionRank:
        for _ in range(100):
            Client(loop, rank, 50)
    for _ in range(50):
        assert loop.iterate() <= BUDGET_NS + len(ConnectionRank) * max(QUANTUM_NS, REQUEST_NS)


def test_every_rank_goes_on_beside_full_ones_above_it() -> None:
    loop = Loop()
    served = dict.fromkeys(ConnectionRank, 0)
    for _ in range(20):
        clients = [Client(loop, rank) for rank in ConnectionRank for _ in range(100)]
        loop.iterate()
        for each in clients:
            served[each.rank] += each.turns
        loop.turns._queues[:] = [type(queue)() for queue in loop.turns._queues]
    assert [served[rank] // 20 for rank in ConnectionRank] == [8, 6, 4, 1, 1]


def test_nodes_come_first_and_who_has_not_logged_in_last() -> None:
    loop = Loop()
    order: list[ConnectionRank] = []

    class Noted(Client):
        def take_turn(self, until_ns: int) -> None:
            order.append(self.rank)
            super().take_turn(until_ns)

    for rank in reversed(ConnectionRank):
        Noted(loop, rank)
    loop.iterate()
    assert order == list(ConnectionRank)


def test_a_single_backlog_has_the_whole_budget_in_one_turn() -> None:
    loop = Loop()
    alone = Client(loop, ConnectionRank.BACKLOG, 1_000)
    assert loop.iterate() == BUDGET_NS and alone.turns == 1


def test_who_leaves_while_it_waits_costs_nothing() -> None:
    loop = Loop()
    gone = Client(loop, ConnectionRank.BACKLOG, 0)
    loop.iterate()
    assert gone.turns == 1 and not loop.soon.ready and not loop.turns.is_spent and not loop.turns.waiting_count
