"""The receipt of `moldau erase`: for each erase order the report of every replica; a signature, if a key is given."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from moldau.broker.cli.daily.configs.access import TOPIC
from moldau.broker.cli.daily.failures import Failure, WrongArguments
from moldau.broker.cli.invocation import CommandError, reason_of
from moldau.protocol.erase_orders import RECEIPT_PAGES_MAX, Run, receipt_setting
from moldau.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from moldau.storage.tiered.manifest import checked_integer, checked_text
from moldau.tables.client.cluster import TransientError
from moldau.tables.client.connection import Disconnected

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

    from moldau.broker.cli.daily.client import Client

SIGNATURE: Final = "signature"
Stated = dict[str, Any]
"""A JSON object."""


@dataclass(frozen=True, slots=True)
class OrderSent:
    """An erase order that a leader has appended to its partition: its offset there, and the runs of offsets that are to
    be erased.
    """

    partition: int
    order_id: str
    offset: int
    runs: list[Run]

    def stated(self, states: list[ReplicaState]) -> Stated:
        """The entry of this erase order in the receipt, with the reports of its replicas."""
        replicas = [each.stated() for each in states if each.order_id == self.order_id]
        return {
            "partition": self.partition,
            "order_id": self.order_id,
            "offset": self.offset,
            "runs": [list(run) for run in self.runs],
            "replicas": replicas,
            **({"remote_storage": told} if (told := tier_receipt(self.order_id, states)) else {}),
        }


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """The report of the replica on one broker about one erase order."""

    node_id: int
    order_id: str
    receipt: Stated | None
    """The replica's own receipt for the order; None if the replica has not begun, or was not reached."""
    problem: str | None = None
    """Why the replica was not reached; None if it was."""

    @property
    def is_done(self) -> bool:
        return self.receipt is not None and self.receipt["done_ms"] is not None

    @property
    def is_final(self) -> bool:
        """Whether the replica's receipt is final: the replica is done, and its topic is not in remote storage."""
        return self.is_done and self.receipt is not None and self.receipt.get("tier") is None

    @property
    def segments_count(self) -> int:
        """The number of segments in the replica's receipt."""
        return 0 if self.receipt is None else len(self.receipt["segments"])

    def stated(self) -> Stated:
        state = "erased" if self.is_done else "not reached" if self.problem else "pending"
        told: Stated = {"broker": self.node_id, "state": state}
        if self.problem:
            told["problem"] = self.problem
        if self.receipt is not None:
            told |= {"done_ms": self.receipt["done_ms"], "segments": self.receipt["segments"]}
        return told


def tier_receipt(order_id: str, states: list[ReplicaState]) -> Stated | None:
    """The part of the receipt about remote storage, for one erase order. It is merged from the receipts of all replicas
    that have led the partition since the order. None if the topic is not tiered.
    """
    receipts = [each.receipt for each in states if each.order_id == order_id and each.receipt is not None]
    tiers = [each["tier"] for each in receipts if each.get("tier")]
    if not tiers:
        return None
    done = [each["done_ms"] for each in tiers if each["done_ms"] is not None]
    pinned = [] if done else sorted({segment for each in tiers for segment in each["pinned"]})
    objects = {told["segment_id"]: told for each in tiers for told in each["objects"]}
    return {
        "state": "erased" if done else "pinned" if pinned else "pending",
        "done_ms": min(done, default=None),
        "objects": sorted(objects.values(), key=lambda each: int(each["base_offset"])),
        "pinned": pinned,
    }


def replica_states(
    client: Client, topic: str, sent: list[OrderSent], known: Iterable[ReplicaState] = ()
) -> list[ReplicaState]:
    """Ask each replica for the state of each erase order, except for the states in `known` that are final."""
    final = {(each.node_id, each.order_id): each for each in known if each.is_final}
    metadata = client.known_topics([topic])[topic]
    replicas = {each.partition_index: each.replica_nodes for each in metadata.partitions}
    states = []
    for order in sent:
        for node_id in replicas[order.partition]:
            if (state := final.get((node_id, order.order_id))) is not None:
                states.append(state)
                continue
            try:
                receipt = _receipt_of(client, node_id, topic, order)
                states.append(ReplicaState(node_id, order.order_id, receipt))
            except (TransientError, Disconnected, CommandError) as problem:
                states.append(ReplicaState(node_id, order.order_id, None, str(problem)))
    return states


