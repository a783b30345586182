"""The command moldau: its help, its settings and its refusals."""

from __future__ import annotations

import ast
import errno
import io
import os
import sys
from ast import literal_eval
from pathlib import Path

import pytest

from moldau.broker.cli import invocation as invocation_module
from moldau.broker.cli import main
from moldau.broker.cli.command import parser
from moldau.broker.cli.invocation import IMAGE_EXTRAS_VARIABLE, CommandError, Invocation, Terminal, load_config


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colour_is_for_terminals_whose_owner_does_not_object() -> None:
    assert Terminal(Tty(), {}).styled("x", "red") == "\033[31mx\033[0m"
    assert Terminal(Tty(), {"NO_COLOR": ""}).styled("x", "red") == "\033[31mx\033[0m"
    assert Terminal(Tty(), {"NO_COLOR": "1"}).styled("x", "red") == "x"
    assert Terminal(Tty(), {"TERM": "dumb"}).styled("x", "red") == "x"
    assert Terminal(io.StringIO(), {}).styled("x", "red") == "x"


@pytest.mark.parametrize("command", [[], ["serve"], ["format"], ["dump-log"], ["tier"], ["read"], ["version"]])
def test_help_has_examples(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main([*command, "--help"])
    assert end.value.code == 0
    shown = capsys.readouterr().out
    assert command == ["version"] or "examples:" in shown


def test_without_a_command_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "moldau serve  " in capsys.readouterr().err


def test_headings_of_help_are_bold_on_a_terminal_only() -> None:
    assert "\033[1mexamples:\033[0m" in parser(Terminal(Tty(), {})).format_help()
    assert "\033" not in parser(Terminal(io.StringIO(), {})).format_help()


def test_the_version_names_apache_kafkas(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    said = capsys.readouterr().out
    assert "Apache Kafka 4.3.1" in said
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == said


def test_a_later_source_of_settings_wins(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
        "listeners=PLAINTEXT://:9092,CONTROLLER://:9093\ncontroller.quorum.bootstrap.servers=h:9093\n"
        "log.dirs=/file\nnum.partitions=2\nlog.segment.bytes=2000000\nlog.retention.hours=1\n"
    )
    variables = {"KAFKA_NUM_PARTITIONS": "3", "KAFKA_LOG_SEGMENT_BYTES": "3000000", "KAFKA_LOG_DIRS": "/variable"}
    config = load_config(str(file), "/data", ["num.partitions=4"], variables)
    assert config.integer("log.retention.hours") == 1
    assert config.integer("log.segment.bytes") == 3_000_000
    assert config.integer("num.partitions") == 4
    assert config.log_dirs == ("/data",)


def test_a_node_without_a_file_keeps_its_data_here() -> None:
    assert load_config(None, None, [], {}).log_dirs == ("./data",)


def test_a_node_without_a_file_advertises_where_it_listens() -> None:
    listeners = "listeners=PLAINTEXT://127.0.0.1:19092,CONTROLLER://127.0.0.1:19093"
    (told,) = load_config(None, None, [listeners], {}).advertised_listeners
    assert (told.host, told.port) == ("127.0.0.1", 19092)


def test_every_problem_with_the_settings_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_NUM_IO_THREADS", "0")
    assert main(["serve", "--data", str(tmp_path), "--override", "zookeeper.connect=localhost:2181"]) == 1
    shown = capsys.readouterr().err
    assert "Value must be at least 1" in shown
    assert "zookeeper.connect=localhost:2181 is refused" in shown
    assert "moldau format" in shown


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(CommandError, match="/nowhere cannot be read: No such file"):
        load_config("/nowhere", None, [], {})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-t", "abc"], "cluster id 'abc' is not the base64 form of 16 bytes"),
        (["-f", "metadata.version"], "--feature takes name=level"),
        (["-f", "metadata.version=x"], "--feature takes name=level"),
        (["-f", "a=1", "-f", "a=2"], "--feature a is given twice"),
        (["--add-scram", "x"], "--add-scram takes a credential as SCRAM-SHA-256=[name=alice"),
    ],
)
def test_format_refuses_what_it_cannot_do(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["format", "--data", str(tmp_path / "data"), *arguments]) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


def test_format_wants_to_know_which_quorum(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
        "listeners=PLAINTEXT://:9092,CONTROLLER://:9093\ncontroller.quorum.bootstrap.servers=h:9093\n"
    )
    assert main(["format", "-c", str(file), "-t", "MkU3OEVBNTcwNTJENDM2Qk"]) == 1
    assert "give --standalone" in capsys.readouterr().err


