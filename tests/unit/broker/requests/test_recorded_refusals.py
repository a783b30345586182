"""Every answer that refuses a whole request is, byte for byte, what it was when five mechanisms made them.

`recorded_refusals.txt` has a line for each API and each occasion, with a digest of the answers in each version to the
sampled requests. It was written by those mechanisms, before `protocol/refusals.py` took their place. The sets below
name the answers that are other ones since, and say why.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

from moldau.broker.faults.fault import Scope
from moldau.broker.faults.requests import RefusableApi
from moldau.broker.metadata.refusals import refused
from moldau.broker.network.authentication.refused_request import refused_response
from moldau.broker.network.route import ListenerRole
from moldau.broker.requests.api import Api
from moldau.broker.requests.list_bounds import bounded
from moldau.broker.requests.long_lists import too_many_topics
from moldau.broker.requests.table import APIS
from moldau.kraft.controller.apis import CONTROLLER_APIS
from moldau.protocol.compiler import encode
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.protocol.schema import fields_of, response_class_of
from moldau.security.principal import ANONYMOUS
from tests.support.transcripts import REWRITE
from tests.unit.broker.requests.authorization.test_matrix import TABLE, Stage
from tests.unit.protocol.facts.sampling import sample

RECORD: Final = Path(__file__).with_name("recorded_refusals.txt")
STARTS: Final = (0, 13, 26, 39)
"""From where the sampled requests begin to count."""
Refuse = Callable[[object, int], object]
"""Makes the answer to a request in a version."""


def occasions(api: Api) -> Iterator[tuple[str, Refuse]]:
    """The occasions on which requests of an API are refused."""
    yield "login", lambda request, version: refused_in_login(api, request, version)
    has_error = any(field.name == "error_code" for field in fields_of(response_class_of(api.request)))
    if api.request in CONTROLLER_APIS or has_error:
        for error in (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.INVALID_REQUEST):
            yield f"undecided-{error.name}", lambda request, version, error=error: refused(request, error)  # type: ignore[misc]
    if api.bounds:
        yield "too-long", lambda request, version: refused_for_length(api, request, version)
    for role in (ListenerRole.BROKER, ListenerRole.CONTROLLER):
        if (api.name, role) in TABLE and not TABLE[api.name, role].is_listing:
            yield f"forbidden-{role.name}", lambda request, version, role=role: forbidden(api, role, request, version)  # type: ignore[misc]
            yield f"fault-{role.name}", lambda request, version, role=role: faulty(api, role, request, version)  # type: ignore[misc]


def refused_in_login(api: Api, request: object, version: int) -> object:
    response_class = response_class_of(api.request)
    return refused_response(response_class, version, request, ErrorCode.ILLEGAL_SASL_STATE, "text")


def refused_for_length(api: Api, request: object, version: int) -> object:
    handle = bounded({next(iter(api.bounds)): -1}, cast("Any", None))
    return handle(cast("Any", SimpleNamespace(version=version)), request)


def forbidden(api: Api, role: ListenerRole, request: object, version: int) -> object:
    return Stage(api, role).ask(ANONYMOUS, request, version)


def faulty(api: Api, role: ListenerRole, request: object, version: int) -> object:
    stage = Stage(api, role)
    refusable = RefusableApi(api, role, cast("Any", stage.services), stage.answer)
    return refusable.refused(Scope(), ErrorCode.KAFKA_STORAGE_ERROR, cast("Any", stage.context(ANONYMOUS, version)), request)


def requests(api: Api, version: int) -> Iterator[object]:
    for start in STARTS:
        request = sample(api.request, version, start)
        if api.name == "SyncGroup" and version >= 5:
            cast("Any", request).protocol_type = cast("Any", request).protocol_name = "p"
        if api.name == "FindCoordinator":
            cast("Any", request).key_type = start % 2
        yield request


def encoded(answer: object, version: int) -> bytes:
    try:
        return bytes(encode(answer, version))
    except (AttributeError, TypeError):
        return b"fails"


def digest(api: Api, refuse: Refuse, version: int) -> str:
    """A digest of the answers in a version; of None where the connection ends in place of an answer."""
    told = sha256()
    for request in requests(api, version):
        answer = refuse(request, version)
        told.update(b"none" if answer is None else encoded(answer, version))
    return told.hexdigest()[:8]


def lines() -> Iterator[str]:
    for api in APIS:
        for occasion, refuse in occasions(api):
            told = [digest(api, refuse, version) for version in range(api.first, api.last + 1)]
            yield f"{api.name} {occasion} {api.first}- {' '.join(told)}"


def test_every_refusal_is_what_it_was() -> None:
    now = list(lines())
    if os.environ.get(REWRITE) == "1":
        RECORD.write_text("\n".join(now) + "\n")
        return
    assert now == RECORD.read_text().splitlines()


def test_more_topics_than_one_request_may_create_are_refused_with_apache_kafkas_words() -> None:
    topics = [CreatableTopic(name=f"t{n}", num_partitions=1, replication_factor=1) for n in range(10_001)]
    request = CreateTopicsRequest(topics=topics, timeout_ms=1)
    refuse = too_many_topics(request)
    assert refuse is not None
    request.topics = topics[:2]
    answer = refuse(cast("Any", SimpleNamespace(version=7)), request)
    assert [(each.name, each.error_code, each.error_message) for each in cast("Any", answer).topics] == [
        (name, ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")
        for name in ("t0", "t1")
    ]
