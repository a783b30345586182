"""A broker's life as it tells the controller: registered, unfenced, alive, released."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from moldau.broker.metadata.registration import BrokerIdentity, Registration, RegistrationRefused
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from moldau.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from moldau.testing.simulation.world import World

HEARTBEAT_MS = 2000
IDENTITY = BrokerIdentity(3, "cluster", b"i" * 16, None, (), (), (), previous_epoch=9)


class Controller:
    """Answers at once, or not at all."""

    def __init__(self) -> None:
        self.error = ErrorCode.NONE
        self.beats_until_unfenced = 0
        self.beats_until_released = 0
        self.is_silent = False
        self.answers_after_s = 0
        """The time after which a registration is answered."""
        self.registered: list[BrokerRegistrationRequest] = []
        self.beats: list[BrokerHeartbeatRequest] = []

    def submit(self, request: object, reply: Callable[..., None]) -> None:
        if self.is_silent:
            return
        if isinstance(request, BrokerRegistrationRequest):
            self.registered.append(request)
            if self.answers_after_s:
                asyncio.get_running_loop().call_later(self.answers_after_s, self._register, reply)
            else:
                self._register(reply)
            return
        assert isinstance(request, BrokerHeartbeatRequest)
        self.beats.append(request)
        self.beats_until_unfenced -= 1
        self.beats_until_released -= request.want_shut_down
        reply(
            BrokerHeartbeatResponse(
                error_code=self.error,
                is_caught_up=True,
                is_fenced=self.beats_until_unfenced > 0,
                should_shut_down=request.want_shut_down and self.beats_until_released <= 0,
            )
        )

    def _register(self, reply: Callable[..., None]) -> None:
        reply(BrokerRegistrationResponse(error_code=self.error, broker_epoch=42))


def live(story: Callable[[Registration, Controller], Awaitable[None]]) -> None:
    async def run() -> None:
        controller = Controller()
        await story(Registration(IDENTITY.node_id, lambda: IDENTITY, controller, HEARTBEAT_MS, lambda: 77), controller)

    with World(1) as world:
        world.run(run(), limit_s=1000)


def now_s() -> float:
    return asyncio.get_running_loop().time()


def test_registering_waits_until_the_broker_is_unfenced() -> None:
    async def story(registration: Registration, controller: Controller) -> None:
        controller.beats_until_unfenced = 3
        began = now_s()
        await registration.register(60_000)
        assert 0.05 < now_s() - began < 0.1, "sooner than a heartbeat interval"
        assert registration.epoch == 42 and not registration.is_fenced
        (request,) = controller.registered
        assert (request.broker_id, request.incarnation_id, request.previous_broker_epoch) == (3, b"i" * 16, 9)
        assert {(beat.broker_epoch, beat.current_metadata_offset) for beat in controller.beats} == {(42, 77)}

    live(story)


def test_a_broker_that_is_refused_does_not_start() -> None:
    async def story(registration: Registration, controller: Controller) -> None:
        controller.error = ErrorCode.INCONSISTENT_CLUSTER_ID
        with pytest.raises(RegistrationRefused, match="INCONSISTENT_CLUSTER_ID"):
            await registration.register(60_000)

    live(story)


def test_an_incarnation_before_that_counts_as_alive_is_waited_for() -> None:
    async def story(registration: Registration, controller: Controller) -> None:
        controller.error = ErrorCode.DUPLICATE_BROKER_REGISTRATION
        asyncio.get_running_loop().call_later(1, setattr, controller, "error", ErrorCode.NONE)
        began = now_s()
        await registration.register(60_000)
        assert 1 <= now_s() - began < 1.2

    live(story)


def test_a_node_id_that_stays_taken_is_refused() -> None:
    async def story(registration: Registration, controller: Controller) -> None:
        controller.error = ErrorCode.DUPLICATE_BROKER_REGISTRATION
        with pytest.raises(RegistrationRefused, match="DUPLICATE_BROKER_REGISTRATION"):
            await registration.register(5_000)
        assert 5 <= now_s() < 6

    live(story)


def test_a_controller_that_does_not_answer_is_waited_for_until_the_timeout_and_no_longer() -> None:
    async def story(registration: Registration, controller: Controller) -> None:
        controller.error = ErrorCode.REQUEST_TIMED_OUT
        controller.answers_after_s = 30
        asyncio.get_running_loop().call_later(35, setattr, controller, "error", ErrorCode.NONE)
        began = now_s()
        with pytest.raises(RegistrationRefused, match="REQUEST_TIMED_OUT"):
            await registration.register(45_000)
        assert now_s() - began == pytest.approx(45)
        controller.error = ErrorCode.REQUEST_TIMED_OUT
        asyncio.get_running_loop().call_later(35, setattr, controller, "error", ErrorCode.NONE)
        await registration.register(95_000)
        assert registration.epoch == 42

    live(story)


def test_it_says_that_it_is_alive_and_survives_a_refusal_of_that() -> None:
    async def story(registration: Registration, controller: Controller) -> None:
        await registration.register(60_000)
        alive = asyncio.ensure_future(registration.keep_alive())
        await asyncio.sleep(5)
        controller.error = ErrorCode.STALE_BROKER_EPOCH
        await asyncio.sleep(5)
        assert not alive.done() and not registration.is_fenced
        assert len(controller.beats) == 5, "one to be unfenced, then one every two seconds"
        alive.cancel()

    live(story)


def test_it_asks_until_it_is_released() -> None:
    async def story(registration: Registration, controller: Controller) -> None:
        await registration.register(60_000)
        controller.beats_until_released = 4
        began = now_s()
        await registration.shut_down(10_000)
        assert [beat.want_shut_down for beat in controller.beats[-4:]] == [True] * 4
        assert now_s() - began < 1

    live(story)


def test_once_it_leaves_it_never_asks_to_serve_again() -> None:
    """One heartbeat that asked for it after the release had it unfenced, and elected, while it stopped."""

    async def story(registration: Registration, controller: Controller) -> None:
        await registration.register(60_000)
        alive = asyncio.ensure_future(registration.keep_alive())
        await registration.shut_down(10_000)
        left = len(controller.beats)
        await registration.report_failed_directory(b"d" * 16)
        await asyncio.sleep(10)
        assert [beat.want_shut_down for beat in controller.beats[left:]] == [True], "of the directory alone"
        assert alive.done()

    live(story)


@pytest.mark.parametrize("is_silent", [True, False])
def test_a_controller_that_does_not_release_it_is_not_waited_for_longer_than_that(is_silent: bool) -> None:
    async def story(registration: Registration, controller: Controller) -> None:
        await registration.register(60_000)
        controller.is_silent = is_silent
        controller.beats_until_released = 1_000_000
        began = now_s()
        await registration.shut_down(10_000)
        patience_s = 3 if is_silent else 10
        assert patience_s <= now_s() - began < patience_s + 0.1

    live(story)
