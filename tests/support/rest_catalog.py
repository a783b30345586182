"""A REST catalog of Apache Iceberg on a port of this machine, over pyiceberg's SQL catalog: what a writer asks for."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import parse_qs

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, NamespaceAlreadyExistsError, NoSuchTableError
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableRequest, StagedTable, Table

TOKENS = "/v1/oauth/tokens"
STATUS = {CommitFailedException: 409, NamespaceAlreadyExistsError: 409, NoSuchTableError: 404}


class RestCatalogServer:
    """A server in a thread. `requests` has the method and path of each request."""

    def __init__(self, directory: Path, *, credential: str | None = None, requests_of_a_token: int = 1) -> None:
        """With a credential (ID:SECRET) each request needs a token of OAuth, which expires after so many requests."""
        directory.mkdir()
        self.catalog = SqlCatalog(
            "server", uri=f"sqlite:///{directory / 'catalog.db'}", warehouse=(directory / "house").as_uri()
        )
        self.requests: list[str] = []
        self._credential = credential
        self._requests_of_a_token = requests_of_a_token
        self.tokens = 0
        self._requests_left = 0
        self._lock = Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                size = int(self.headers.get("Content-Length", 0))
                path, body = self.path.partition("?")[0], self.rfile.read(size)
                refusal = server.refusal(path, self.headers.get("Authorization"))
                status, body = refusal or server.answer(self.command, path, body)
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = answer

            def log_message(self, *_: Any) -> None:
                """Nothing is logged."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def refusal(self, path: str, authorization: str | None) -> tuple[int, bytes] | None:
        """The answer to a request that its token does not allow."""
        if self._credential is None or path == TOKENS:
            return None
        with self._lock:
            self._requests_left -= 1
            if authorization == f"Bearer token-{self.tokens}" and self._requests_left >= 0:
                return None
            error = {"message": "the token has expired", "type": "AuthorizationExpiredError", "code": 419}
            return 419, json.dumps({"error": error}).encode()

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        """The status and the body of the response to a request."""
        with self._lock:
            self.requests.append(f"{method} {path}")
            try:
                return 200, json.dumps(self._answer(method, path.removeprefix("/v1/").split("/"), body)).encode()
            except tuple(STATUS) as problem:
                status, name = STATUS[type(problem)], type(problem).__name__
                return status, json.dumps({"error": {"message": str(problem), "type": name, "code": status}}).encode()

    def _answer(self, method: str, words: list[str], body: bytes) -> object:
        match method, words:
            case "POST", ["oauth", "tokens"]:
                asked = {name: each for name, (each,) in parse_qs(body.decode()).items()}
                assert f"{asked['client_id']}:{asked['client_secret']}" == self._credential, asked
                assert asked["grant_type"] == "client_credentials" and asked["scope"] == "lake"
                self.tokens += 1
                self._requests_left = self._requests_of_a_token
                return {"access_token": f"token-{self.tokens}", "token_type": "bearer", "expires_in": 3600}
            case "GET", ["config"]:
                return {"defaults": {}, "overrides": {}}
            case "POST", ["namespaces"]:
                named = json.loads(body)
                self.catalog.create_namespace(tuple(named["namespace"]))
                return {"namespace": named["namespace"], "properties": {}}
            case "POST", ["namespaces", namespace, "tables"]:
                asked = json.loads(body)
                assert asked["stage-create"] and not asked["partition-spec"]["fields"]
                schema = Schema.model_validate(asked["schema"])
                making = self.catalog.create_table_transaction(
                    (namespace, asked["name"]), schema, properties=asked["properties"]
                )
                return described(making._table)
            case "GET", ["namespaces", namespace, "tables", name]:
                return described(self.catalog.load_table((namespace, name)))
            case "POST", ["namespaces", namespace, "tables", name]:
                wanted = CommitTableRequest.model_validate_json(body)
                table = cast("Table", SimpleNamespace(name=lambda: (namespace, name)))
                made = self.catalog.commit_table(table, wanted.requirements, wanted.updates)
                return json.loads(made.model_dump_json(by_alias=True))
        raise AssertionError(f"{method} {words} is not answered here")


def described(table: Table | StagedTable) -> object:
    """A table as the protocol has it."""
    metadata = json.loads(table.metadata.model_dump_json(by_alias=True))
    return {"metadata-location": table.metadata_location, "metadata": metadata, "config": {}}