def _receipt_of(client: Client, node_id: int, topic: str, order: OrderSent) -> Stated | None:
    text, first = "", 0
    while True:
        pages_asked = range(first, first + RECEIPT_PAGES_MAX)
        names = [receipt_setting(order.partition, order.order_id, page) for page in pages_asked]
        resource = DescribeConfigsResource(resource_type=TOPIC, resource_name=topic, configuration_keys=names)
        reply = client.ask_broker(node_id, DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse)
        (result,) = reply.results
        client.check(result.error_code, result.error_message, f"topic {topic} at broker {node_id}")
        pages = {each.name: each.value or "" for each in result.configs}
        text += "".join(pages.get(name, "") for name in names)
        first += RECEIPT_PAGES_MAX
        if not pages.get(names[-1]):
            break
    if not text:
        return None
    try:
        receipt: Stated = json.loads(text)
    except ValueError:
        return None  # It was written anew between two pages.
    return receipt


def write_receipt(path: str, text: str) -> None:
    """Write the text of a receipt into a file that only its owner may read. Raises `Failure`."""
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                with contextlib.suppress(PermissionError):  # A file of another user gets the receipt nevertheless.
                    os.fchmod(file.fileno(), 0o600)  # It may have been there before.
            file.write(text + "\n")
    except OSError as problem:
        raise Failure(
            f"the records are erased, and the receipt could not be written: {path}: {reason_of(problem)}"
        ) from None


def read_receipt(path: str) -> Stated:
    """Read a receipt from a file. Raises `WrongArguments` if it is not a receipt of this version."""
    try:
        with open(path, encoding="utf-8") as file:
            receipt = json.load(file)
        if receipt["version"] != 1:
            raise WrongArguments(f"{path} is a receipt of version {receipt['version']}, and this release reads 1")
        for name in ("cluster_id", "topic", "predicate_sha256"):
            checked_text(receipt[name])
        bytes.fromhex(receipt["predicate_salt"])
        for order in receipt["orders"]:
            ends = [end for first, last in order["runs"] for end in (first, last)]
            for number in (order["partition"], order["offset"], *ends):
                checked_integer(number)
    except OSError as problem:
        raise WrongArguments(f"{path} cannot be read: {problem.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise WrongArguments(f"{path} is not a receipt of 'moldau erase'") from None
    return dict(receipt)


def _content(receipt: Mapping[str, object]) -> bytes:
    stated = {name: value for name, value in receipt.items() if name != SIGNATURE}
    return json.dumps(stated, sort_keys=True, separators=(",", ":")).encode()


def signing_key(key_file: str) -> Ed25519PrivateKey:
    """Read the private key that signs receipts. Raises `WrongArguments`."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = load_key(key_file)
    if not isinstance(key, Ed25519PrivateKey):
        raise WrongArguments(f"{key_file} has a public key: a receipt is signed with the private one")
    return key


def signed_receipt(receipt: Stated, key: Ed25519PrivateKey) -> Stated:
    """Add a signature to a receipt: Ed25519 over the other fields as JSON with sorted keys and without spaces."""
    return receipt | {SIGNATURE: base64.b64encode(key.sign(_content(receipt))).decode()}


def check_signature(receipt: Stated, key_file: str) -> None:
    """Raise `Failure` unless the receipt has a signature of the key in `key_file` that matches its content."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = load_key(key_file)
    public = key.public_key() if isinstance(key, Ed25519PrivateKey) else key
    if SIGNATURE not in receipt:
        raise Failure("the receipt is not signed")
    try:
        public.verify(base64.b64decode(receipt[SIGNATURE]), _content(receipt))
    except (InvalidSignature, ValueError):
        raise Failure("the signature of the receipt is not of this key, or the receipt was changed") from None


def load_key(path: str) -> Ed25519PrivateKey | Ed25519PublicKey:
    """Read an Ed25519 key, private or public, from a PEM file. Raises `WrongArguments`."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key

    try:
        with open(path, "rb") as file:
            data = file.read()
        loads = load_pem_public_key(data) if b"PUBLIC KEY" in data else load_pem_private_key(data, None)
    except OSError as problem:
        raise WrongArguments(f"{path} cannot be read: {problem.strerror}") from None
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise WrongArguments(f"{path} is no Ed25519 key in PEM") from None
    if not isinstance(loads, Ed25519PrivateKey | Ed25519PublicKey):
        raise WrongArguments(f"{path} is no Ed25519 key in PEM")
    return loads
