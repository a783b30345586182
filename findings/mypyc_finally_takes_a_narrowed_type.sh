#!/usr/bin/env bash
# mypy 2.4.1 with its compiler mypyc, CPython 3.11, seen 2026-12-01: if an `else` clause assigns an attribute of an optional
# type, the `finally` clause of the same `try` reads it with the narrowed type on every way. On the way through an
# `except` clause that returns, the attribute is still None, and a compiled module raises there
#   TypeError: case.Link object expected; got None
# The same source passes `mypy --strict`, and as plain Python it prints "abandoned" and returns "failed".
set -euo pipefail
command -v cc >/dev/null || exit 2
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
cd "$home"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check mypy==2.4.1 setuptools || exit 2
cat >case.py <<'PYTHON'
from __future__ import annotations


class Link:
    pass


class Channel:
    def __init__(self) -> None:
        self.link: Link | None = None

    def connect(self, fails: bool) -> str:
        link = Link()
        try:
            if fails:
                raise OSError("no answer")
        except OSError:
            return "failed"
        else:
            self.link = link
        finally:
            if self.link is not link:
                print("abandoned")
        return "connected"
PYTHON
cat >ask.py <<'PYTHON'
import case

kind = "compiled" if case.__file__.endswith(".so") else "plain"
for fails in (False, True):
    try:
        print(kind, fails, case.Channel().connect(fails))
    except TypeError as error:
        print(kind, fails, f"TypeError: {error}")
PYTHON
venv/bin/python -m mypy --strict case.py
{
    venv/bin/python ask.py
    venv/bin/mypyc case.py >/dev/null 2>&1 || exit 2
    venv/bin/python ask.py
} >seen
cat seen
diff seen - <<'EXPECTED'
plain False connected
abandoned
plain True failed
compiled False connected
compiled True TypeError: case.Link object expected; got None
EXPECTED
