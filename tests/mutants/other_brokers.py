"""Bugs in how other brokers are asked, and in faults that divide a request into what they name and the rest."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Hunt, Mutant

OTHER_BROKERS: Final = "broker/metadata/other_brokers.py"
PARTS: Final = "broker/faults/parts.py"

OTHER_BROKER_MUTANTS: Final = (
    Mutant(
        670,
        "who asks a broker without an address hears nothing",
        OTHER_BROKERS,
        "            self._channels.loop.call_soon(reply, NoResponseReason.NO_ADDRESS)\n",
        "            pass\n",
        Hunt.STORIES,
    ),
    Mutant(
        671,
        "who asks a broker without an address hears so within the call",
        OTHER_BROKERS,
        "            self._channels.loop.call_soon(reply, NoResponseReason.NO_ADDRESS)\n",
        "            reply(NoResponseReason.NO_ADDRESS)\n",
        Hunt.STORIES,
    ),
    Mutant(
        672,
        "a response that nobody waits for any more is an error",
        OTHER_BROKERS,
        "            if not read.done():\n",
        "            if True:\n",
        Hunt.STORIES,
    ),
    Mutant(
        673,
        "a fault of a group is also one of the transactional id of that name",
        PARTS,
        "(scope.group if holder.key_type == GROUP_KEY else scope.transactional_id)",
        "(scope.group or scope.transactional_id)",
        Hunt.STORIES,
    ),
    Mutant(
        674,
        "a fault of one partition takes its whole topic",
        PARTS,
        "    if not is_topic or scope.partition is None or listed is None:\n",
        "    if not is_topic or True:\n",
        Hunt.STORIES,
    ),
    Mutant(
        675,
        "what a fault cuts off is missing in the request itself",
        PARTS,
        "    made = default_struct(type(request))\n",
        "    made = request\n",
        Hunt.STORIES,
    ),
    Mutant(
        676,
        "what a fault refuses has its effect nevertheless",
        "broker/faults/requests.py",
        "    return merge_responses(handle(context, others), refusal)\n",
        "    return merge_responses(handle(context, request), refusal)\n",
        Hunt.STORIES,
    ),
)
