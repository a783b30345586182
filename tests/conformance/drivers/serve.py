"""The loop of a Python driver: operations as JSON lines on stdin, one answer a line on stdout."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable

from tests.conformance.outcome import Refused, Unavailable


def answer(driver: object, line: str) -> dict[str, object]:
    request = json.loads(line)
    operation: Callable[..., object] | None = getattr(driver, request["op"], None)
    if operation is None:
        return {"unavailable": f"the client has no call for {request['op'].replace('_', ' ')}"}
    try:
        return {"result": operation(**request["args"])}
    except Refused as refusal:
        return {"refused": refusal.error, "text": str(refusal)}
    except Unavailable as reason:
        return {"unavailable": str(reason)}
    except Exception as error:
        return {"crashed": f"{type(error).__name__}: {error}", "text": traceback.format_exc()}


def serve(driver: object) -> None:
    # The answers keep stdout for themselves: whatever a library prints goes to stderr.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        answers.write(json.dumps(answer(driver, line)) + "\n")
        answers.flush()
    os._exit(0)
