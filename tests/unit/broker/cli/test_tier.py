"""`moldau tier` against a broker and its bucket: what it says, what it deletes, and how it ends."""

from __future__ import annotations

import argparse
import asyncio
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from moldau.broker.cli.command import main
from moldau.broker.cli.invocation import CommandError, Invocation, Terminal
from moldau.broker.cli.tiered_storage import ClusterAddress, ClusterReader, TierCommand, show_status, sweep, verify
from moldau.protocol.messages.delete_topics import DeleteTopicsRequest
from moldau.storage.checkpoints.partition_metadata import uuid_text
from moldau.storage.tiered.layout import CLUSTER_MANIFEST_KEY, ObjectKind, object_key, parse_key
from moldau.storage.tiered.manifest import encode_cluster_manifest
from moldau.storage.tiered.pins import Pin, pin_key
from moldau.storage.tiered.port import RemoteStorage, WrongCluster
from tests.support.node import PORT, Node
from tests.support.tiered_node import URL, copied, fill, followed_of, is_copied, serve_tiered, tiered_topic, until


def parsed(words: tuple[str, ...]) -> argparse.Namespace:
    """As the parser does it, which reads files of translations: not in a simulation."""
    found = argparse.Namespace(
        storage=URL,
        endpoint=None,
        region=None,
        config=None,
        topic=[],
        json=False,
        dry_run=False,
        alone=False,
    )
    found.min_age_hours = 24.0
    coming = iter(words[1:])
    for word in coming:
        name = word[2:].replace("-", "_")
        if name in ("json", "dry_run", "alone"):
            setattr(found, name, True)
        elif name == "topic":
            found.topic.append(next(coming))
        else:
            setattr(found, name, float(next(coming)) if name == "min_age_hours" else next(coming))
    return found


class OverNode(TierCommand):
    """The command beside a simulated node, with a client of its own of the node's bucket."""

    def __init__(self, node: Node, *words: str) -> None:
        self.out, self.errors = io.StringIO(), io.StringIO()
        arguments = parsed(words)
        super().__init__(arguments, Invocation(Terminal(self.out, {}), Terminal(self.errors, {}), {}))
        if not arguments.alone:
            self.cluster_at = ClusterAddress((node.host.name, PORT), {}, "", 30_000)
        self._node = node

    @asynccontextmanager
    async def storage(self) -> AsyncIterator[RemoteStorage]:
        assert self._node.broker.tiering is not None
        yield self._node.broker.tiering.opened.storage

    def now_ms(self) -> int:
        return self._node.host.wall_ms() + 48 * 3_600_000

    @property
    def lines(self) -> list[str]:
        return self.out.getvalue().splitlines()

    @property
    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]


def over(node: Node, action: str, *words: str) -> OverNode:
    return OverNode(node, action, *words)


async def filled(node: Node) -> None:
    client = await node.connect()
    await tiered_topic(client, local_retention_bytes=1)
    await fill(client)
    await until(lambda: is_copied(node) or len(copied(node)) > 3, "segments are copied")
    await asyncio.sleep(3)


def test_status_shows_both_tiers() -> None:
    async def story(node: Node) -> None:
        await filled(node)
        command = over(node, "status", "--json")
        assert await show_status(command) == 0
        (found,) = command.objects
        log = node.broker.replicas.by_name["t"][0].log
        assert (found["topic"], found["partition"], found["exists"]) == ("t", 0, True)
        assert found["segments"] == len(copied(node)) and found["bytes"] == sum(each.size for each in copied(node))
        assert (found["remote_start"], found["remote_end"]) == (0, log.tiered_end_offset)
        assert (found["local_start"], found["log_end"]) == (log.local_start_offset, log.end_offset)
        assert found["copy_lag"] == log.end_offset - log.tiered_end_offset
        text = over(node, "status", "--topic", "t")
        assert await show_status(text) == 0
        assert len(text.lines) == 3 and text.lines[-1].startswith("1 partitions, ")
        assert await show_status(other := over(node, "status", "--topic", "other", "--json")) == 0
        assert other.lines == []

    serve_tiered(story)


def test_status_shows_a_partition_without_a_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    refresh = ClusterReader.refresh

    async def refresh_without_leader(self: ClusterReader) -> None:
        await refresh(self)
        self.partitions = [each._replace(leader_id=-1 if each.key.topic == "t" else 1) for each in self.partitions]

    async def story(node: Node) -> None:
        await filled(node)
        monkeypatch.setattr(ClusterReader, "refresh", refresh_without_leader)
        command = over(node, "status", "--json")
        assert await show_status(command) == 0
        (found,) = command.objects
        assert (found["topic"], found["exists"], found["segments"]) == ("t", True, len(copied(node)))
        assert [found[name] for name in ("local_start", "log_end", "copy_lag")] == [-1, -1, -1]

    serve_tiered(story)


def test_a_throttled_command_waits_and_goes_on() -> None:
    async def story(node: Node) -> None:
        await filled(node)
        client = await node.connect()
        await client.set_quota("consumer_byte_rate", 100, user=None)
        for _ in range(2):
            command = over(node, "status", "--json")
            assert await show_status(command) == 0
            assert len(command.objects) == 1

    serve_tiered(story)


