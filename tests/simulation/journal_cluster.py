"""A toy with everything a broker does to the world: journals on two hosts, a client on a third, and a nemesis.

A journal appends each number it receives to a file, syncs in a thread, answers. The client counts a number as
acknowledged when the answer is there, and sends it again on a new connection when it does not come. Run as a program it
prints the digest of one seed.
"""

from __future__ import annotations

import asyncio
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from zlib import crc32

from moldau.testing.simulation.life import NANOSECONDS
from moldau.testing.simulation.world import Host, SimulatedEnvironment, World

PORT = 9092
LOG = "/data/log"
RECORD = struct.Struct(">II")  # number, CRC of the number
JOURNALS = ("journal-1", "journal-2")


def read_numbers(content: bytes) -> list[int]:
    """The valid prefix of a journal."""
    numbers: list[int] = []
    for position in range(0, len(content) - RECORD.size + 1, RECORD.size):
        number, crc = RECORD.unpack_from(content, position)
        if crc != crc32(number.to_bytes(4)):
            break
        numbers.append(number)
    return numbers


class Mistake(Enum):
    """What a journal can be told to do wrong, so that the check can be checked."""

    NO_SYNC = auto()  # answers at once
    TRUSTED_CACHE = auto()  # starts from what the page cache shows, which a failed sync has left behind
    CONCURRENT_SYNCS = auto()  # one fails, the next says success although the pages are gone, and is answered


