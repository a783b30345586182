"""`--add-scram`: what becomes a credential, and what is refused without showing the password."""

from __future__ import annotations

from base64 import b64encode
from random import Random

import pytest

from moldau.broker.cli.scram_credentials import InvalidScram, scram_record
from moldau.security.sasl.scram.credential import ScramMechanism, credential_of_password, salted_password

SHA_512 = ScramMechanism.SCRAM_SHA_512
SALT = b64encode(b"salt").decode()
SALTED = b64encode(salted_password(SHA_512, b"secret", b"salt", 8192)).decode()


def test_a_password_becomes_keys() -> None:
    record = scram_record("SCRAM-SHA-256=[name=alice,password=a=b]", Random(1).randbytes)
    expected = credential_of_password(ScramMechanism.SCRAM_SHA_256, "a=b", record.salt)
    assert (record.name, record.mechanism, record.iterations) == ("alice", 1, 4096)
    assert (record.stored_key, record.server_key) == expected[1:3]
    quoted = scram_record('SCRAM-SHA-256=[ name="a,b" , password="x, y" ]', Random(1).randbytes)
    assert quoted.name == "a,b"
    assert quoted.stored_key == credential_of_password(ScramMechanism.SCRAM_SHA_256, "x, y", quoted.salt).stored_key


def test_a_salted_password_is_taken_as_it_is() -> None:
    argument = f"SCRAM-SHA-512=[name=bob,salt={SALT},saltedpassword={SALTED},iterations=8192]"
    record = scram_record(argument, Random(1).randbytes)
    expected = credential_of_password(SHA_512, "secret", b"salt", 8192)
    assert (record.salt, record.stored_key, record.server_key, record.iterations) == tuple(expected)


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("alice", "takes a credential as"),
        ("SCRAM-SHA-1=[name=a,password=secret]", "the mechanisms are SCRAM-SHA-256, SCRAM-SHA-512"),
        ("SCRAM-SHA-256=[password=secret]", "the name of a user"),
        ("SCRAM-SHA-256=[name=a]", "one of password and saltedpassword"),
        (f"SCRAM-SHA-512=[name=a,password=secret,saltedpassword={SALTED}]", "one of password and saltedpassword"),
        (f"SCRAM-SHA-512=[name=a,saltedpassword={SALTED}]", "needs the salt"),
        (f"SCRAM-SHA-256=[name=a,salt={SALT},saltedpassword={SALTED}]", "64 bytes in place of 32"),
        ("SCRAM-SHA-256=[name=a,password=]", "is empty"),
        ("SCRAM-SHA-256=[name=a,password=secret,iterations=4095]", "from 4096 to 16384"),
        ("SCRAM-SHA-256=[name=a,password=secret,iterations=1000000000000]", "from 4096 to 16384"),
        ("SCRAM-SHA-256=[name=a,password=secret,salt=%]", "in base64"),
        ("SCRAM-SHA-256=[name=a,password=secret,colour=red]", "takes each of"),
        ("SCRAM-SHA-256=[name=a,name=b,password=secret]", "takes each of"),
    ],
)
def test_refusals(argument: str, message: str) -> None:
    with pytest.raises(InvalidScram, match=message) as raised:
        scram_record(argument, Random(1).randbytes)
    assert "password=secret" not in str(raised.value)
