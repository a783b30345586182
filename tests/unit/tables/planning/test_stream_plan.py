"""What a streaming query plans over files: starts, ends, new partitions, and what it has lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from moldau.spark_jobs.streams.reader import TopicStreamReader
from moldau.storage.checkpoints.partition_metadata import uuid_text, write_topic_id
from moldau.storage.files.local_files import LocalFiles
from moldau.tables.options.read_options import parse_options
from moldau.tables.planning.stream_plan import StreamPlanner
from moldau.tables.refusals import ClusterMismatch, DataLost, Refused, TopicRecreated
from tests.support.segments import mixed_batches, write_checkpoints, write_partition
from tests.support.transactional_log import TransactionalLog

OLD, NEW = bytes(15) + b"\1", bytes(15) + b"\2"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    write_partition(tmp_path, mixed_batches(40, 10))
    write_partition(tmp_path, mixed_batches(20, 10), partition=1)
    write_checkpoints(tmp_path, {("t", 0): 400, ("t", 1): 200})
    return tmp_path


def planner(directory: Path, sleeps: list[float] | None = None, **options: str) -> StreamPlanner:
    given = {"path": str(directory), "subscribe": "t", **options}
    noted = sleeps if sleeps is not None else []
    return StreamPlanner(LocalFiles(), parse_options(given, "stream"), sleep=noted.append, wait_s=2)


def name_topic(directory: Path, topic_id: bytes) -> None:
    for partition in (0, 1):
        write_topic_id(LocalFiles(), f"{directory}/t-{partition}", topic_id)


def offsets_of(
    stream: StreamPlanner,
    starts: dict[tuple[str, int], int],
    ends: dict[tuple[str, int], int],
    start_ids: dict[str, str] | None = None,
    end_ids: dict[str, str] | None = None,
) -> int:
    """How many offsets the tasks take."""
    found = set()
    for task in stream.tasks(starts, ends, start_ids, end_ids):
        for each in task:
            found |= {(each.partition, offset) for offset in range(each.start_offset, each.end_offset)}
    return len(found)


def test_a_query_starts_at_the_latest_offset_unless_it_is_told(directory: Path) -> None:
    assert planner(directory).starts() == {("t", 0): 400, ("t", 1): 200}
    assert planner(directory, startingOffsets="earliest").starts() == {("t", 0): 0, ("t", 1): 0}
    chosen = planner(directory, startingOffsets='{"t": {"0": 7, "1": -1}}')
    assert chosen.starts() == {("t", 0): 7, ("t", 1): 200}
    with pytest.raises(Refused, match="startingOffsets does not name t-1"):
        planner(directory, startingOffsets='{"t": {"0": 7}}').starts()


def test_a_new_partition_is_read_from_its_beginning(directory: Path) -> None:
    stream = planner(directory)
    starts = stream.starts()
    write_partition(directory, mixed_batches(3, 10), partition=2)
    write_checkpoints(directory, {("t", 0): 400, ("t", 1): 200, ("t", 2): 30})
    ends = stream.checked_ends(starts)
    assert ends == {("t", 0): 400, ("t", 1): 200, ("t", 2): 30}
    assert offsets_of(stream, starts, ends) == 30


def test_a_new_partition_that_has_lost_records_is_told(directory: Path) -> None:
    write_checkpoints(directory, {("t", 0): 400, ("t", 1): 200}, {("t", 1): 20})
    stream = planner(directory)
    with pytest.raises(DataLost, match="t-1: the partition is new, and its log starts at 20 already"):
        stream.tasks({("t", 0): 400}, {("t", 0): 400, ("t", 1): 200})
    careless = planner(directory, failOnDataLoss="false")
    with pytest.warns(UserWarning, match="starts at 20 already"):
        assert offsets_of(careless, {("t", 0): 400}, {("t", 0): 400, ("t", 1): 200}) == 180


def test_offsets_that_are_not_there_yet_are_waited_for(directory: Path) -> None:
    """A checkpoint may be newer than the high watermark in the directory: a broker's, as the connector reads it."""
    sleeps: list[float] = []
    write_checkpoints(directory, {("t", 0): 300, ("t", 1): 200})
    stream = planner(directory, sleeps)
    with pytest.raises(DataLost, match="t-0: the log ends at 300, and the query has read it up to 400"):
        stream.checked_ends({("t", 0): 400, ("t", 1): 200})
    assert sum(sleeps) == 2
    with pytest.raises(DataLost, match="t-0: records before 400 are asked for, and the log ends at 300"):
        stream.tasks({("t", 0): 100}, {("t", 0): 400})
    write_checkpoints(directory, {("t", 0): 400, ("t", 1): 200})
    assert offsets_of(stream, {("t", 0): 100}, {("t", 0): 400}) == 300


def test_a_partition_that_has_gone_is_told(directory: Path) -> None:
    with pytest.raises(DataLost, match="t-2: the partition has gone, and the query has read it up to 5"):
        planner(directory).checked_ends({("t", 2): 5})


def test_another_topic_of_the_name_is_told(directory: Path) -> None:
    name_topic(directory, OLD)
    stream = planner(directory)
    stream.ends()
    name_topic(directory, NEW)
    with pytest.raises(TopicRecreated, match=f"t: the query has read the topic with the id {uuid_text(OLD)}"):
        stream.ends()


