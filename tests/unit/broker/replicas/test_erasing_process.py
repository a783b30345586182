"""One worker process serves the erase requests that follow each other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from moldau.broker.replicas import erasing_process
from moldau.broker.replicas.erasing_process import ErasingProcess
from moldau.broker.runtime.environment import LocalEnvironment
from moldau.protocol.erase_orders import Run, packed_runs
from moldau.storage.compaction.request import LogChanged
from moldau.storage.erasure.erasing import EraseRequest, SegmentErased, erase_request
from moldau.storage.files.local_files import LocalFiles
from moldau.storage.log.log import Log
from moldau.storage.log_config import LogConfig
from tests.unit.storage.compaction.histories import NOW_MS, send


class CountedEnvironment(LocalEnvironment):
    """An environment that counts the processes that it starts."""

    def __init__(self) -> None:
        super().__init__(asyncio.get_running_loop())
        self.processes: list[Any] = []

    def in_process(self, *arguments: Any) -> Any:
        self.processes.append(super().in_process(*arguments))
        return self.processes[-1]


def request_for(directory: Path, offset: int) -> EraseRequest:
    """The request to erase one record of a log with three segments of one record each."""
    log = Log.open(LocalFiles(), str(directory), LogConfig(), now_ms=NOW_MS, clean_shutdown=True)
    while log.end_offset < 3:
        send(log, ("k", "v"))
        log.roll(NOW_MS)
    log.flush(NOW_MS)
    request = erase_request(log, [packed_runs([Run(offset, offset)])], offset, offset, 4096)
    log.close(NOW_MS, clean=True)
    return request


def serve(story: Callable[[CountedEnvironment, ErasingProcess], Any]) -> None:
    async def run() -> None:
        environment = CountedEnvironment()
        process = ErasingProcess(environment)
        try:
            await story(environment, process)
        finally:
            process.close()
            for each in environment.processes:
                await each._process.wait()

    asyncio.run(run())


async def erased(process: ErasingProcess, request: EraseRequest) -> list[int]:
    """The base offsets of the segments that were rewritten."""
    found: list[int] = []

    async def on_event(event: object) -> None:
        if isinstance(event, SegmentErased):
            found.append(event.cleaned.base_offset)

    await process.carry_out(request, on_event)
    return found


def test_requests_that_follow_each_other_share_a_process(tmp_path: Path) -> None:
    async def story(environment: CountedEnvironment, process: ErasingProcess) -> None:
        assert await erased(process, request_for(tmp_path / "a-0", 0)) == [0]
        process.close_if_idle()  # It was used since the last time.
        assert await erased(process, request_for(tmp_path / "b-0", 2)) == [2]
        assert len(environment.processes) == 1
        process.close_if_idle()
        process.close_if_idle()
        assert await erased(process, request_for(tmp_path / "a-0", 1)) == [1]
        assert len(environment.processes) == 2

    serve(story)


def test_after_an_error_the_next_request_gets_another_process(tmp_path: Path) -> None:
    async def story(environment: CountedEnvironment, process: ErasingProcess) -> None:
        request = request_for(tmp_path / "a-0", 0)
        next((tmp_path / "a-0").glob("*0.log")).write_bytes(b"")
        with pytest.raises(LogChanged):
            await erased(process, request)
        assert await erased(process, request_for(tmp_path / "b-0", 0)) == [0]
        assert len(environment.processes) == 2

    serve(story)


def test_a_process_is_replaced_after_many_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(erasing_process, "REQUESTS_MAX", 1)

    async def story(environment: CountedEnvironment, process: ErasingProcess) -> None:
        for offset in range(2):
            assert await erased(process, request_for(tmp_path / "a-0", offset)) == [offset]
        assert len(environment.processes) == 2

    serve(story)