def test_format_prepares_a_directory_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = str(tmp_path / "a"), f"{tmp_path / 'a'},{tmp_path / 'b'}"
    assert main(["format", "--standalone", "--data", first, "-t", "MkU3OEVBNTcwNTJENDM2Qk"]) == 0
    assert main(["format", "--standalone", "--data", first]) == 1
    assert "already formatted" in capsys.readouterr().err
    assert main(["format", "--standalone", "--data", second, "--ignore-formatted"]) == 0
    for name in ("a", "b"):
        assert "cluster.id=MkU3OEVBNTcwNTJENDM2Qk" in (tmp_path / name / "meta.properties").read_text()


CONTROLLER = (
    "process.roles=controller\nnode.id={}\ncontroller.listener.names=CONTROLLER\n"
    "listeners=CONTROLLER://:9093\ncontroller.quorum.bootstrap.servers=a:9093\nlog.dirs={}\n"
)
FIRST = "1@a:9093:8wTLVMuVS7ebtRfBsi2mWg,2@b:9093:gyw8wFj5RpeNNSyHzwJbeg"


def test_the_first_controllers_know_one_another_and_later_ones_nobody(tmp_path: Path) -> None:
    for node_id, flags in ((1, ["--initial-controllers", FIRST]), (3, ["--no-initial-controllers"])):
        file = tmp_path / f"{node_id}.properties"
        file.write_text(CONTROLLER.format(node_id, tmp_path / str(node_id)))
        assert main(["format", "-c", str(file), "-t", "MkU3OEVBNTcwNTJENDM2Qk", *flags]) == 0
    assert "directory.id=8wTLVMuVS7ebtRfBsi2mWg" in (tmp_path / "1" / "meta.properties").read_text()
    assert len(list(tmp_path.glob("1/__cluster_metadata-0/*.checkpoint"))) == 1
    assert not (tmp_path / "3" / "__cluster_metadata-0").exists()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--initial-controllers", "1@a:9093"], "is not id@host:port:directory-id"),
        (["--initial-controllers", FIRST.replace("2@", "1@")], "has an id and a directory id of its own"),
        (["--initial-controllers", ","], "there are no initial controllers"),
        (["-s", "-r", "3.9"], "--release-version 3.9: this version knows 4.0-IV3"),
        (["-s", "-r", "4.2", "-f", "metadata.version=29"], "set the same level"),
        (["-s", "--override", "controller.quorum.voters=1@a:9093"], "must not be set"),
    ],
)
def test_a_quorum_that_makes_no_sense_is_refused(
    flags: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "server.properties"
    file.write_text(CONTROLLER.format(1, tmp_path / "data"))
    assert main(["format", "-c", str(file), *flags]) == 1
    assert said in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


def test_a_release_stands_for_its_last_metadata_version(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["format", "--data", str(tmp_path / "data"), "--release-version", "4.1"]) == 0
    assert "metadata.version 4.1-IV1" in capsys.readouterr().out


def test_an_id_is_as_kafkas(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["random-uuid"]) == 0
    assert len(capsys.readouterr().out.strip()) == 22


def test_standalone_excludes_the_other_quorums(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["format", "--standalone", "--no-initial-controllers"])
    assert "not allowed with argument" in capsys.readouterr().err


def test_asking_for_help_imports_nothing_heavy(tmp_path: Path) -> None:
    import subprocess
    import sys

    script = (
        "import sys\nfrom moldau.broker.cli.command import parser\nparser()\n"
        "print([name for name in sys.modules if name.split('.')[0] in "
        "('asyncio', 'uvloop', 'protocol', 'storage', 'kraft', 'coordinator', 'lz4', 'zstandard', 'json')])"
    )
    root = Path(__file__).parents[4]
    done = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=True)
    assert literal_eval(done.stdout) == []


def test_serving_imports_no_other_subcommand_and_nothing_that_only_help_needs() -> None:
    import subprocess
    import sys

    script = (
        "import sys\nfrom moldau.broker.cli.command import parser\nparser(None, 'serve').parse_args(['serve'])\n"
        "print([name for name in sys.modules if name in ('pathlib', 'shutil', 'moldau.broker.cli.cluster')])"
    )
    root = Path(__file__).parents[4]
    done = subprocess.run([sys.executable, "-S", "-c", script], cwd=root, capture_output=True, text=True, check=True)
    assert literal_eval(done.stdout) == []