class JournalConnection(asyncio.BufferedProtocol):
    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.buffer = bytearray(64)
        self.filled = 0
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self.buffer)[self.filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self.filled += nbytes
        whole = self.filled // 4 * 4
        for position in range(0, whole, 4):
            self.journal.receive(int.from_bytes(self.buffer[position : position + 4]), self)
        self.buffer[: self.filled - whole] = self.buffer[whole : self.filled]
        self.filled -= whole

    def answer(self, number: int) -> None:
        if self.transport is not None:
            self.transport.write(number.to_bytes(4))

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None


class Journal:
    def __init__(self, environment: SimulatedEnvironment, mistake: Mistake | None) -> None:
        self.environment = environment
        self.mistake = mistake
        self.tasks: set[asyncio.Task[None]] = set()
        self.unsynced: list[tuple[int, JournalConnection]] = []
        self.appended = asyncio.Event()
        fs = environment.fs
        fs.make_directories("/data")
        self.file = fs.open(LOG, create=True)
        if mistake is not Mistake.TRUSTED_CACHE:
            self.file.evict()
        self.file.truncate(len(read_numbers(fs.read(LOG))) * RECORD.size)

    async def main(self) -> None:
        await self.offload(self.make_names_durable)
        await self.offload(self.file.sync)
        await asyncio.get_running_loop().create_server(lambda: JournalConnection(self), None, PORT)
        while True:
            await self.appended.wait()
            self.appended.clear()
            batch, self.unsynced = self.unsynced, []
            await self.offload(self.file.sync)
            for number, connection in batch:
                connection.answer(number)

    def make_names_durable(self) -> None:
        self.environment.fs.sync_directory("/")
        self.environment.fs.sync_directory("/data")

    async def offload(self, work: Callable[[], None]) -> None:
        try:
            await self.environment.offload(work)
        except OSError as error:
            self.environment.halt(f"the disk failed: {error}")

    def receive(self, number: int, connection: JournalConnection) -> None:
        try:
            self.file.append([RECORD.pack(number, crc32(number.to_bytes(4)))])
        except OSError as error:
            self.environment.halt(f"the disk failed: {error}")
        match self.mistake:
            case None | Mistake.TRUSTED_CACHE:
                self.unsynced.append((number, connection))
                self.appended.set()
            case Mistake.NO_SYNC:
                connection.answer(number)
            case Mistake.CONCURRENT_SYNCS:
                task = asyncio.create_task(self.sync_and_answer(number, connection))
                self.tasks.add(task)
                task.add_done_callback(self.tasks.discard)

    async def sync_and_answer(self, number: int, connection: JournalConnection) -> None:
        await self.offload(self.file.sync)
        for task in self.tasks:  # a set: its order must not depend on the process
            if self.environment.random.random() < 0.1:
                task.set_name(f"seen by {number}")
        connection.answer(number)


class ClientConnection(asyncio.Protocol):
    def __init__(self) -> None:
        self.received = bytearray()
        self.arrived = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self.received += data
        self.arrived.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.arrived.set()


@dataclass(slots=True)
class Client:
    world: World
    journal: str
    acknowledged: list[int] = field(default_factory=list)
    sent: int = 0
    stopped: bool = False

    async def main(self, environment: SimulatedEnvironment) -> None:
        while not self.stopped:
            try:
                async with asyncio.timeout(2):
                    await self.send_all(environment)
            except (OSError, TimeoutError):
                await asyncio.sleep(environment.random.random() * 0.2)

    async def send_all(self, environment: SimulatedEnvironment) -> None:
        loop = asyncio.get_running_loop()
        transport, connection = await loop.create_connection(ClientConnection, self.journal, PORT)
        try:
            while not self.stopped:
                count = 1 + int(environment.random.random() * 4)
                for _ in range(count):
                    self.sent += 1
                    transport.write(self.sent.to_bytes(4))
                while count:
                    await connection.arrived.wait()
                    connection.arrived.clear()
                    count -= self.count_answers(connection.received)
                    if transport.is_closing():
                        return
                await asyncio.sleep(environment.random.random() * 0.01)
        finally:
            transport.abort()

    def count_answers(self, received: bytearray) -> int:
        count = len(received) // 4
        for position in range(0, 4 * count, 4):
            number = int.from_bytes(received[position : position + 4])
            self.acknowledged.append(number)
            self.world.event("ack", self.journal, number)
        del received[: 4 * count]
        return count


async def nemesis(world: World, boot: Callable[[str], None], *, faults: int) -> None:
    """So many faults at random, each healed again before the next but one."""
    random = world.random
    for _ in range(faults):
        await asyncio.sleep(random.random())
        name = JOURNALS[int(random.random() * 2)]
        host = world.hosts[name]
        match int(random.random() * 9):
            case 0:
                host.crash()
            case 1:
                host.kill()
            case 2:
                host.pause()
            case 3:
                world.network.cut(name, "clients")
            case 4:
                world.network.cut("clients", name)
            case 5:
                world.network.reset("clients", name)
            case 6:
                host.disk.faults.sync_error = 0.05
            case 7:
                host.disk.crash_at_step = host.disk.steps + 1 + int(random.random() * 20)
            case 8:
                host.disk.faults.slow_factor = 50
        await asyncio.sleep(random.random())
        world.network.heal()
        host.resume()
        host.disk.faults.sync_error = 0.0
        host.disk.faults.slow_factor = 1
        host.disk.crash_at_step = None
        if not host.is_up:
            boot(name)


async def scenario(world: World, *, mistake: Mistake | None, faults: int) -> list[str]:
    """Run the cluster under faults: what was acknowledged and is lost, as sentences."""

    def boot(name: str) -> None:
        async def main(environment: SimulatedEnvironment) -> None:
            await Journal(environment, mistake).main()

        world.hosts[name].boot(main)

    for name in JOURNALS:
        world.add_host(name).may_halt = True
        boot(name)
    clients = [Client(world, name) for name in JOURNALS]

    async def run_clients(environment: SimulatedEnvironment) -> None:
        await asyncio.gather(*(client.main(environment) for client in clients))

    world.add_host("clients").boot(run_clients)
    await nemesis(world, boot, faults=faults)
    before = [len(client.acknowledged) for client in clients]
    await asyncio.sleep(5)
    lost = [
        f"{client.journal} serves nobody"
        for client, count in zip(clients, before, strict=True)
        if len(client.acknowledged) == count
    ]
    for client in clients:
        client.stopped = True
        lost += check(world.hosts[client.journal], client.acknowledged)
    return lost


def check(host: Host, acknowledged: list[int]) -> list[str]:
    host.crash(reset=True)
    kept = set(read_numbers(host.disk.read(LOG)) if host.disk.exists(LOG) else [])
    return [f"{host.name} lost {number}" for number in acknowledged if number not in kept]


def run(
    seed: int, *, faults: int = 8, mistake: Mistake | None = None, keep_trace: bool = False
) -> tuple[World, list[str]]:
    with World(seed, keep_trace=keep_trace) as world:
        return world, world.run(scenario(world, mistake=mistake, faults=faults), limit_s=600)


if __name__ == "__main__":
    from time import perf_counter

    started = perf_counter()
    finished, lost = run(int(sys.argv[1]), faults=int(sys.argv[2]) if len(sys.argv) > 2 else 8)
    elapsed = perf_counter() - started
    print(finished.digest(), len(lost))
    speed = f"{finished.trace.callbacks / elapsed:.0f} callbacks/s"
    print(
        f"{finished.now_s:.1f} virtual s, {finished.loop.now_ns / NANOSECONDS / elapsed:.0f}x, {speed}", file=sys.stderr
    )
