"""`moldau erase` against a node: dry run, erasure, receipt, signature, what `--verify` finds, and each mistake."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from moldau.testing.namespace import Namespace
from tests.support.daily_command import DailyCommand
from tests.unit.broker.cli.daily.test_imports import WITHOUT_EXTRAS

pytestmark = pytest.mark.processes


def test_an_erasure_and_its_receipt(kafka: Namespace, tmp_path: Path) -> None:
    run, topic, path = DailyCommand(kafka.bootstrap_servers), kafka.topic("erase"), tmp_path / "receipt.json"
    lines = "".join(f"k{number % 5}:v{number}\n" for number in range(20))
    run.done("produce", topic, "--key-separator", ":", given=lines)
    run.done("config", "set", "brokers", "moldau.erase.enable=false")

    told = run.rows("erase", topic, "--key", "k3")
    assert sum(each["records"] for each in told) == 4
    assert len(run.done("consume", topic, "-e").splitlines()) == 20
    refused = run("erase", topic, "--key", "k3", "--execute", "--receipt", str(path))
    assert refused.status == 1 and "moldau.erase.enable is false" in refused.err
    assert not path.exists()

    run.done("config", "set", "brokers", "moldau.erase.enable=true")
    key = tmp_path / "key.pem"
    key.write_bytes(Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public = tmp_path / "public.pem"
    public.write_bytes(
        Ed25519PrivateKey.generate().public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    for mistake in (
        ("--receipt", str(tmp_path)),
        ("--receipt", str(tmp_path / "none" / "receipt.json")),
        ("--sign-key", str(tmp_path / "none.pem")),
        ("--sign-key", str(public)),
    ):
        assert run("erase", topic, "--key", "k3", "--execute", *mistake).status == 2, "no receipt could be written"
    assert len(run.done("consume", topic, "-e").splitlines()) == 20

    said = run("erase", topic, "--key", "k3", "--execute", "--receipt", str(path), "--sign-key", str(key))
    assert said.status == 0, said.err
    assert "not reached: copies that consumers have made" in said.err
    assert sorted(run.done("consume", topic, "-e").splitlines()) == sorted(
        f"v{number}" for number in range(20) if number % 5 != 3
    )
    receipt = json.loads(path.read_text())
    assert path.stat().st_mode & 0o077 == 0
    assert receipt["topic"] == topic and receipt["asked_by"].startswith("User:")
    segments = [each for order in receipt["orders"] for told in order["replicas"] for each in told["segments"]]
    assert sum(each["records_erased"] for each in segments) == 4
    assert all(each["crc_before"] != each["crc_after"] for each in segments)
    del receipt["signature"]  # Base64 may have any two characters.
    assert "k3" not in json.dumps(receipt)

    for further in ((), ("--key", "k3"), ("--sign-key", str(key))):
        assert run("erase", "--verify", str(path), *further).status == 0
    run.done("produce", topic, "--key-separator", ":", given="k3:newer\n")
    rows = run("erase", "--verify", str(path), "--key", "k3", "--json").rows
    assert [sum(each[name] for each in rows) for name in ("records_left", "newer")] == [0, 1]
    assert run.done("erase", topic, "--key", "gone").startswith("no record passes the filters")
    find_a_remainder(run, path, key)


def test_an_erasure_without_tables_needs_no_extra(kafka: Namespace, tmp_path: Path) -> None:
    run, topic, path = DailyCommand(kafka.bootstrap_servers), kafka.topic("erase"), str(tmp_path / "receipt.json")
    run.done("produce", topic, "--key-separator", ":", given="ada:1\ngrace:2\n")
    run.done("config", "set", "brokers", "moldau.erase.enable=true")
    for words in (["erase", topic, "--execute", "--receipt", path], ["erase", "--verify", path]):
        words += ["--key", "ada", "-b", kafka.bootstrap_servers]
        program = f"{WITHOUT_EXTRAS}\nfrom moldau.broker.cli.command import main\nsys.exit(main({words!r}))"
        subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    assert run.done("consume", topic, "-e") == "2\n"


def test_a_field_that_no_value_has_is_told(kafka: Namespace, tmp_path: Path) -> None:
    run, topic, path = DailyCommand(kafka.bootstrap_servers), kafka.topic("erase-field"), tmp_path / "receipt.json"
    run.done("produce", topic, given='{"who": {"email": "a@x.org"}}\n')
    said = run("erase", topic, "--where", "how.email=a@x.org", "--execute", "--receipt", str(path))
    assert said.out.startswith("no record passes the filters")
    assert "none of the compared values has the field how.email; the fields are who" in said.err
    assert run.done("erase", topic, "--where", "who.email=a@x.org").startswith("TOPIC")
    assert not path.exists()


def test_an_order_that_is_too_large_for_the_topic_is_sent_in_parts(kafka: Namespace, tmp_path: Path) -> None:
    run, topic, path = DailyCommand(kafka.bootstrap_servers), kafka.topic("erase-parts"), tmp_path / "receipt.json"
    lines = "".join(f"k{number % 2}:v{number}\n" for number in range(40))
    run.done("produce", topic, "--key-separator", ":", given=lines)
    run.done("config", "set", "brokers", "moldau.erase.enable=true")
    run.done("config", "set", "topic", topic, "max.message.bytes=350")
    said = run("erase", topic, "--key", "k1", "--execute", "--receipt", str(path))
    assert said.status == 0, said.err
    assert sorted(run.done("consume", topic, "-e").splitlines()) == sorted(f"v{number}" for number in range(0, 40, 2))
    orders = json.loads(path.read_text())["orders"]
    assert len(orders) > len({each["partition"] for each in orders})
    assert sum(len(each["runs"]) for each in orders) == 20
    assert run("erase", "--verify", str(path)).status == 0


def test_the_receipt_of_a_topic_that_was_made_again_is_refused(kafka: Namespace, tmp_path: Path) -> None:
    run, topic, path = DailyCommand(kafka.bootstrap_servers), kafka.topic("erase-again", 1), tmp_path / "receipt.json"
    run.done("produce", topic, "--key-separator", ":", given="ada:1\ngrace:2\n")
    run.done("config", "set", "brokers", "moldau.erase.enable=true")
    assert run("erase", topic, "--key", "ada", "--execute", "--receipt", str(path)).status == 0
    run.done("topic", "delete", topic, "--execute")
    run.done("topic", "create", topic, "-p", "1", "-r", "1")
    said = run("erase", "--verify", str(path))
    assert said.status == 1 and "it was deleted and created again" in said.failure


def find_a_remainder(run: DailyCommand, path: Path, key: Path) -> None:
    """A receipt that claims more than was erased: `--verify` finds the record, and the signature does not fit."""
    receipt = json.loads(path.read_text())
    order = receipt["orders"][0]
    free = next(each for each in range(9) if all(not first <= each <= last for first, last in order["runs"]))
    order["runs"].append([free, free])
    path.write_text(json.dumps(receipt))
    found = run("erase", "--verify", str(path))
    assert found.status == 1 and "1 record of the receipt found" in found.out
    assert "was changed" in run("erase", "--verify", str(path), "--sign-key", str(key)).failure
    assert "not those of the receipt" in run("erase", "--verify", str(path), "--key", "other").failure


def test_a_predicate_of_sql_over_decoded_values(kafka: Namespace, tmp_path: Path) -> None:
    for library in ("duckdb", "pyarrow"):
        pytest.importorskip(library, reason="the extra moldau[sql] is not installed")
    run, topic, path = DailyCommand(kafka.bootstrap_servers), kafka.topic("erase-sql"), tmp_path / "receipt.json"
    values = [json.dumps({"id": number, "who": {"email": f"u{number % 3}@x.org"}}) for number in range(9)]
    run.done("produce", topic, given="\n".join(values))
    run.done("config", "set", "brokers", "moldau.erase.enable=true")
    chosen = ("--sql", "value.who.email = 'u1@x.org' and value.id > 1", "--schema", "sample")
    assert sum(each["records"] for each in run.rows("erase", topic, *chosen)) == 2
    assert sum(each["records"] for each in run.rows("erase", topic, *chosen, "--grep", '"id": 4')) == 1
    said = run("erase", topic, *chosen, "--execute", "--receipt", str(path))
    assert said.status == 0, said.err
    left = [json.loads(each)["id"] for each in run.done("consume", topic, "-e").splitlines()]
    assert sorted(left) == [0, 1, 2, 3, 5, 6, 8]
    assert "x.org" not in path.read_text()
    assert run("erase", "--verify", str(path)).status == 0

    wrong = run("erase", topic, "--sql", "value.emal = 'a'", "--schema", "sample")
    assert wrong.status == 1 and "--sql: " in wrong.err and "emal" in wrong.err
    cut = run("erase", topic, "--sql", "value.who.email =", "--schema", "sample")
    for said in (wrong, cut):
        assert len(said.err.splitlines()) == 2, "a line says what is read, and one what is wrong"
    assert "run the command with --sql again" in run("erase", "--verify", str(path), *chosen).failure
    run.done("produce", topic, given="not JSON\n")
    assert run("erase", topic, "--sql", "value.id = 1", "--schema", "sample", "--execute").status == 1
    assert len(run.done("consume", topic, "-e").splitlines()) == 8, "what cannot be decoded may be of the person"


def test_mistakes(kafka: Namespace, tmp_path: Path) -> None:
    run = DailyCommand(kafka.bootstrap_servers)
    assert "give a topic" in run("erase").failure
    assert "give --key" in run("erase", "orders").failure
    assert "decode values for --sql" in run("erase", "orders", "--key", "a", "--schema", "sample").failure
    assert "--tables needs --warehouse" in run("erase", "orders", "--key", "a", "--tables", "t").failure
    assert "goes with --verify" in run("erase", "orders", "--key", "a", "--storage", "/tmp").failure
    assert run("erase", "no-such-topic", "--key", "a").status == 3
    assert "cannot be read" in run("erase", "--verify", str(tmp_path / "missing")).failure
    turned = run("erase", "orders", "--key", "a", "--from", "2026-02-01", "--to", "2026-01-01")
    assert turned.status == 2 and "--from 2026-02-01 is not before --to 2026-01-01" in turned.failure
    receipt = {"version": 1, "cluster_id": "c", "topic": "orders", "predicate_sha256": "", "predicate_salt": ""}
    order = {"partition": 0, "offset": 5, "runs": [[1, 2]]}
    (tmp_path / "receipt.json").write_text(json.dumps(receipt | {"orders": [order]}))
    said = run("erase", "customers", "--verify", str(tmp_path / "receipt.json"))
    assert said.status == 2 and "the receipt is of the topic orders, not of customers" in said.failure
    damaged: list[dict[str, object]] = [
        {},
        receipt,
        receipt | {"orders": [], "predicate_salt": "no hex"},
        *(receipt | {"orders": [order | {"runs": runs}]} for runs in ("abc", [[1]], [["1", "2"]])),
    ]
    for content in damaged:
        (tmp_path / "other.json").write_text(json.dumps(content))
        said = run("erase", "--verify", str(tmp_path / "other.json"))
        assert said.status == 2 and "is not a receipt" in said.failure
