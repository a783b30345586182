"""The SCRAM exchange (RFC 5802): its messages, the server's side, and the client's side.

    client first    gs2 header, then n=user,r=nonce and extensions       n,,n=alice,r=abc,tokenauth=true
    server first    r=nonces,s=salt,i=iterations                         r=abcdef,s=c2FsdA==,i=4096
    client final    c=gs2 header,r=nonces,p=proof                        c=biws,r=abcdef,p=...
    server final    v=signature, or e=error

The messages are read strictly, because they arrive before authentication. The client proves that it knows a password,
and verifies that the server knows it too.

A client that cannot log in does not learn whether the user exists:

    first message   The salt and the iterations of an unknown user are derived from its name and a secret of the
                    cluster. Their form (iterations, size and alphabet of the salt) is that of a real credential. Each
                    form has the same share of the unknown users as of the real ones. If credentials are added or
                    removed, only a small share of the unknown users gets another form.
    proof           It is computed for a credential that no proof satisfies. The error is that for a wrong password.
    work            The work for an unknown user is also done for each known user.

The same holds for the ids of delegation tokens, whose salts are random bytes, with one exception: the first login with
a token on a node takes some milliseconds longer, because its credential is derived then. These ids cannot be guessed.

DIVERGES: Apache Kafka refuses an unknown user at its first message, so that a client can find out which users exist.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
from base64 import b64decode, b64encode
from collections.abc import Callable
from hmac import compare_digest
from typing import Final, NamedTuple, Protocol

from moldau.security.principal import USER, Principal
from moldau.security.sasl.mechanism import (
    Authenticated,
    Challenge,
    ClientMechanism,
    Failed,
    LoginFailed,
    Mechanism,
    Step,
)
from moldau.security.sasl.scram.credential import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    ScramCredential,
    ScramForm,
    ScramMechanism,
    client_key,
    digest,
    exclusive_or,
    hmac_digest,
    salt_of_number,
    salted_password,
    server_key,
)

TOKEN_EXTENSION: Final = "tokenauth"
"""The extension `tokenauth=true`: the user name is the id of a delegation token (KIP-48)."""
MESSAGE_SIZE_MAX: Final = 8_192
"""The maximum size (bytes) of a message; regular messages have some hundred bytes."""


class MalformedScram(ValueError):
    """Raised if bytes are not a valid SCRAM message. The text says what is wrong, without the message's contents."""


class ClientFirst(NamedTuple):
    gs2_header: str
    authorization_id: str
    user: str
    nonce: str
    extensions: dict[str, str]
    bare: str
    """The message without its gs2 header. The proofs of both sides cover it."""


class ServerFirst(NamedTuple):
    nonce: str
    salt: bytes
    iterations: int


class ClientFinal(NamedTuple):
    channel_binding: bytes
    nonce: str
    proof: bytes
    without_proof: str


def parse_client_first(message: bytes) -> ClientFirst:
    """Parse the client's first message. Raises `MalformedScram`.

    A client that requires channel binding is refused, because no mechanism here supports it.
    """
    text = _text(message)
    flag, comma, rest = text.partition(",")
    authorization, second_comma, bare = rest.partition(",")
    if not (comma and second_comma):
        raise MalformedScram("the first message has no header")
    if flag.startswith("p="):
        raise MalformedScram("the client requires channel binding")
    if flag not in ("n", "y"):
        raise MalformedScram("the first message does not say whether it uses channel binding")
    if authorization and not authorization.startswith("a="):
        raise MalformedScram("the header is neither empty nor an authorization id")
    fields = _fields(bare)
    if fields[0][0] == "m":
        raise MalformedScram("the client requires an extension that is not known")
    if len(fields) < 2 or fields[0][0] != "n" or fields[1][0] != "r":
        raise MalformedScram("the first message has no user and nonce")
    user, nonce = unescaped_name(fields[0][1]), fields[1][1]
    if not user:
        raise MalformedScram("the user is empty")
    return ClientFirst(
        f"{flag},{authorization},",
        unescaped_name(authorization[2:]),
        user,
        _nonce(nonce),
        dict(fields[2:]),
        bare,
    )


