"""The control interface: an HTTP interface with JSON. With it a test injects faults, moves the clock and leaders, and
reads the timeline.

`GET /openapi.json` describes it. It has no authentication, because it is for tests: it should listen on a loopback
address.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from moldau.broker.config.listeners import HttpAddress
from moldau.broker.faults.fault import DISK_ERRORS, DISK_OPERATIONS, Fault, object_of
from moldau.broker.faults.faults import Faults
from moldau.broker.faults.messages import InvalidFault
from moldau.broker.faults.moves import LeaderMoves
from moldau.broker.http.server import HttpRequest, HttpResponse, HttpServer, host_of, is_ip_address
from moldau.broker.replicas.log_jobs import LogJobs
from moldau.broker.runtime.tasks import Spawn

log = logging.getLogger("moldau.faults")

BODY_SIZE_MAX: Final = 1 << 20
STEP_MS_MAX: Final = 366 * 86_400_000
OPTION: Final = "--control"
JSON_TYPE: Final = "application/json"
Resource = Callable[[HttpRequest], Awaitable[object]]


class NotFound(Exception):
    """Raised if the resource of a request does not exist. The message names it."""


class ControlInterface:
    """The control interface of one node."""

    def __init__(
        self,
        node_id: int,
        faults: Faults,
        moves: LeaderMoves,
        log_jobs: LogJobs,
        loop: asyncio.AbstractEventLoop,
        spawn: Spawn,
    ) -> None:
        self._node_id = node_id
        self._faults = faults
        self._moves = moves
        self._log_jobs = log_jobs
        resources: dict[str, dict[str, Resource]] = {
            "/openapi.json": {"GET": self.describe},
            "/v1/node": {"GET": self.node},
            "/v1/faults": {"GET": self.list, "POST": self.add, "DELETE": self.end_all},
            "/v1/faults/{id}": {"GET": self.show, "DELETE": self.end},
            "/v1/script": {"POST": self.add_all},
            "/v1/timeline": {"GET": self.timeline},
            "/v1/clock": {"GET": self.clock, "POST": self.advance},
            "/v1/leaders": {"POST": self.move_leader},
        }
        self._names = {"localhost"}
        """The host names under which the interface is served. It is also served under every IP address."""
        self._server = HttpServer(
            loop,
            {
                path: {method: json_handler(self._checked(resource)) for method, resource in methods.items()}
                for path, methods in resources.items()
            },
            spawn,
            body_size_max=BODY_SIZE_MAX,
        )
        self._loop = loop
        self.address = ""
        """The URL of the interface, such as http://127.0.0.1:39741."""

    async def start(self, address: HttpAddress) -> None:
        """Serve the interface at an address. Raises OSError."""
        self._names.add(address.host.lower())
        port = await self._server.start(address, OPTION)
        self.address = f"http://{address.host or '127.0.0.1'}:{port}"
        log.warning("this node takes faults at %s: it is for tests", self.address)

    def stop(self) -> None:
        self._server.stop()

    def add_script(self, described: object) -> Sequence[Fault]:
        """Put the faults of a script in force, all or none. Each ends at its time. Raises `InvalidFault`."""
        faults = self._faults.add_all(described)
        for fault in faults:
            self._end_later(fault)
        return faults

    def _end_later(self, fault: Fault) -> None:
        ends_after_ms = fault.source.get("ends_after_ms")
        if isinstance(ends_after_ms, int):
            self._loop.call_later(ends_after_ms / 1000, self._faults.end, fault.id)

    def _checked(self, resource: Resource) -> Resource:
        """Make a handler that refuses requests under a host name that is not this node's. The name of another site may
        resolve to this node's address, and scripts of that site could then inject faults (DNS rebinding).
        """

        async def ask(request: HttpRequest) -> object:
            host = host_of(request)
            if host not in self._names and not is_ip_address(host):
                raise InvalidFault(f"the control interface is not served as {host[:200]!r}: use its address")
            return await resource(request)

        return ask

    # The resources

    async def describe(self, request: HttpRequest) -> object:
        return OPENAPI

    async def node(self, request: HttpRequest) -> object:
        return {"node_id": self._node_id}

    async def list(self, request: HttpRequest) -> object:
        return {"faults": [fault.as_json() for fault in self._faults.in_force]}

    async def add(self, request: HttpRequest) -> object:
        fault = self._faults.add(body_of(request))
        self._end_later(fault)
        return fault.as_json()

    async def add_all(self, request: HttpRequest) -> object:
        return {"faults": [fault.as_json() for fault in self.add_script(body_of(request))]}

    async def end_all(self, request: HttpRequest) -> object:
        self._faults.end_all()
        return {"faults": []}

    async def show(self, request: HttpRequest) -> object:
        fault_id = id_of(request)
        for fault in self._faults.in_force:
            if fault.id == fault_id:
                return fault.as_json()
        raise NotFound(f"no fault with the id {fault_id} is in force")

    async def end(self, request: HttpRequest) -> object:
        fault = self._faults.end(id_of(request))
        if fault is None:
            raise NotFound(f"no fault with the id {request.variables['id']} is in force")
        return fault.as_json()

    async def clock(self, request: HttpRequest) -> object:
        return {"offset_ms": self._faults.clock.offset_ms}

    async def advance(self, request: HttpRequest) -> object:
        """Move the clock, and at once run the periodic jobs that depend on it."""
        step_ms = object_of(body_of(request), "the body").get("advance_ms")
        if type(step_ms) is not int or not 0 < step_ms <= STEP_MS_MAX:
            raise InvalidFault(f"advance_ms is {step_ms!r}, and must be a number from 1 to {STEP_MS_MAX}")
        self._faults.clock.advance(step_ms)
        self._faults.note("clock", f"{step_ms} ms")
        await self._log_jobs.retain()
        await self._log_jobs.expire_producers()
        return await self.clock(request)

    async def move_leader(self, request: HttpRequest) -> object:
        moved = await self._moves.move(body_of(request))
        self._faults.note("leader", f"{moved['topic']}-{moved['partition']} moves to node {moved['leader']}")
        return moved

    async def timeline(self, request: HttpRequest) -> object:
        after = request.query.get("after", "0")
        if not after.isdecimal():
            raise InvalidFault(f"after is {after!r}, and must be the number of an entry")
        return {"entries": [entry.as_json() for entry in self._faults.timeline(int(after))]}


