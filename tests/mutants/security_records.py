"""Planted in how credentials and quotas become records of the metadata log."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Hunt, Mutant
from tests.simulation.cluster.plan import Fault

SECURITY_RECORD_MUTANTS: Final = (
    Mutant(
        350,
        "credentials are acknowledged before they are committed",
        "broker/metadata/active_controller.py",
        "        self._publisher.reply_when_committed(self._end_offset, reply, answer, given_up)\n",
        '        if type(request).__name__ == "AlterUserScramCredentialsRequest":\n'
        "            reply(answer)\n"
        "        else:\n"
        "            self._publisher.reply_when_committed(self._end_offset, reply, answer, given_up)\n",
        faults=(Fault.ISOLATE_CONTROLLER, Fault.KILL_CONTROLLER),
        shape=(("changes_security", True),),
    ),
    Mutant(
        351,
        "a snapshot of the metadata leaves quotas out",
        "kraft/image/metadata_image.py",
        "        yield from self.quotas.snapshot_records()\n",
        "",
        faults=(Fault.KILL, Fault.KILL_CONTROLLER),
        shape=(("changes_security", True), ("small_snapshots", True)),
    ),
    Mutant(
        352,
        "a token that is renewed outlives its maximum",
        "kraft/controller/security/token_control.py",
        "    renewed = token._replace(expires_at_ms=min(token.max_at_ms, now_ms + period_ms))\n",
        "    renewed = token._replace(expires_at_ms=now_ms + period_ms)\n",
        Hunt.STORIES,
    ),
)