def parse_server_first(message: bytes) -> ServerFirst:
    """Parse the server's first message. Raises `MalformedScram`."""
    fields = _fields(_text(message))
    if [name for name, _ in fields[:3]] != ["r", "s", "i"]:
        raise MalformedScram("the server's first message lacks nonce, salt or iterations")
    iterations = fields[2][1]
    if not (iterations.isascii() and iterations.isdigit() and len(iterations) <= 9):
        raise MalformedScram("the iterations are not a number")
    return ServerFirst(_nonce(fields[0][1]), _bytes(fields[1][1]), int(iterations))


def parse_client_final(message: bytes) -> ClientFinal:
    """Parse the client's final message. Raises `MalformedScram`."""
    text = _text(message)
    without_proof, separator, proof = text.rpartition(",p=")
    if not separator:
        raise MalformedScram("the final message has no proof")
    fields = _fields(without_proof)
    if len(fields) < 2 or fields[0][0] != "c" or fields[1][0] != "r":
        raise MalformedScram("the final message lacks channel binding or nonce")
    return ClientFinal(_bytes(fields[0][1]), _nonce(fields[1][1]), _bytes(proof), without_proof)


def parse_server_final(message: bytes) -> bytes:
    """Parse the server's final message. Returns the server's signature.

    Raises `MalformedScram`, also for an error that the server sends instead.
    """
    name, value = _fields(_text(message))[0]
    if name == "e":
        raise MalformedScram(f"the server says {value[:100]!r}")
    if name != "v":
        raise MalformedScram("the server's final message has no signature")
    return _bytes(value)


def base64_text(data: bytes) -> str:
    return b64encode(data).decode("ascii")


def escaped_name(name: str) -> str:
    """A user name as it is written in messages: `=` becomes =3D and `,` becomes =2C."""
    return name.replace("=", "=3D").replace(",", "=2C")


def unescaped_name(name: str) -> str:
    """Decode a user name. Raises `MalformedScram` for a `=` that begins neither =3D nor =2C."""
    parts = name.split("=")
    if any(part[:2] not in ("2C", "3D") for part in parts[1:]):
        raise MalformedScram("a name holds = which is not escaped")
    return parts[0] + "".join({"2C": ",", "3D": "="}[part[:2]] + part[2:] for part in parts[1:])


def _text(message: bytes) -> str:
    if len(message) > MESSAGE_SIZE_MAX:
        raise MalformedScram("the message is too large")
    try:
        text = bytes(message).decode("utf-8")
    except UnicodeDecodeError:
        raise MalformedScram("the message is not valid UTF-8") from None
    if "\0" in text:
        raise MalformedScram("the message holds a NUL")
    return text


def _fields(text: str) -> list[tuple[str, str]]:
    """Split a message into its fields, `name=value` separated by commas. Raises `MalformedScram`, also if a name is
    repeated.
    """
    fields = []
    for each in text.split(","):
        name, equals, value = each.partition("=")
        if not (name.isascii() and name.isalpha() and equals):
            raise MalformedScram("a field has no name")
        fields.append((name, value))
    if len({name for name, _ in fields}) < len(fields):
        raise MalformedScram("a field is there twice")
    return fields


def _nonce(text: str) -> str:
    if not text or not all("!" <= char <= "~" for char in text):
        raise MalformedScram("the nonce is empty or not printable")
    return text