@pytest.mark.parametrize("has_broker", [True, False])
def test_verify_names_what_is_damaged_or_missing(has_broker: bool) -> None:
    async def story(node: Node) -> None:
        await filled(node)
        words = [] if has_broker else ["--alone"]
        assert await verify(OverNode(node, "verify", *words)) == 0
        bucket, key = node.world.buckets[URL], followed_of(node).key
        first, second = copied(node)[:2]
        bucket.damage(object_key(key, first.start_offset, first.segment_id, ObjectKind.LOG), 70)
        del bucket.objects[object_key(key, second.start_offset, second.segment_id, ObjectKind.TIME_INDEX)]
        command = OverNode(node, "verify", "--json", *words)
        assert await verify(command) == 1
        *found, last = command.objects
        assert {each["segment_id"] for each in found} == {uuid_text(each.segment_id) for each in (first, second)}
        assert all((each["topic"], each["partition"]) == ("t", 0) for each in found)
        assert last == {"segments": len(copied(node)), "damaged_segments": 2}
        text = OverNode(node, "verify", *words)
        assert await verify(text) == 1
        assert any("t-0, segment" in line and ".timeindex" in line for line in text.lines)

    serve_tiered(story)


def test_sweep_deletes_what_no_metadata_names_and_nothing_else() -> None:
    async def story(node: Node) -> None:
        await filled(node)
        bucket, key = node.world.buckets[URL], followed_of(node).key
        before = bucket.contents()
        stray = object_key(key, 5, b"s" * 16, ObjectKind.LOG)
        other = object_key(key._replace(partition=9), 0, b"o" * 16, ObjectKind.MANIFEST)
        bucket.store(stray, b"orphan")
        bucket.store(other, b"{}")
        bucket.store("topics/notes.txt", b"of a person")
        bucket.store("probes/old", b"probe")
        bucket.store(pin_key(key, "done"), Pin(node.broker.cluster.id, key, (), 0, 5).encode())
        dry = over(node, "sweep", "--dry-run", "--json")
        assert await sweep(dry) == 3
        assert len(bucket.contents()) == len(before) + 5
        shown = [each["key"] for each in dry.objects if "reason" in each]
        assert shown == [other, stray, "probes/old", pin_key(key, "done")]
        assert await sweep(over(node, "sweep")) == 0
        assert bucket.contents() == before | {"topics/notes.txt": b"of a person"}
        assert await sweep(over(node, "sweep", "--dry-run")) == 0
        assert await verify(over(node, "verify")) == 0

    serve_tiered(story)


def test_sweep_leaves_alone_what_is_young() -> None:
    async def story(node: Node) -> None:
        await filled(node)
        bucket, key = node.world.buckets[URL], followed_of(node).key
        bucket.store(object_key(key, 5, b"s" * 16, ObjectKind.LOG), b"orphan")
        command = over(node, "sweep", "--min-age-hours", "1000000", "--json")
        assert await sweep(command) == 0
        assert command.objects[-1]["young"] == 1
        assert object_key(key, 5, b"s" * 16, ObjectKind.LOG) in bucket.contents()

    serve_tiered(story)


def test_sweep_takes_what_a_deleted_topic_has_left() -> None:
    async def story(node: Node) -> None:
        await filled(node)
        bucket = node.world.buckets[URL]
        before = {key: data for key, data in bucket.contents().items() if parse_key(key) is not None}
        client = await node.connect()
        await client.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
        await until(lambda: not [key for key in bucket.contents() if parse_key(key)], "the last leader deletes all")
        for key, data in before.items():
            bucket.store(key, data)
        assert await sweep(over(node, "sweep")) == 0
        assert not [key for key in bucket.contents() if parse_key(key)]

    serve_tiered(story)


def test_a_storage_of_another_cluster_is_never_touched() -> None:
    async def story(node: Node) -> None:
        await filled(node)
        bucket = node.world.buckets[URL]
        bucket.store(CLUSTER_MANIFEST_KEY, encode_cluster_manifest("another-cluster"))
        before = bucket.contents()
        for action, words in ((sweep, "sweep"), (verify, "verify")):
            with pytest.raises(WrongCluster, match="another-cluster"):
                await action(over(node, words))
        del bucket.objects[CLUSTER_MANIFEST_KEY]
        for action, words in ((sweep, "sweep"), (verify, "verify")):
            with pytest.raises(CommandError, match="belongs to no cluster"):
                await action(over(node, words))
        bucket.store(CLUSTER_MANIFEST_KEY, before[CLUSTER_MANIFEST_KEY])
        assert bucket.contents() == before

    serve_tiered(story)


def test_a_metadata_topic_that_does_not_say_all_deletes_nothing() -> None:
    async def story(node: Node) -> None:
        await filled(node)
        bucket = node.world.buckets[URL]
        before = bucket.contents()
        metadata = node.broker.replicas.by_name["__remote_log_metadata"]
        index = followed_of(node).metadata_index
        metadata[index].delete_records_before(2)
        with pytest.raises(CommandError, match="begins at offset 2"):
            await sweep(over(node, "sweep"))
        assert bucket.contents() == before

    serve_tiered(story)


def test_refusals_say_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for status, words, said in (
        (5, ["status", "-b", "127.0.0.1:1"], "no broker answers"),
        (2, ["sweep"], "--storage URL"),
        (2, ["verify"], "--storage URL"),
        (1, ["verify", "--storage", str(tmp_path)], "belongs to no cluster"),
        (1, ["verify", "--storage", "ftp://x"], "ftp://x"),
        (2, ["status", "--bootstrap", "nowhere"], "host:port"),
        (2, ["sweep", "--min-age-hours", "-1"], "negative"),
    ):
        assert main(["tier", *words]) == status
        assert said in capsys.readouterr().err
