"""The actions of `moldau user`."""

from __future__ import annotations

from typing import Final

from moldau.broker.cli.daily.client import Client
from moldau.broker.cli.daily.failures import (
    Failure,
    WrongArguments,
    raise_if_error,
    raise_wrong_arguments,
    unknown_failure,
)
from moldau.broker.cli.daily.session import Session
from moldau.broker.cli.daily.topic_changes import DRY_RUN_NOTE
from moldau.broker.cli.invocation import reason_of
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from moldau.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from moldau.security.sasl.scram.credential import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SCRAM_MECHANISMS,
    ScramMechanism,
    new_salt,
    salted_password,
)

SHOWN: Final = ("user", "mechanism", "iterations")


def credentials_of(client: Client, names: list[str]) -> dict[str, dict[str, int]]:
    """Describe the SCRAM credentials of the users `names`, or of all users if the list is empty. Returns the iterations
    by user and mechanism. A user without credentials is left out. Raises `Failure`.
    """
    users = [UserName(name=each) for each in dict.fromkeys(names)] or None
    reply = client.ask(DescribeUserScramCredentialsRequest(users=users), DescribeUserScramCredentialsResponse)
    raise_if_error(reply.error_code, reply.error_message, "the users")
    found = {}
    for each in reply.results:
        if each.error_code == ErrorCode.RESOURCE_NOT_FOUND:
            continue
        raise_if_error(each.error_code, each.error_message, f"user {each.user}")
        found[each.user] = {_name_of(info.mechanism): info.iterations for info in each.credential_infos}
    return found


def _name_of(code: int) -> str:
    return next((name for name, each in SCRAM_MECHANISMS.items() if each == code), str(code))


def list_users(session: Session) -> int:
    """List users (`user list`)."""
    names = session.arguments.names
    found = credentials_of(session.client, names)
    for name in names:
        if name not in found:
            raise unknown_failure("user", name, credentials_of(session.client, []))
    rows = [
        {"user": user, "mechanism": mechanism, "iterations": iterations}
        for user, credentials in sorted(found.items())
        for mechanism, iterations in sorted(credentials.items())
    ]
    session.output.rows(rows, SHOWN, empty="there are no users: 'moldau user create NAME' makes one")
    return 0


def create(session: Session) -> int:
    """Create a user (`user create`)."""
    name = session.arguments.name
    if name in credentials_of(session.client, [name]):
        raise Failure(f"user {name} is there already: 'moldau user update {name}' changes the password")
    return _upsert(session, "made")


def update(session: Session) -> int:
    """Change the credentials of a user (`user update`)."""
    name = session.arguments.name
    if name not in credentials_of(session.client, [name]):
        raise unknown_failure("user", name, credentials_of(session.client, []))
    return _upsert(session, "changed")


def _upsert(session: Session, done: str) -> int:
    given = session.arguments
    mechanism = mechanism_of(given.mechanism)
    if not ITERATIONS_MIN <= given.iterations <= ITERATIONS_MAX:
        raise_wrong_arguments(f"--iterations {given.iterations} must be from {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    from os import urandom

    salt = new_salt(urandom)
    password = password_of(session)
    upsertion = ScramCredentialUpsertion(
        name=given.name,
        mechanism=mechanism,
        iterations=given.iterations,
        salt=salt,
        salted_password=salted_password(mechanism, password.encode(), salt, given.iterations),
    )
    _alter(session, AlterUserScramCredentialsRequest(upsertions=[upsertion]))
    row = {"user": given.name, "mechanism": mechanism.mechanism_name, "iterations": given.iterations}
    session.output.say(f"user {given.name} {done}: {mechanism.mechanism_name}, {given.iterations} iterations")
    session.output.object(row)
    return 0


def delete(session: Session) -> int:
    """Delete a user, or one of the user's credentials (`user delete`). Without `--execute` the credentials are only
    printed.
    """
    given = session.arguments
    found = credentials_of(session.client, [given.name]).get(given.name)
    if found is None:
        raise unknown_failure("user", given.name, credentials_of(session.client, []))
    wanted = sorted(found)
    if given.mechanism is not None:
        wanted = [mechanism_of(given.mechanism).mechanism_name]
        if wanted[0] not in found:
            raise unknown_failure("credential", f"{wanted[0]} of user {given.name}", found)
    rows = [{"user": given.name, "mechanism": each, "iterations": found[each]} for each in wanted]
    if given.execute:
        deletions = [ScramCredentialDeletion(name=given.name, mechanism=SCRAM_MECHANISMS[each]) for each in wanted]
        _alter(session, AlterUserScramCredentialsRequest(deletions=deletions))
    session.output.rows(rows, SHOWN)
    if not given.execute:
        session.note(DRY_RUN_NOTE)
    return 0


def _alter(session: Session, request: AlterUserScramCredentialsRequest) -> None:
    reply = session.client.ask(request, AlterUserScramCredentialsResponse)
    for each in reply.results:
        raise_if_error(each.error_code, each.error_message, f"user {each.user}")


def mechanism_of(name: str) -> ScramMechanism:
    """Look up a SCRAM mechanism by its name, in any spelling. Raises `WrongArguments`."""
    found = SCRAM_MECHANISMS.get(name.upper().replace("_", "-"))
    if found is None:
        raise WrongArguments(f"--mechanism {name}: the mechanisms are {', '.join(SCRAM_MECHANISMS)}")
    return found


def password_of(session: Session) -> str:
    """Read a password: from the first line of the password file or of standard input, or by a prompt on a terminal.
    Raises `WrongArguments`.
    """
    import signal
    import sys

    path = session.arguments.password_file
    if path is not None:
        try:
            with open(path, encoding="utf-8") as file:
                password = file.readline()
        except (OSError, UnicodeDecodeError) as problem:
            raise WrongArguments(f"--password-file {path} cannot be read: {reason_of(problem)}") from None
    elif sys.stdin.isatty():
        from getpass import getpass

        # A process that SIGTERM ends at once leaves the terminal without echo.
        before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
        try:
            password = getpass("Password: ")
            if getpass("Again: ") != password:
                raise WrongArguments("the passwords differ")
        except EOFError:
            raise WrongArguments("no password was given") from None
        finally:
            signal.signal(signal.SIGTERM, before)
    else:
        try:
            password = sys.stdin.readline()
        except UnicodeDecodeError:
            raise WrongArguments("the password on standard input is not UTF-8") from None
    password = password.rstrip("\r\n")
    if not password:
        raise WrongArguments("the password is empty: give it in the first line of --password-file or of standard input")
    return password