def test_a_first_word_that_names_no_subcommand_has_all_of_them_to_choose_from(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        parser(None, "xyzzy").parse_args(["xyzzy"])
    assert "'serve', 'cluster'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["serv"], "serve"),
        (["serve", "--overide", "num.partitions=3"], "--override"),
        (["serve", "--greeting", "jsno"], "json"),
        (["spark", "reprot"], "report"),
        (["read", "--topik=orders"], "--topic"),
        (["topics", "--list"], "topic"),
        (["topic", "--list"], "list"),
        (["group", "--describe", "--group", "kitchen"], "describe and GROUP without --group"),
        (["list", "topics"], "topic list"),
        (["describe", "topic", "orders"], "topic describe"),
        (["kafka-console-consumer.sh", "--topic", "orders"], "consume"),
        (["consumer-groups"], "group"),
        (["-L"], "topic list"),
        (["-C", "-t", "orders"], "consume"),
        (["consume", "-t", "orders"], "TOPIC without -t"),
        (["consume", "orders", "-c", "1"], "--count"),
        (["consume", "orders", "--partition", "0"], "TOPIC[:PARTITION,...]"),
        (["consume", "orders", "-G", "kitchen"], "--group"),
        (["group", "reset", "kitchen", "--to-earliest"], "--to earliest"),
        (["acl", "add", "--allow-principal", "User:alice", "--topic", "orders"], "--principal"),
        (["config", "describe", "topic", "orders"], "get"),
        (["config", "alter", "topic", "orders"], "set"),
        (["group", "describe", "-g", "kitchen"], "GROUP without -g"),
    ],
)
def test_a_name_with_a_mistake_is_told_the_name_that_was_meant(
    words: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 2
    assert capsys.readouterr().err.rstrip().endswith(f"; did you mean {meant}?")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["topic"], "required: ACTION, one of list, describe, create, alter, delete, delete-records"),
        (["topics"], "argument COMMAND: invalid choice: 'topics'; did you mean topic?"),
    ],
)
def test_choices_are_listed_unless_one_was_meant(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(words)
    assert capsys.readouterr().err.rstrip().endswith(told)


def test_nothing_is_guessed_for_a_name_like_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--xyzzy"])
    assert "did you mean" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("variables", "remedy"),
    [
        ({}, ".venv/bin/pip install -e '.[sql]'"),
        (
            {IMAGE_EXTRAS_VARIABLE: "tiered"},
            "build the image with it: docker build --build-arg EXTRAS=tiered,sql -t moldau .",
        ),
    ],
)
def test_all_missing_packages_of_an_extra_are_named_at_once(variables: dict[str, str], remedy: str) -> None:
    terminal = Terminal(io.StringIO(), {})
    invocation = Invocation(terminal, terminal, variables)
    with pytest.raises(CommandError) as refusal:
        invocation.require(("gone", "pathlib", "lost", "away"), "sql")
    assert str(refusal.value) == f"gone, lost and away are not installed: {remedy}"
    invocation.require(("pathlib",), "sql")


def test_a_wheel_is_told_to_pip_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(invocation_module, "is_checkout", lambda: False)
    terminal = Terminal(io.StringIO(), {})
    with pytest.raises(CommandError, match=r"^gone is not installed: pip install 'moldau\[sql\]'$"):
        Invocation(terminal, terminal, {}).require(("gone",), "sql")


def test_windows_is_refused_with_the_names_of_what_works_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    assert main(["version"]) == 1
    assert capsys.readouterr().err.startswith("moldau: Moldau does not run on Windows: use the container image, or WSL")


@pytest.mark.parametrize(
    ("line", "name", "expected"),
    [
        ("produce orders -b h:1 a.csv b.csv", "files", ["a.csv", "b.csv"]),
        ("produce orders a.csv -b h:1 b.csv", "files", ["a.csv", "b.csv"]),
        ("produce orders a.csv b.csv -b h:1", "files", ["a.csv", "b.csv"]),
        ("config get topic -b h:1 orders", "words", ["orders"]),
        ("topic list -b h:1 orders", "names", ["orders"]),
    ],
)
def test_arguments_may_stand_behind_options(line: str, name: str, expected: list[str]) -> None:
    words = line.split()
    parsed = parser(Terminal(io.StringIO(), {}), words[0]).parse_args(words)
    assert getattr(parsed, name) == expected


def test_an_argument_too_many_is_still_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["group", "describe", "kitchen", "-b", "h:1", "--no-such-option", "x"])
    assert "unrecognized arguments: --no-such-option" in capsys.readouterr().err


def bare_errors(handler: ast.ExceptHandler) -> list[int]:
    """The lines of a handler of OSError whose texts have the exception itself, with its number."""
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    if not any(isinstance(each, ast.Name) and each.id.endswith("OSError") for each in caught):
        return []
    shown = [node.value for node in ast.walk(handler) if isinstance(node, ast.FormattedValue)]
    return [node.lineno for node in shown if isinstance(node, ast.Name) and node.id == handler.name]


def test_a_failure_says_what_went_wrong_without_the_number_of_the_error() -> None:
    root = Path(invocation_module.__file__).parent
    found = [
        f"{path.relative_to(root)}:{line}"
        for path in root.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ExceptHandler)
        for line in bare_errors(node)
    ]
    assert found == []


def test_a_dump_that_cannot_be_written_does_not_blame_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class FullDisk(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\n")
    monkeypatch.setattr(sys, "stdout", FullDisk())
    assert main(["dump-log", str(tmp_path)]) == 1
    assert capsys.readouterr().err == "moldau: the output cannot be written: No space left on device\n"
