"""AlterUserScramCredentials; results were observed on Apache Kafka 4.3.1."""

from __future__ import annotations

import pytest

from moldau.kraft.image.security.scram_credentials import ScramKey
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from moldau.security.sasl.scram.credential import ScramMechanism, credential_of_password, salted_password
from tests.support.deciding import Deciding

TWICE = (ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")
MISSING = (ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
UNKNOWN = (ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
DONE = (ErrorCode.NONE, None)
SALTED = salted_password(ScramMechanism.SCRAM_SHA_256, b"secret", b"salt", 4096)


def up(
    user: str = "alice", mechanism: int = 1, iterations: int = 4096, salted: bytes = SALTED
) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(
        name=user, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=salted
    )


def gone(user: str = "alice", mechanism: int = 1) -> ScramCredentialDeletion:
    return ScramCredentialDeletion(name=user, mechanism=mechanism)


def alter(
    cluster: Deciding, *changes: ScramCredentialUpsertion | ScramCredentialDeletion
) -> dict[str, tuple[int, str | None]]:
    request = AlterUserScramCredentialsRequest(
        deletions=[each for each in changes if isinstance(each, ScramCredentialDeletion)],
        upsertions=[each for each in changes if isinstance(each, ScramCredentialUpsertion)],
    )
    reply = cluster.ask(request)
    assert isinstance(reply, AlterUserScramCredentialsResponse)
    return {each.user: (each.error_code, each.error_message) for each in reply.results}


def test_a_credential_follows_from_the_salted_password() -> None:
    cluster = Deciding()
    assert alter(cluster, up()) == {"alice": DONE}
    expected = credential_of_password(ScramMechanism.SCRAM_SHA_256, "secret", b"salt")
    assert cluster.image.scram.credentials.get(ScramKey("alice", 1)) == expected
    assert cluster.replayed_snapshot() == cluster.image
    assert alter(cluster, gone()) == {"alice": DONE}
    assert len(cluster.image.scram.credentials) == 0
    assert alter(cluster, gone()) == {"alice": MISSING}


@pytest.mark.parametrize(
    ("change", "outcome"),
    [
        (up(iterations=4095), (ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")),
        (up(iterations=16385), (ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")),
        (up(iterations=16384), DONE),
        (up(mechanism=0), UNKNOWN),
        (up(mechanism=9), UNKNOWN),
        (gone(mechanism=9), UNKNOWN),
        (up(user=""), (ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")),
        (gone(user=""), (ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")),
        (up(salted=b""), (ErrorCode.UNACCEPTABLE_CREDENTIAL, "The salted password must not be empty")),
        (up(user=" x=,y "), DONE),
    ],
)
def test_one_change(
    change: ScramCredentialUpsertion | ScramCredentialDeletion, outcome: tuple[int, str | None]
) -> None:
    cluster = Deciding()
    assert alter(cluster, change) == {change.name: outcome}
    assert bool(cluster.written) == (outcome == DONE)


def test_a_user_is_named_once_whatever_the_mechanism() -> None:
    cluster = Deciding()
    assert alter(cluster, up("b"), up("b", mechanism=2)) == {"b": TWICE}
    assert alter(cluster, up("d")) == {"d": DONE}
    assert alter(cluster, gone("d"), up("d")) == {"d": TWICE}
    assert alter(cluster, gone("c"), up("c")) == {"c": MISSING}
    assert alter(cluster, gone("zz"), up("yy")) == {"zz": MISSING, "yy": DONE}
    assert alter(cluster) == {}
    assert sorted(key.user for key in cluster.image.scram.credentials) == ["d", "yy"]
