"""Records by the daily commands: the story that the conformance asks Apache Kafka too, with its facts."""

from __future__ import annotations

import json
import math
import os
import pty
import signal
import subprocess
import sys
import time
from decimal import Decimal
from pathlib import Path

import pytest

from moldau.testing.namespace import Namespace
from tests.support.daily_command import DailyCommand
from tests.support.daily_stories import records, send, two_hours_ago, until

pytestmark = pytest.mark.processes


def test_records_of_each_format_and_each_mistake(kafka: Namespace, tmp_path: Path) -> None:
    facts = records(DailyCommand(kafka.bootstrap_servers), "rec", str(tmp_path))
    assert facts["csv"] == [{"topic": "rec-a", "records": 4}]
    by_place = {(each["partition"], each["offset"]): each for each in facts["everything"]}
    assert by_place[2, 2] == {
        "topic": "rec-a",
        "partition": 2,
        "offset": 2,
        "timestamp": True,
        "key": "ada",
        "value": '{"customer":"ada","amount":"9"}',
    }
    assert by_place[0, 0]["value"] == '{"customer":"grace","amount":"5,5"}'
    assert by_place[1, 0]["headers"] == [{"name": "a", "value": "1"}] and by_place[1, 0]["key"] == "x"
    assert [by_place[1, 1][name] for name in ("key", "value")] == ["k", "v:w"]
    assert [by_place[1, 2][name] for name in ("key", "value")] == ["k2", ""]
    assert [by_place[1, 3][name] for name in ("key", "value")] == ["gone", None]
    assert by_place[1, 4]["value_base64"] == "/wA="
    assert facts["copied"] == "9 records to rec-b\n" and len(facts["copy is the same"]) == 8
    assert facts["form tokens"] == ['rec-a/2/2 ada[3]: {"customer":"ada","amount":"9"}[31] ']
    assert facts["form csv"][0] == 'rec-a,2,0,TIME,ada,"{""customer"":""ada"",""amount"":""3""}"'
    assert facts["form line"] == ["  2        2  "]
    assert facts["chosen by key"] == ["0 0"] and facts["chosen by grep"] == ["2 1"]
    assert facts["chosen by header"] == facts["chosen by deep field"] == ["1 0"]
    assert facts["chosen by header value"] == facts["chosen by latest"] == []
    assert facts["chosen by field"] == ["2 2"] and facts["chosen by both"] == ["2 0"]
    assert len(facts["chosen by count"]) == 2
    assert facts["chosen by last"] == ["0 0", "1 4", "2 2"]
    assert facts["chosen by offset"] == ["1 4"]
    assert facts["chosen by since"] == [f"1 {offset}" for offset in range(5)]
    assert sorted(facts["until an hour ago"]) == ["", "0 0", "2 0", "2 1", "2 2"]
    assert facts["until an offset"] == ["0", "1"]
    assert [facts["a group begins"], facts["a group goes on"], facts["a group is done"]] == [3, 6, []]
    assert facts["lag"] == [0, [1, 5, 3]]
    assert facts["an hour ago"] == 5
    statuses = {name: fact[0] for name, fact in facts.items() if isinstance(fact, list) and len(fact) == 2}
    assert [
        statuses[name] for name in ("unknown topic", "unknown partition", "no such partition", "no such topic")
    ] == [3] * 4
    assert [statuses[name] for name in ("bad form", "bad pattern", "future", "no file", "a field of a line")] == [2] * 5
    assert [statuses[name] for name in ("no separator", "no JSON", "no field", "a short row", "too large")] == [1] * 5
    assert facts["no field"][1] == "standard input, line 1: there is no field b; the fields are a"
    assert facts["too large"][1].endswith("a record is larger than max.message.bytes of the topic (MESSAGE_TOO_LARGE)")


def test_rows_of_parquet_keep_their_types(kafka: Namespace, tmp_path: Path) -> None:
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.parquet as parquet  # type: ignore[import-untyped]

    run, topic = DailyCommand(kafka.bootstrap_servers), kafka.topic("rows")
    rows = {"id": [1, 2], "price": [Decimal("1.50"), None], "data": [b"x", None], "tags": [["a"], []]}
    parquet.write_table(pa.table(rows), tmp_path / "rows.parquet")
    assert run.done("produce", topic, str(tmp_path / "rows.parquet"), "--key-field", "id") == f"2 records to {topic}\n"
    (first, second) = run("consume", topic, "-e", "--json").rows
    assert [first["key"], first["value"]] == ["1", '{"id":1,"price":"1.50","data":"x","tags":["a"]}']
    assert second["value"] == '{"id":2,"price":null,"data":null,"tags":[]}'
    (tmp_path / "no.parquet").write_bytes(b"no")
    assert run("produce", topic, str(tmp_path / "no.parquet")).status == 1
    only = run("produce", topic, str(tmp_path / "rows.parquet"), "--value-field", "data")
    assert only.status == 0 and run("consume", topic, "-e", "--from", "2", "--json").rows[-1]["value"] is None


