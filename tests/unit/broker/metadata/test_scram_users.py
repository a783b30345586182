"""Users and delegation tokens of the metadata log in by SCRAM."""

from __future__ import annotations

from base64 import b64encode
from random import Random
from types import SimpleNamespace

from moldau.broker.metadata.scram_users import MetadataScramUsers
from moldau.kraft.image.security.scram_credentials import ScramKey, record_of
from moldau.protocol.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from moldau.protocol.records.metadata import RemoveUserScramCredentialRecord
from moldau.security.principal import Principal
from moldau.security.sasl.mechanism import Authenticated, Challenge, Failed, Step
from moldau.security.sasl.scram.credential import COMMON_FORM, ScramForm, ScramMechanism, credential_of_password
from moldau.security.sasl.scram.exchange import DRAW_BITS, ScramClient, ScramLogin, ScramServer
from tests.support.deciding import KEY, Deciding
from tests.unit.kraft.image.images import image_of

SHA_256 = ScramMechanism.SCRAM_SHA_256
random = Random(3)


def log_in(users: MetadataScramUsers, user: str, password: str, extensions: str = "") -> Step:
    client = ScramClient(ScramLogin(SHA_256, user, password), random.randbytes, extensions)
    server = ScramServer(SHA_256, users, random.randbytes, b"secret of the cluster")
    first = server.step(client.first())
    assert isinstance(first, Challenge)
    final = client.answer(first.message)
    assert final is not None
    return server.step(final)


def test_a_credential_counts_as_the_metadata_has_it_now() -> None:
    published = SimpleNamespace(image=image_of([]))
    users = MetadataScramUsers(lambda: published.image, None, lambda: 0)
    assert isinstance(log_in(users, "alice", "secret"), Failed)
    record = record_of(ScramKey("alice", SHA_256), credential_of_password(SHA_256, "secret", b"salt"))
    published.image = image_of([record])
    assert isinstance(log_in(users, "alice", "secret"), Authenticated)
    published.image = image_of([])
    assert isinstance(log_in(users, "alice", "secret"), Failed)


def test_an_unknown_user_gets_a_form_as_often_as_known_users_have_it() -> None:
    common, strong = credential_of_password(SHA_256, "a", b"salt"), credential_of_password(SHA_256, "b", b"!", 8192)
    records = [record_of(ScramKey(f"user-{number}", SHA_256), common) for number in range(3)]
    published = SimpleNamespace(image=image_of([]))
    users = MetadataScramUsers(lambda: published.image, None, lambda: 0)

    def drawn() -> list[ScramForm]:
        return [users.drawn_form(SHA_256, eighth << DRAW_BITS - 3) for eighth in range(8)]

    assert drawn() == [COMMON_FORM] * 8
    published.image = image_of([*records, record_of(ScramKey("admin", SHA_256), strong)])
    assert drawn() == [COMMON_FORM] * 6 + [ScramForm(8192, 1)] * 2
    assert users.drawn_form(ScramMechanism.SCRAM_SHA_512, 0) == COMMON_FORM
    published.image = image_of([*records, record_of(ScramKey("user-0", SHA_256), strong)])
    assert sorted(published.image.scram.forms[SHA_256].values()) == [1, 2]
    removed = [RemoveUserScramCredentialRecord(name=f"user-{number}", mechanism=SHA_256) for number in range(3)]
    published.image = image_of([*records, *removed])
    assert published.image.scram.forms == {}


def test_a_token_logs_its_owner_in_until_it_expires() -> None:
    cluster = Deciding()
    users = MetadataScramUsers(lambda: cluster.image, KEY, lambda: cluster.now_ms)
    request = CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=1000)
    token = cluster.ask(request, Principal("User", "alice"))
    assert isinstance(token, CreateDelegationTokenResponse)
    password = b64encode(token.hmac).decode()
    for _ in range(2):
        done = log_in(users, token.token_id, password, ",tokenauth=true")
        assert isinstance(done, Authenticated)
        assert done.principal == Principal("User", "alice", is_token_authenticated=True)
        assert done.expires_at_ms == token.expiry_timestamp_ms
    without_key = MetadataScramUsers(lambda: cluster.image, None, lambda: cluster.now_ms)
    assert isinstance(log_in(without_key, token.token_id, password, ",tokenauth=true"), Failed)
    cluster.now_ms += 1000
    assert isinstance(log_in(users, token.token_id, password, ",tokenauth=true"), Failed)
