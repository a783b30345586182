"""moto's S3 server on a port of this machine, behind a switch that makes it fail as real servers do."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from threading import Thread
from typing import Any, Final

import boto3
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server
from werkzeug.wrappers import Response

from moldau.storage.tiered.object_options import ObjectStoreOptions
from moldau.storage.tiered.object_storage import ObjectStorage

Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

FAILURES: Final = {
    "expired": (400, "ExpiredToken"),
    "denied": (403, "AccessDenied"),
    "wrong key": (403, "InvalidAccessKeyId"),
    "away": (404, "NoSuchBucket"),
    "busy": (503, "SlowDown"),
    "broken": (500, "InternalError"),
    "full": (507, "XMinioStorageFull"),
}
"""Status and code of each failure."""
WRITES: Final = ("PUT", "POST", "DELETE")


class S3Server:
    """A server in a thread. `failure` is a key of `FAILURES`, None while it works; `failure_count` limits it."""

    def __init__(self) -> None:
        self.failure: str | None = None
        self.failure_count: int | None = None
        self.fails_only_writes = False
        self.request_count = 0
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True)
        self._moto: Wsgi = DomainDispatcherApplication(create_backend_app)
        self._thread = Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _answer(self, environment: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        self.request_count += 1
        is_chosen = not self.fails_only_writes or environment["REQUEST_METHOD"] in WRITES
        if self.failure is None or self.failure_count == 0 or not is_chosen:
            return self._moto(environment, start)
        if self.failure_count is not None:
            self.failure_count -= 1
        environment["wsgi.input"].read(int(environment.get("CONTENT_LENGTH") or 0))
        status, code = FAILURES[self.failure]
        body = f"<Error><Code>{code}</Code><Message>{self.failure}</Message></Error>"
        response: Wsgi = Response(body, status=status, mimetype="application/xml")
        return response(environment, start)


CREDENTIALS: Final = {"access_key_id": "reader", "secret_access_key": "secret"}


def options_of(endpoint: str) -> ObjectStoreOptions:
    return ObjectStoreOptions(
        endpoint=endpoint, region="us-east-1", timeout_s=5, retry_count=0, part_size=5 << 20, other=CREDENTIALS
    )


def bucket_of(server: S3Server, name: str) -> ObjectStorage:
    """A storage in a new bucket."""
    bucket = re.sub("[^a-z0-9]+", "-", name.lower())[:60].strip("-")
    client = boto3.client(
        "s3",
        endpoint_url=server.endpoint,
        region_name="us-east-1",
        aws_access_key_id="a",
        aws_secret_access_key="b",
    )
    client.create_bucket(Bucket=bucket)
    return ObjectStorage(f"s3://{bucket}/pre/fix", options_of(server.endpoint))