def test_rows_of_parquet_lose_no_value(kafka: Namespace, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    run, topic, file = DailyCommand(kafka.bootstrap_servers), kafka.topic("odd"), str(tmp_path / "odd.parquet")
    late, took = pa.array([1 << 58], pa.timestamp("us")), pa.array([1_500_001], pa.duration("us"))
    rows = {"data": [b"\xff\xfe"], "nested": [{"data": b"\x80", "number": math.nan}], "at": late, "took": took}
    parquet.write_table(pa.table(rows), file)
    run.done("produce", topic, file)
    run.done("produce", topic, file, "--value-field", "data")
    first, second = run("consume", topic, "-e", "--json").rows
    assert json.loads(first["value"]) == {
        "data": {"base64": "//4="},
        "nested": {"data": {"base64": "gA=="}, "number": "NaN"},
        "at": 1 << 58,
        "took": "PT1.500001S",
    }
    assert second["value_base64"] == "//4="
    parquet.write_table(pa.table([[1], [2]], ["a", "a"]), file)
    twice = run("produce", topic, file)
    assert (twice.status, twice.err.count("two columns have one name")) == (1, 1)


def test_new_records_are_printed_as_they_come_and_lines_are_sent_as_they_are_typed(kafka: Namespace) -> None:
    topic = kafka.topic("live")
    moldau = [sys.executable, "-m", "moldau"]
    to_it = ["-b", kafka.bootstrap_servers]
    with (
        subprocess.Popen([*moldau, "consume", topic, *to_it, "-n", "2"], stdout=subprocess.PIPE) as reader,
        subprocess.Popen([*moldau, "produce", topic, *to_it], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer,
    ):
        assert reader.stdout is not None and writer.stdin is not None
        for line in (b"one\n", b"two\n"):
            writer.stdin.write(line)
            writer.stdin.flush()
            assert reader.stdout.readline() == line
        assert reader.wait(30) == 0
        writer.stdin.close()
        assert writer.wait(30) == 0


def test_a_terminal_is_told_that_its_lines_are_read(kafka: Namespace) -> None:
    topic = kafka.topic("typed")
    command = [sys.executable, "-m", "moldau", "produce", topic, "-b", kafka.bootstrap_servers]
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as writer:
        os.close(theirs)
        assert writer.stderr is not None
        assert writer.stderr.readline() == "reading lines from the terminal (Ctrl-D ends it)\n"
        os.write(ours, b"one\n\x04")
        assert writer.communicate(timeout=30) == (f"1 record to {topic}\n", "")
    os.close(ours)


def test_aborted_records_and_markers_are_left_out_on_demand(kafka: Namespace) -> None:
    from confluent_kafka import Producer

    run, topic = DailyCommand(kafka.bootstrap_servers), kafka.topic("transactions")
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions()
    for value, is_kept in (("aborted", False), ("kept", True), ("aborted too", False)):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush()
        (producer.commit_transaction if is_kept else producer.abort_transaction)()
    assert run.done("consume", topic, "-e").split("\n") == ["aborted", "kept", "aborted too", ""]
    assert run.done("consume", topic, "-e", "--read-committed") == "kept\n"


def test_a_reader_whose_records_are_deleted_goes_on_and_says_so(kafka: Namespace) -> None:
    run, topic = DailyCommand(kafka.bootstrap_servers), kafka.topic("short")
    send(kafka.bootstrap_servers, topic, {0: [(str(number), two_hours_ago()) for number in range(5)]})
    run.done("topic", "delete-records", topic, "--before", "3", "--execute")
    said = run("consume", topic, "--from", "1", "-e")
    assert said.out == "3\n4\n" and said.err == f"{topic}-0: offsets 1 to 3 are gone\n"


def test_a_reading_from_past_the_end_says_so(kafka: Namespace) -> None:
    run, topic = DailyCommand(kafka.bootstrap_servers), kafka.topic("early", partitions=3)
    send(kafka.bootstrap_servers, topic, {0: [("one", two_hours_ago())]})
    said = run("consume", f"{topic}:0", "--from", "1", "-e")
    assert (said.status, said.out, said.err) == (0, "", f"there is no record in {topic}:0 from 1 on\n")
    assert run("consume", topic, "--from", "beginning", "-e").out == "one\n"
    said = run("consume", topic, "--from", "2", "-e")
    told = f"{topic}-0: offset 2 is past the end, which is 1, and 2 more partitions end before their offsets\n"
    assert (said.status, said.out, said.err) == (0, "", told)


def test_a_reader_that_finds_nothing_says_so_and_what_it_waits_for(kafka: Namespace) -> None:
    run, topic = DailyCommand(kafka.bootstrap_servers), kafka.topic("empty", partitions=2)
    nothing = f"there is no record in {topic}"
    assert run("consume", topic, "-e") == (0, "", f"{nothing}\n")
    assert run("consume", topic, "-e", "--read-committed") == (0, "", f"there is no committed record in {topic}\n")
    command = [sys.executable, "-m", "moldau", "consume", topic, "-b", kafka.bootstrap_servers, "-n", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as reader:
        assert reader.stdout is not None and reader.stderr is not None
        assert reader.stderr.readline() == f"{nothing}; waiting for the first one (Ctrl-C stops it)\n"
        send(kafka.bootstrap_servers, topic, {1: [("one", two_hours_ago())]})
        assert reader.communicate(timeout=30) == ("one\n", "") and reader.returncode == 0
    assert run("consume", topic, "-e", "--from", "latest") == (0, "", f"{nothing} from latest on\n")
    group = kafka.group("reader")
    assert run("consume", topic, "-e", "--group", group) == (0, "one\n", "")
    assert run("consume", topic, "-e", "--group", group) == (0, "", f"{nothing} that group {group} has not read\n")


def test_a_batch_larger_than_a_fetch_is_read_from_each_partition(kafka: Namespace) -> None:
    run = DailyCommand(kafka.bootstrap_servers)
    topic = kafka.topic("large", partitions=4, settings={"max.message.bytes": 4000000})
    for partition in range(4):
        given = "y" * 3_000_000
        run.done("produce", topic, "-p", str(partition), given=given)
    lines = run.done("consume", topic, "-e", "-f", "%p %S\\n").split("\n")
    assert sorted(lines) == ["", *(f"{partition} 3000000" for partition in range(4))]


def test_a_closed_pipe_ends_the_command_without_a_word(kafka: Namespace) -> None:
    topic = kafka.topic("pipe")
    send(kafka.bootstrap_servers, topic, {0: [("x" * 100, two_hours_ago())] * 20_000})
    command = f"{sys.executable} -m moldau consume {topic} -b {kafka.bootstrap_servers} -e | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, timeout=60)
    assert (done.stdout, done.stderr, done.returncode) == (b"x" * 100 + b"\n", b"", 0)


def test_a_group_commits_nothing_that_could_not_be_printed(kafka: Namespace) -> None:
    run, topic, group = DailyCommand(kafka.bootstrap_servers), kafka.topic("pipe"), kafka.group("reader")
    send(kafka.bootstrap_servers, topic, {0: [("x" * 100, two_hours_ago())] * 20_000})
    with open("/dev/full", "w") as full:
        said = run("consume", topic, "-e", "--group", group, stdout=full)
    assert said.failure == "the output cannot be written: No space left on device"
    assert run.done("consume", topic, "-n", "1", "--group", group, "-f", "%o\\n") == "0\n"
    command = f"{sys.executable} -m moldau consume {topic} -b {kafka.bootstrap_servers} -e --group {group} | head -1"
    subprocess.run(["bash", "-c", command], capture_output=True, timeout=60)
    assert int(run.done("consume", topic, "-n", "1", "--group", group, "-f", "%o\\n")) < 20_000


def test_a_topic_that_is_not_there_is_named_with_the_command_that_makes_it(kafka: Namespace) -> None:
    said = DailyCommand(kafka.bootstrap_servers)("produce", "zzz", given="one")
    assert (said.status, said.failure) == (3, "there is no topic zzz: 'moldau topic create zzz' makes it")


def test_json_that_is_nested_too_deeply_is_told(kafka: Namespace) -> None:
    run, topic = DailyCommand(kafka.bootstrap_servers), kafka.topic("deep")
    deep = "[" * 100_000 + "]" * 100_000
    for form in (("--format", "jsonl"), ("--format", "jsonl", "--key-field", "a"), ("--format", "records")):
        said = run("produce", topic, *form, given=f"{deep}\n")
        assert (said.status, said.failure) == (1, "standard input, line 1: its JSON is nested too deeply")
    run.done("produce", topic, given=f'{{"a":1}}\n{deep}\n')
    said = run("consume", topic, "-e", "--where", "a=1")
    assert said.status == 1 and said.out == '{"a":1}\n'
    assert said.failure == "the value at offset 1 is JSON that is nested too deeply for --where"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_group_has_what_was_printed_before_the_command_was_stopped(kafka: Namespace, number: int) -> None:
    run, topic, group = DailyCommand(kafka.bootstrap_servers), kafka.topic("stopped"), kafka.group("reader")
    run.done("produce", topic, given="one\ntwo\n")
    words = ["consume", topic, "-b", kafka.bootstrap_servers, "--group", group]
    with subprocess.Popen(
        [sys.executable, "-m", "moldau", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as reader:
        assert reader.stdout is not None
        assert [reader.stdout.readline() for _ in range(2)] == ["one\n", "two\n"]
        if number == signal.SIGKILL:
            until(lambda: kafka.committed(group), {(topic, 0): 2})
        time.sleep(1)  # Then a fetch is under way, nearly always.
        reader.send_signal(number)
        assert reader.communicate(timeout=30) == ("", "")
    assert reader.returncode == (130 if number == signal.SIGINT else -number)
    assert kafka.committed(group) == {(topic, 0): 2}


def test_what_kcat_can_send_too(kafka: Namespace, tmp_path: Path) -> None:
    """Headers of one name and without a value, delimiters, whole files."""
    run, topic = DailyCommand(kafka.bootstrap_servers), kafka.topic("as-kcat")
    run.done("produce", topic, "-H", "a=1", "-H", "a=2", "-H", "b", given="one\n")
    assert run.done("consume", topic, "-e", "-f", "%h\\n") == "a=1,a=2,b=NULL\n"
    run.done("produce", topic, "-D", "\\0", "-K", "=", given=b"k=line\nline\r\0k2=last")
    run.done("produce", topic, "-D", ";", given="x;y;")
    image = tmp_path / "image"
    image.write_bytes(b"\x89PNG\n\0")
    run.done("produce", topic, str(image), "--format", "file", "-k", "logo")
    rows = run("consume", topic, "-e", "--json").rows[1:]
    assert [(row["key"], row.get("value")) for row in rows[:-1]] == [
        ("k", "line\nline\r"),
        ("k2", "last"),
        (None, "x"),
        (None, "y"),
    ]
    assert (rows[-1]["key"], rows[-1]["value_base64"]) == ("logo", "iVBORwoA")
    for words in (("-D", ""), ("-D", ";", "--format", "jsonl"), ("-H", "=1"), ("--format", "file", "--key-field", "a")):
        assert run("produce", topic, *words, given="x").status == 2


def test_a_reading_until_what_cannot_be_known_is_refused(kafka: Namespace) -> None:
    topic, run = kafka.topic("until"), DailyCommand(kafka.bootstrap_servers)
    for until_what, told in (
        ("latest", "is not an offset or a time: "),
        ("4070908800000", "is in the future: end by Ctrl-C or -n"),
    ):
        said = run("consume", topic, "--until", until_what)
        assert said.status == 2 and said.failure.startswith(f"--until {until_what} {told}")


def test_arguments_that_are_not_utf_8_are_refused(kafka: Namespace) -> None:
    topic, run = kafka.topic("odd"), DailyCommand(kafka.bootstrap_servers)
    for words in (
        ["topic", "create", "a\udcff"],
        ["produce", topic, "-k", "a\udcff"],
        ["consume", topic, "-e", "--grep", "a\udcff"],
        ["config", "set", "topic", topic, "retention.ms=a\udcff"],
    ):
        said = run(*words)
        assert (said.status, said.failure.endswith("' is not UTF-8")) == (2, True)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_name_that_the_terminal_has_no_characters_for_is_shown(encoding: str, kafka: Namespace) -> None:
    group, variables = f"{kafka.prefix}-☃", {"PYTHONIOENCODING": f"{encoding}:strict"}
    run = DailyCommand(kafka.bootstrap_servers, variables)
    run.done("group", "reset", group, "--topic", kafka.topic("some"), "--to", "0", "--execute")
    assert [row["group"] for row in run.rows("group", "list", group)] == [group]
    assert r"\u2603" in run.done("group", "list", kafka.prefix + "*")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_stream_that_is_closed_is_empty_or_dropped(closed: str, kafka: Namespace) -> None:
    topic = kafka.topic("closed")
    command = f"echo one | {sys.executable} -m moldau produce {topic} -b {kafka.bootstrap_servers} {closed}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    count = 0 if "<" in closed else 1
    told = "" if ">&-" in closed.replace("2>&-", "") else f"{count} record{'' if count else 's'} to {topic}\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, told, "")
    assert len(DailyCommand(kafka.bootstrap_servers).done("consume", topic, "-e").splitlines()) == count