def test_a_checkpoint_tells_that_the_topic_was_created_again(directory: Path) -> None:
    """The query that wrote the checkpoint has ended, and the new topic is as long as the old one was."""
    name_topic(directory, NEW)
    read, old = {("t", 0): 400, ("t", 1): 100}, {"t": uuid_text(OLD)}
    with pytest.raises(TopicRecreated, match="failOnDataLoss=false reads it from its first record"):
        planner(directory).checked_ends(read, old)
    with pytest.raises(TopicRecreated):
        planner(directory).tasks({}, read, {}, old)
    assert planner(directory).checked_ends(read, {"t": uuid_text(NEW)}) == {("t", 0): 400, ("t", 1): 200}
    careless = planner(directory, failOnDataLoss="false")
    with pytest.warns(UserWarning, match="which was deleted"):
        ends = careless.checked_ends(read, old)
    assert ends == {("t", 0): 400, ("t", 1): 200} and careless.carried(read, old) == {}
    assert offsets_of(careless, read, ends, old, dict(careless.topic_ids)) == 600
    with pytest.warns(UserWarning, match="which was deleted"):
        assert not planner(directory, failOnDataLoss="false").tasks({}, read, {}, old), "they were of the old topic"


def test_a_trigger_after_the_topic_was_created_again(directory: Path) -> None:
    """If the ends are equal by chance, the new topic is read all the same."""
    name_topic(directory, NEW)
    given = {"path": str(directory), "subscribe": "t", "startingOffsets": "earliest", "failOnDataLoss": "false"}
    reader = TopicStreamReader(parse_options(given, "stream"), ["offset"])
    assert reader.initialOffset() == {"t": {"0": 0, "1": 0}, f"t#{uuid_text(NEW)}": {}}
    read = {"t": {"0": 400, "1": 200}}
    start = {**read, f"t#{uuid_text(OLD)}": {}}
    with pytest.warns(UserWarning, match="which was deleted"):
        end = reader.latestOffset(start, ReadAllAvailable())
    assert end == {**read, f"t#{uuid_text(NEW)}": {}}
    counts = [each.end_offset - each.start_offset for task in reader.partitions(start, end) for each in task.value]
    assert sum(counts) == 600
    assert reader.latestOffset(end, ReadAllAvailable()) is end and not reader.partitions(end, end)
    assert reader.latestOffset(read, ReadAllAvailable()) is read, "the connector's checkpoint has no ids"


def test_partitions_of_different_topics_are_refused(directory: Path) -> None:
    write_topic_id(LocalFiles(), f"{directory}/t-0", OLD)
    write_topic_id(LocalFiles(), f"{directory}/t-1", NEW)
    with pytest.raises(ClusterMismatch, match="t-0 and t-1 are of different topics of this name"):
        planner(directory).ends()


def test_a_start_past_the_end_is_told(directory: Path) -> None:
    sleeps: list[float] = []
    asked = planner(directory, sleeps, startingOffsets='{"t": {"0": 401, "1": 7}}')
    with pytest.raises(DataLost, match="t-0: offset 401 is asked for, and the log ends at 400"):
        asked.starts()
    assert sum(sleeps) == 2, "the broker may not have written down its high watermark yet"
    careless = planner(directory, startingOffsets='{"t": {"0": 401, "1": 7}}', failOnDataLoss="false")
    with pytest.warns(UserWarning, match="the log ends at 400"):
        assert careless.starts() == {("t", 0): 400, ("t", 1): 7}


def test_a_start_in_an_open_transaction_waits_for_its_end(tmp_path: Path) -> None:
    log = TransactionalLog()
    log.append(3)
    log.append(4, producer_id=1)
    write_partition(tmp_path, [each.data for each in log.batches])
    write_partition(tmp_path, mixed_batches(4, 10), partition=1)
    write_checkpoints(tmp_path, {("t", 0): log.end_offset, ("t", 1): 40})
    sleeps: list[float] = []
    committed = {"startingOffsets": '{"t": {"0": 5, "1": 0}}', "kafka.isolation.level": "read_committed"}
    stream = planner(tmp_path, sleeps, **committed)
    starts = stream.starts()
    ends = stream.checked_ends(starts)
    assert starts == {("t", 0): 5, ("t", 1): 0} and ends == {("t", 0): 5, ("t", 1): 40}
    assert offsets_of(stream, starts, ends) == 40
    assert sleeps == []
    with pytest.raises(DataLost, match="t-0: the log ends at 7, and the query has read it up to 8"):
        stream.checked_ends({("t", 0): 8, ("t", 1): 0})


def test_nothing_is_planned_where_nothing_is_new(directory: Path) -> None:
    assert not planner(directory).tasks({("t", 0): 400}, {("t", 0): 400})


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("endingOffsets", "latest", "endingOffsets is not possible in a streaming query"),
        ("table", "latest", "table=latest is not possible in a streaming query"),
        ("maxOffsetsPerTrigger", "0", "maxOffsetsPerTrigger: 0 is not a whole number above 0"),
        ("maxTriggerDelay", "soon", "maxTriggerDelay: soon is not a duration"),
    ],
)
def test_what_a_stream_cannot_do_is_refused(directory: Path, option: str, value: str, said: str) -> None:
    with pytest.raises(Refused, match=said):
        parse_options({"path": str(directory), "subscribe": "t", option: value}, "stream")