def _bytes(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise MalformedScram("a field is not base64") from None


NONCE_SIZE: Final = 18
"""The number of random bytes in the server's nonce. The nonce has them in base64."""
DRAW_BITS: Final = 64
"""The size (bits) of the random number that chooses the form of the answer to an unknown user."""


class TokenCredential(NamedTuple):
    """The credential of a delegation token with which a client logs in. The owner of the token becomes the client's
    principal.
    """

    credential: ScramCredential
    owner: Principal
    expires_at_ms: int


class ScramUsers(Protocol):
    """Looks up the current SCRAM credentials of users and delegation tokens."""

    def credential(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        """The credential of a user for a mechanism; None if the user has none."""

    def drawn_form(self, mechanism: ScramMechanism, draw: int) -> ScramForm:
        """Choose the form of a credential of a user for a mechanism by the random number `draw` of `DRAW_BITS` bits.
        Each form is chosen as often as it occurs among the credentials."""

    def token(self, mechanism: ScramMechanism, token_id: str) -> TokenCredential | None:
        """The credential and the owner of a delegation token; None if the token does not exist or has expired."""


class ScramServer(Mechanism):
    """The server's side of one SCRAM exchange with a client."""

    def __init__(
        self,
        mechanism: ScramMechanism,
        users: ScramUsers,
        random_bytes: Callable[[int], bytes],
        secret: bytes,
    ) -> None:
        """`secret` is the key from which the salts of unknown users are derived.

        It must be the same on all nodes and must never change: the salts of existing users do not change either, so a
        changed salt would reveal that a user does not exist.
        """
        self._mechanism = mechanism
        self._users = users
        self._random_bytes = random_bytes
        self._secret = secret
        self._first: ClientFirst | None = None
        self._server_first = ""
        self._nonce = ""
        self._credential: ScramCredential | None = None
        self._token: TokenCredential | None = None
        self._is_over = False

    def step(self, message: bytes) -> Step:
        if self._is_over:
            return self._failed("the client goes on after the end of the exchange")
        try:
            return self._begin(message) if self._first is None else self._finish(self._first, message)
        except MalformedScram as error:
            return self._failed(str(error))

    def _begin(self, message: bytes) -> Step:
        first = parse_client_first(message)
        if first.authorization_id not in ("", first.user):
            return self._failed(f"user {first.user!r} asked to act as {first.authorization_id!r}")
        if first.extensions.get(TOKEN_EXTENSION, "").lower() == "true":
            fake = self._fake_token(first.user)
            self._token = self._users.token(self._mechanism, first.user)
            self._credential = None if self._token is None else self._token.credential
        else:
            fake = self._fake_user(first.user)
            self._credential = self._users.credential(self._mechanism, first.user)
        shown = self._credential or fake
        salt, iterations = shown.salt, shown.iterations
        self._first = first
        self._nonce = first.nonce + base64_text(self._random_bytes(NONCE_SIZE))
        self._server_first = f"r={self._nonce},s={base64_text(salt)},i={iterations}"
        return Challenge(self._server_first.encode())

    def _finish(self, first: ClientFirst, message: bytes) -> Step:
        final = parse_client_final(message)
        if not compare_digest(final.nonce.encode(), self._nonce.encode()):
            return self._failed(f"user {first.user!r} answered with another nonce")
        if final.channel_binding != first.gs2_header.encode():
            return self._failed(f"user {first.user!r} answered with another header")
        signed = f"{first.bare},{self._server_first},{final.without_proof}".encode()
        fake = self._fake_credential(b"", ITERATIONS_MIN)
        credential = self._credential or fake
        if not self._is_proof(credential, signed, final.proof) or self._credential is None:
            return self._failed(f"user {first.user!r} is unknown or its password is wrong")
        self._is_over = True
        signature = hmac_digest(self._mechanism, credential.server_key, signed)
        reply = f"v={base64_text(signature)}".encode()
        if self._token is not None:
            owner = self._token.owner._replace(is_token_authenticated=True)
            return Authenticated(reply, owner, self._token.expires_at_ms)
        return Authenticated(reply, Principal(USER, first.user))

    def _is_proof(self, credential: ScramCredential, signed: bytes, proof: bytes) -> bool:
        if len(proof) != self._mechanism.key_size:
            return False
        key = exclusive_or(proof, hmac_digest(self._mechanism, credential.stored_key, signed))
        return compare_digest(digest(self._mechanism, key), credential.stored_key)

    def _fake_user(self, user: str) -> ScramCredential:
        """A credential for an unknown user that no proof satisfies. The client sees its salt and its number of
        iterations. These are the same at every attempt, as long as the forms of the users' credentials do not change.
        """
        named = f"{self._mechanism.mechanism_name}\0{user}".encode()
        draw = int.from_bytes(hmac.digest(self._secret, b"form\0" + named, "sha256")[: DRAW_BITS // 8], "big")
        form = self._users.drawn_form(self._mechanism, draw)
        seed = hmac.digest(self._secret, named, "sha256")
        salt = hashlib.shake_256(seed).digest(form.salt_size) or salt_of_number(int.from_bytes(seed, "big"))
        return self._fake_credential(salt, form.iterations)

    def _fake_token(self, token_id: str) -> ScramCredential:
        """A credential for an unknown delegation token that no proof satisfies. Its salt has the form that
        `credential_of_token` makes.
        """
        named = f"{self._mechanism.mechanism_name}\0{token_id}".encode()
        return self._fake_credential(hmac.digest(self._secret, b"token\0" + named, "sha256"), ITERATIONS_MIN)

    def _fake_credential(self, salt: bytes, iterations: int) -> ScramCredential:
        """A credential with this salt and number of iterations that no proof satisfies."""
        key = self._random_bytes(self._mechanism.key_size)
        return ScramCredential(salt, key, key, iterations)

    def _failed(self, reason: str) -> Failed:
        self._is_over = True
        return Failed(
            "Authentication failed during authentication due to invalid credentials with SASL mechanism "
            + self._mechanism.mechanism_name,
            reason,
        )


_HEADER: Final = "n,,"


class ScramLogin:
    """A user name and password with which this node logs in, for many exchanges.

    The salted password, which takes long to compute, is cached until a server sends another salt or number of
    iterations.
    """

    __slots__ = ("_password", "_salted", "mechanism", "user")

    def __init__(self, mechanism: ScramMechanism, user: str, password: str) -> None:
        self.mechanism = mechanism
        self.user = user
        self._password = password.encode()
        self._salted: tuple[bytes, int, bytes] | None = None

    def salted_password(self, salt: bytes, iterations: int) -> bytes:
        known = self._salted
        if known is None or known[:2] != (salt, iterations):
            known = salt, iterations, salted_password(self.mechanism, self._password, salt, iterations)
            self._salted = known
        return known[2]

    def __repr__(self) -> str:
        return f"ScramLogin of {self.user}"


class ScramClient(ClientMechanism):
    """The client's side of one SCRAM exchange with a server."""

    def __init__(self, login: ScramLogin, random_bytes: Callable[[int], bytes], extensions: str = "") -> None:
        """`extensions`: the text of extensions at the end of the first message, such as `,tokenauth=true`."""
        self.name = login.mechanism.mechanism_name
        self._login = login
        self._nonce = base64_text(random_bytes(NONCE_SIZE))
        self._bare = f"n={escaped_name(login.user)},r={self._nonce}{extensions}"
        self._signature: bytes | None = None
        self._is_over = False

    def first(self) -> bytes:
        return (_HEADER + self._bare).encode()

    def answer(self, challenge: bytes) -> bytes | None:
        if self._is_over:
            raise LoginFailed("the server goes on after the end of the exchange")
        try:
            if self._signature is None:
                return self._proof(challenge)
            self._check(challenge, self._signature)
        except MalformedScram as error:
            raise LoginFailed(str(error)) from None
        return None

    def _proof(self, challenge: bytes) -> bytes:
        first = parse_server_first(challenge)
        if not first.nonce.startswith(self._nonce) or len(first.nonce) == len(self._nonce):
            raise LoginFailed("the server answered with another nonce")
        if not ITERATIONS_MIN <= first.iterations <= ITERATIONS_MAX:
            raise LoginFailed(
                f"the server asks for {first.iterations} iterations; {ITERATIONS_MIN} to {ITERATIONS_MAX} are accepted"
            )
        mechanism = self._login.mechanism
        salted = self._login.salted_password(first.salt, first.iterations)
        key = client_key(mechanism, salted)
        final = f"c={base64_text(_HEADER.encode())},r={first.nonce}"
        signed = f"{self._bare},{bytes(challenge).decode()},{final}".encode()
        self._signature = hmac_digest(mechanism, server_key(mechanism, salted), signed)
        proof = exclusive_or(key, hmac_digest(mechanism, digest(mechanism, key), signed))
        return f"{final},p={base64_text(proof)}".encode()

    def _check(self, challenge: bytes, signature: bytes) -> None:
        self._is_over = True
        if not compare_digest(parse_server_final(challenge), signature):
            raise LoginFailed("the server does not know the password")