def json_handler(resource: Resource) -> Callable[[HttpRequest], Awaitable[HttpResponse]]:
    """Make the HTTP handler of a resource. It returns the result of the resource, or its error, as JSON."""

    async def answer(request: HttpRequest) -> HttpResponse:
        try:
            return HttpResponse(200, JSON_TYPE, json.dumps(await resource(request), default=str) + "\n")
        except InvalidFault as error:
            return HttpResponse(400, JSON_TYPE, json.dumps({"error": str(error)}) + "\n")
        except NotFound as error:
            return HttpResponse(404, JSON_TYPE, json.dumps({"error": str(error)}) + "\n")

    return answer


def body_of(request: HttpRequest) -> object:
    """Parse the JSON in the body of a request. Raises `InvalidFault`.

    The Content-Type must be that of JSON. From a page of another origin, a browser sends such a request only with this
    node's permission, which it does not give.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip() != JSON_TYPE:
        raise InvalidFault(f"the Content-Type must be {JSON_TYPE}")
    try:
        return json.loads(request.body)
    except ValueError as error:
        raise InvalidFault(f"the body is not JSON: {error}") from None


def id_of(request: HttpRequest) -> int:
    """Parse the id of a fault in the path of a request. Raises `InvalidFault`."""
    text = request.variables["id"]
    if not text.isdecimal():
        raise InvalidFault(f"the id of a fault is a number, not {text!r}")
    return int(text)


# The description


def _object(properties: Mapping[str, object], description: str = "", *required: str) -> dict[str, object]:
    made: dict[str, object] = {"type": "object", "properties": properties, "additionalProperties": False}
    if description:
        made["description"] = description
    if required:
        made["required"] = list(required)
    return made


def _reference(name: str) -> dict[str, object]:
    return {"$ref": f"#/components/schemas/{name}"}


def _operation(summary: str, answer: str, body: str = "", *parameters: Mapping[str, object]) -> dict[str, object]:
    made: dict[str, object] = {
        "summary": summary,
        "responses": {
            "200": {"description": "done", "content": {JSON_TYPE: {"schema": _reference(answer)}}},
            "400": {"description": "refused", "content": {JSON_TYPE: {"schema": _reference("Error")}}},
        },
    }
    if body:
        made["requestBody"] = {"required": True, "content": {JSON_TYPE: {"schema": _reference(body)}}}
    if parameters:
        made["parameters"] = list(parameters)
    return made


_TEXT: Final = {"type": "string"}
_NUMBER: Final = {"type": "integer"}
_TRUE: Final = {"type": "boolean", "enum": [True]}
_ID: Final = {"name": "id", "in": "path", "required": True, "schema": _NUMBER}
_AFTER: Final = {"name": "after", "in": "query", "schema": _NUMBER, "description": "only entries after this number"}
_SCOPE: Final = {
    "api": {**_TEXT, "description": "the name of an API of Kafka: Produce, Fetch, Metadata"},
    "topic": _TEXT,
    "partition": _NUMBER,
    "group": _TEXT,
    "transactional_id": _TEXT,
    "client_id": _TEXT,
    "from_node": {**_NUMBER, "description": "only requests of this node"},
    "from_clients": {"type": "boolean", "description": "only requests of clients"},
    "listener": _TEXT,
    "disk": {"type": "string", "enum": list(DISK_OPERATIONS)},
    "path": {**_TEXT, "description": "a part of the path of a file"},
}
_TRIGGER: Final = {
    "once": _TRUE,
    "on_call": {**_NUMBER, "description": "only this request of the scope, counted from 1"},
    "times": _NUMBER,
    "every_time": _TRUE,
    "probability": {"type": "number"},
    "seed": _NUMBER,
}
_ACTION: Final = {
    "error": {**_TEXT, "description": f"an error of Kafka's protocol by its name; for files {', '.join(DISK_ERRORS)}"},
    "answer": {"type": "object", "description": "the whole response; what is left out has its default"},
    "delay_ms": _NUMBER,
    "lose_answer": _TRUE,
    "cut_answer": _TRUE,
    "reset": _TRUE,
    "hold": _TRUE,
    "until": _reference("Scope"),
    "throttle_ms": _NUMBER,
}
_FAULT: Final = {
    "name": _TEXT,
    "scope": _reference("Scope"),
    "when": _reference("Trigger"),
    "do": _reference("Action"),
    "ends_after_ms": _NUMBER,
}
_MOVE: Final = {
    "topic": _TEXT,
    "partition": _NUMBER,
    "group": _TEXT,
    "transactional_id": _TEXT,
    "node": _NUMBER,
}
_ENTRY: Final = {"number": _NUMBER, "at_ms": _NUMBER, "what": _TEXT, "text": _TEXT}
OPENAPI: Final = {
    "openapi": "3.1.0",
    "info": {"title": "Faults on demand of a Moldau node", "version": "1"},
    "paths": {
        "/v1/node": {"get": _operation("the node", "Node")},
        "/v1/faults": {
            "get": _operation("the faults in force", "Faults"),
            "post": _operation("put a fault in force", "FaultInForce", "Fault"),
            "delete": _operation("end all faults", "Faults"),
        },
        "/v1/faults/{id}": {
            "get": _operation("a fault in force", "FaultInForce", "", _ID),
            "delete": _operation("end a fault", "FaultInForce", "", _ID),
        },
        "/v1/script": {"post": _operation("put several faults in force, or none", "Faults", "Script")},
        "/v1/clock": {
            "get": _operation("how far the clock is ahead of the real one", "Clock"),
            "post": _operation("move the clock", "Clock", "Step"),
        },
        "/v1/leaders": {"post": _operation("move a leader or a coordinator to another replica", "Leader", "Move")},
        "/v1/timeline": {"get": _operation("what clients and faults did", "Timeline", "", _AFTER)},
    },
    "components": {
        "schemas": {
            "Scope": _object(_SCOPE, "which requests, or operations on files; what is left out is any"),
            "Trigger": _object(_TRIGGER, "which of those in the scope; nothing: each of them"),
            "Action": _object(_ACTION, "one action"),
            "Fault": _object(_FAULT, "", "do"),
            "FaultInForce": _object({**_FAULT, "id": _NUMBER, "calls": _NUMBER, "met": _NUMBER}, "", "id", "name"),
            "Faults": _object({"faults": {"type": "array", "items": _reference("FaultInForce")}}, "", "faults"),
            "Script": _object({"faults": {"type": "array", "items": _reference("Fault")}}, "", "faults"),
            "Timeline": _object({"entries": {"type": "array", "items": _reference("Entry")}}, "", "entries"),
            "Entry": _object(_ENTRY, "", *_ENTRY),
            "Clock": _object({"offset_ms": _NUMBER}, "", "offset_ms"),
            "Step": _object({"advance_ms": _NUMBER}, "", "advance_ms"),
            "Move": _object(_MOVE, "a partition, or the group or transactional id whose coordinator moves", "node"),
            "Leader": _object({"topic": _TEXT, "partition": _NUMBER, "leader": _NUMBER}),
            "Node": {"type": "object", "description": "the id of the node, and its addresses"},
            "Error": _object({"error": _TEXT}, "", "error"),
        }
    },
}
"""The description of the control interface in OpenAPI 3.1."""
