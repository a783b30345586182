"""Bugs in how a connection gives parts of files to the thread that sends them (`broker/network/direct_output.py`)."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Hunt, Mutant

DIRECT_OUTPUT: Final = "broker/network/direct_output.py"

SENT_FILE_MUTANTS: Final = (
    Mutant(
        558,
        "a reply is written while the thread sends the one before",
        DIRECT_OUTPUT,
        "        if self._waits is OutputWait.NOTHING:\n            self._send()\n",
        "        if self._waits in (OutputWait.NOTHING, OutputWait.SENDER):\n            self._send()\n",
        Hunt.SOCKETS,
    ),
    Mutant(
        559,
        "what the thread has sent before it met cold bytes is sent again",
        DIRECT_OUTPUT,
        "        self._have_left(sent)\n        if status == COLD:\n",
        "        self._have_left(0 if status == COLD else sent)\n        if status == COLD:\n",
        Hunt.SOCKETS,
    ),
    Mutant(
        560,
        "the event loop closes a socket that the thread still uses",
        DIRECT_OUTPUT,
        "            self._sending.release(self._socket.detach())\n",
        "            pass\n",
        Hunt.SOCKETS,
    ),
    Mutant(
        561,
        "an error of the thread leaves the connection open",
        DIRECT_OUTPUT,
        '            log.info("closing a connection: its reply could not be sent: %s", status_text(status))\n'
        "            self._break(self._waits)\n"
        "            return\n",
        "            return\n",
        Hunt.SOCKETS,
    ),
)
