#!/usr/bin/env bash
# pyiceberg 0.12.0, seen 2026-11-29: a commit that is refused (409) after it was done. The answer of a REST catalog is lost,
# the proxy in between asks again, and the second answer says that the table has changed, by this very commit. In a table
# with `commit.retry.num-retries` = 0 (or at the last retry) pyiceberg takes the refusal as proof that the commit is not
# there, and deletes its manifests: no reader can scan the table any more. With retries left it looks at the table first.
#   append: CommitFailedException, snapshots of the table: 1, scan: FileNotFoundError
set -euo pipefail
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
python3 -m venv "$home/venv"
"$home/venv/bin/pip" install -q --disable-pip-version-check 'pyiceberg[sql-sqlite,pyarrow]==0.12.0' pyarrow==26.0.1 || exit 2
cd "$home"
"$home/venv/bin/python" - <<'PYTHON'
import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pyarrow as pa
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import CommitTableRequest

behind = SqlCatalog("behind", uri="sqlite:///catalog.db", warehouse="file://" + os.getcwd() + "/warehouse")
behind.create_namespace("n")
properties = {"commit.retry.num-retries": "0"}
behind.create_table("n.t", pa.schema([("x", pa.int64())]), properties=properties)
lock = threading.Lock()
lost = []


def commit(body):
    request = CommitTableRequest.model_validate_json(body)
    made = behind.commit_table(SimpleNamespace(name=lambda: ("n", "t")), request.requirements, request.updates)
    return json.loads(made.model_dump_json(by_alias=True))


class Rest(BaseHTTPRequestHandler):
    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        status = 200
        with lock:
            if self.command == "POST":
                try:
                    answer = commit(body)
                    if not lost:  # the answer is lost on its way, and the proxy in between asks again
                        lost.append(True)
                        answer = commit(body)
                except CommitFailedException as problem:
                    status, answer = 409, {"error": {"message": str(problem), "type": "CommitFailedException", "code": 409}}
            elif self.path.startswith("/v1/config"):
                answer = {"defaults": {}, "overrides": {}}
            else:
                table = behind.load_table("n.t")
                metadata = json.loads(table.metadata.model_dump_json(by_alias=True))
                answer = {"metadata-location": table.metadata_location, "metadata": metadata, "config": {}}
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = answer

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Rest)
threading.Thread(target=server.serve_forever, daemon=True).start()
table = RestCatalog("c", uri=f"http://127.0.0.1:{server.server_port}").load_table("n.t")
try:
    table.append(pa.table({"x": [1]}))
    appended = "done"
except CommitFailedException:
    appended = "CommitFailedException"
now = behind.load_table("n.t")
try:
    scanned = str(now.scan().to_arrow()["x"].to_pylist())
except FileNotFoundError:
    scanned = "FileNotFoundError"
print(f"append: {appended}, snapshots of the table: {len(now.metadata.snapshots)}, scan: {scanned}")
is_as_seen = (appended, len(now.metadata.snapshots), scanned) == ("CommitFailedException", 1, "FileNotFoundError")
sys.exit(0 if is_as_seen else 1)
PYTHON
