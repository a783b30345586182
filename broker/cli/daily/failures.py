"""The failures of daily commands: one sentence, and an exit status for the kind of failure."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NoReturn

from moldau.broker.cli.invocation import CommandError
from moldau.protocol.errors import ErrorCode, error_name

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_UNKNOWN: Final = 3
EXIT_DENIED: Final = 4
EXIT_UNREACHABLE: Final = 5

_UNKNOWN: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.RESOURCE_NOT_FOUND,
        ErrorCode.BROKER_ID_NOT_REGISTERED,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    }
)
_DENIED: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    }
)
_SENTENCES: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "there is no such topic or partition, or the user may not describe it",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "it is not the name of a topic, which has letters, digits, '.', '_' and '-', at "
    "most 249",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "the user has no right to do this with the topic: 'moldau acl list --topic' "
    "shows the permissions",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "the user has no right to do this with the group: 'moldau acl list --group' "
    "shows the permissions",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "the user has no right to do this with the cluster: 'moldau acl list "
    "--cluster' shows the permissions",
    ErrorCode.SECURITY_DISABLED: "the cluster has no authorizer: set authorizer.class.name at its nodes",
    ErrorCode.NON_EMPTY_GROUP: "the group has members: stop them first",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has members: stop them first",
    ErrorCode.GROUP_ID_NOT_FOUND: "there is no such group",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "members of the group read this topic: stop them first",
    ErrorCode.TOPIC_ALREADY_EXISTS: "it is there already",
    ErrorCode.MESSAGE_TOO_LARGE: "a record is larger than max.message.bytes of the topic",
    ErrorCode.RECORD_LIST_TOO_LARGE: "the records are larger than a segment of the topic",
    ErrorCode.NOT_ENOUGH_REPLICAS: "fewer replicas are in sync than min.insync.replicas asks for",
    ErrorCode.OFFSET_OUT_OF_RANGE: "the offset is outside of the partition",
    ErrorCode.REQUEST_TIMED_OUT: "the cluster did not do it in time; it may still do it",
    ErrorCode.UNSUPPORTED_VERSION: "the cluster does not have this",
    ErrorCode.TOPIC_DELETION_DISABLED: "delete.topic.enable is false at the cluster's nodes",
}


class Failure(CommandError):
    """A failure of a command, with the exit status for its kind."""

    def __init__(self, message: str, *details: str, status: int = EXIT_FAILED) -> None:
        super().__init__(message, *details)
        self.status = status


class WrongArguments(Failure):
    """The arguments contradict each other, or one of them has an invalid value."""

    def __init__(self, message: str, *details: str) -> None:
        super().__init__(message, *details, status=EXIT_USAGE)


def refused(code: int, said: str | None, what: str) -> Failure:
    """The failure for an error code of a response. `said` is the broker's own message, `what` names the subject."""
    own = _SENTENCES.get(ErrorCode(code))
    sentence = own or (said or "").strip().rstrip(".") or "the cluster refuses it"
    return Failure(f"{what}: {sentence} ({error_name(code)})", status=status_of(code))


def status_of(code: int) -> int:
    """The exit status for an error code of a response."""
    if code in _UNKNOWN:
        return EXIT_UNKNOWN
    return EXIT_DENIED if code in _DENIED else EXIT_FAILED


def raise_if_error(code: int, said: str | None, what: str) -> None:
    """Raise `Failure` if the code of a response is an error. `said` is the broker's own message, `what` names the
    subject.
    """
    if code:
        raise refused(code, said, what)


def unknown_failure(kind: str, name: str, known: Iterable[str], otherwise: str = "") -> Failure:
    """The failure for a name that does not exist. Its message has the most similar name in `known`, or the text
    `otherwise` if no name is similar; by default `otherwise` is the command that lists the names.
    """
    from difflib import get_close_matches

    close = get_close_matches(name, list(known), 1)
    where = "cluster-status" if kind == "broker" else f"{kind} list"
    otherwise = otherwise or f"'moldau {where}' shows those that are there"
    hint = f"; did you mean {close[0]}?" if close else f": {otherwise}"
    return Failure(f"there is no {kind} {name}{hint}", status=EXIT_UNKNOWN)


def no_partition(topic: str, index: int, count: int) -> Failure:
    """The failure for a partition `index` that does not exist in a topic with `count` partitions."""
    return Failure(f"topic {topic} has no partition {index}: it has {count}", status=EXIT_UNKNOWN)


def raise_joined_failures(failures: list[Failure]) -> None:
    """Raise one failure whose message lists these failures. Its exit status is that of the first. Does nothing if the
    list is empty.
    """
    if len(failures) == 1:
        raise failures[0]
    if failures:
        lines = [str(each) for each in failures]
        raise Failure(f"{len(failures)} failed", *lines, status=failures[0].status)


def raise_wrong_arguments(message: str) -> NoReturn:
    """Raise `WrongArguments`."""
    raise WrongArguments(message)


def check_can_write(option: str, path: str) -> None:
    """Raise `WrongArguments` if a file cannot be written. It is called before the command changes anything, because the
    file is written at the end.
    """
    target = Path(path)
    is_there = target.exists()
    if target.is_dir():
        raise WrongArguments(f"{option} {path} is a directory")
    if not is_there and not target.absolute().parent.is_dir():
        raise WrongArguments(f"{option} {path}: the directory {target.absolute().parent} does not exist")
    if not os.access(target if is_there else target.absolute().parent, os.W_OK):
        raise WrongArguments(f"{option} {path} cannot be written: permission denied")
