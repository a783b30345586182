"""The time of one request with a long list, with the same bytes at each broker, for a super user and for a user without
rights.

The lists are those of `tests/limits/lists.py`: every list of every request that a client may send to a broker, at
100,000 elements. Both brokers have a SASL PLAIN listener and the StandardAuthorizer. Each request is sent once to warm
a broker up, and then in turns.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from typing import Final, NamedTuple

from bench.figures import OURS, PEER, Figure
from bench.frames import request_frame
from bench.groups import RunForm
from bench.rows import LONG_LIST, LONG_LIST_USERS, long_lists_row
from bench.subjects import Bench, RunningBroker, remove_server
from tests.limits.lists import SUPER_USER, USER, LongList, Sender, login_settings, long_lists, long_request

PATIENCE_S: Final = 40.0
"""The timeout of a reply."""
ONCE_S: Final = 5.0
"""A request that takes longer than this (s) is not repeated."""
USER_LABELS: Final = dict(zip((USER, SUPER_USER), LONG_LIST_USERS, strict=True))


class ListAnswer(NamedTuple):
    """The result of one request: its duration, and the size of the reply."""

    took_s: float
    reply_size: int
    """The size of the reply in bytes; -1 if the broker closed the connection, -2 if no reply came."""

    @property
    def outcome_text(self) -> str:
        """A note about a reply that is missing or refused; empty for a normal reply."""
        return {-1: "closes the connection", -2: f"does not reply within {PATIENCE_S:.0f} s"}.get(self.reply_size, "")


class LoginBroker:
    """A broker, with the port on which users log in."""

    def __init__(self, name: str, port: int) -> None:
        self.name = name
        self.port = port

    def ask(self, user: str, frame: bytes) -> ListAnswer:
        """Log in, and send the request. The login is not part of the measured time, but of the timeout."""
        with suppress(TimeoutError), closing(Sender(self.port, user, PATIENCE_S)) as sender:
            began = time.perf_counter()
            reply = sender.exchange(frame)
            return ListAnswer(time.perf_counter() - began, -1 if reply is None else len(reply))
        return ListAnswer(PATIENCE_S, -2)


def measure(bench: Bench, form: RunForm) -> list[Figure]:
    """Measure the lists whose names contain `--case`, or those of the user that it names."""
    with ExitStack() as stack:
        brokers = []
        for name in bench.names:
            server = bench.new_server(name)
            login_port = bench.free_pair()
            server.set(dict(line.split("=", 1) for line in login_settings(server.port, server.port + 1, login_port)))
            server.set({"advertised.listeners": f"PLAINTEXT://127.0.0.1:{server.port},LOGIN://127.0.0.1:{login_port}"})
            server.format()
            stack.callback(remove_server, server)
            stack.enter_context(RunningBroker(server)).connect().close()
            brokers.append(LoginBroker(name, login_port))
        cases = [(user, each) for user in (USER, SUPER_USER) for each in long_lists()]
        wanted = [case for case in cases if form.case in f"{case[1].name}, {USER_LABELS[case[0]]}"]
        figures = [_measured(brokers, user, each, form.rounds) for user, each in wanted]
    return figures if form.case else [*figures, *figures_by_user(figures)]


def figures_by_user(figures: Sequence[Figure]) -> Iterator[Figure]:
    """Make one figure for each user, with the times of all lists beside those of Apache Kafka."""
    for who in USER_LABELS.values():
        own = [each for each in figures if each.name.startswith(LONG_LIST) and each.name.endswith(f", {who}")]
        slower = sum((each.ratio or 0) > 2 for each in own)
        note = f"{slower} of {len(own)} lists take more than twice the time; docs/long-lists.md has each"
        times = {OURS: [each.ours for each in own], PEER: [each.peer or 0.0 for each in own]}
        yield Figure(long_lists_row(who), "ms", times, note=note)


def _measured(brokers: list[LoginBroker], user: str, each: LongList, rounds: int) -> Figure:
    frame = request_frame(long_request(each), each.version)
    warm = {broker.name: broker.ask(user, frame) for broker in brokers}
    times: dict[str, list[float]] = {broker.name: [] for broker in brokers}
    if max(answer.took_s for answer in warm.values()) > ONCE_S:
        times = {name: [1000 * answer.took_s] for name, answer in warm.items()}
    else:
        for _ in range(rounds):
            for broker in brokers:
                times[broker.name].append(1000 * broker.ask(user, frame).took_s)
    figure = Figure(f"{LONG_LIST} {each.name}, {USER_LABELS[user]}", "ms", times, note=_note(warm))
    print(f"  {figure.name}: {figure.ours:.0f} ms, {figure.peer or 0:.0f} ms. {figure.note}", flush=True)
    return figure


def _note(warm: dict[str, ListAnswer]) -> str:
    names = {OURS: "Moldau", PEER: "Apache Kafka"}
    told = [f"{names[name]} {answer.outcome_text}" for name, answer in warm.items() if answer.outcome_text]
    sizes = [answer.reply_size for answer in warm.values()]
    if not told and max(sizes) > 1.2 * min(sizes) + 100:
        told = [f"{names[name]} replies with {answer.reply_size:,} bytes" for name, answer in warm.items()]
    return ", ".join(told)
