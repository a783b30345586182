"""The file `quorum-state`: the epoch of a voter, its vote in that epoch, and the leader. A voter must not lose it.

Data version 0 belongs to kraft.version 0 and names voters by id. Data version 1 belongs to kraft.version 1, in which a
vote is for an id and a directory id.
"""

from __future__ import annotations

from typing import Final

from moldau.protocol.late_tuple import NamedTuple
from moldau.protocol.schema import ZERO_UUID
from moldau.storage.checkpoints.partition_metadata import parse_uuid, uuid_text

QUORUM_STATE: Final = "quorum-state"
NO_NODE: Final = -1


class CorruptQuorumState(ValueError):
    """Raised if `quorum-state` cannot be read. Without the epoch in it the voter could vote twice in one epoch."""


class ElectionState(NamedTuple):
    """The election state of one epoch: at most one vote and at most one leader. An id is -1 if there is none."""

    epoch: int = 0
    leader_id: int = NO_NODE
    voted_id: int = NO_NODE
    voted_directory_id: bytes = ZERO_UUID

    @property
    def promise(self) -> tuple[int, int, bytes]:
        """The part of the state on which other voters rely: the epoch and the vote.

        The leader's id is not part of it, because this node can learn it again.
        """
        return self.epoch, self.voted_id, self.voted_directory_id


def encode_election(election: ElectionState, kraft_version: int, voter_ids: tuple[int, ...], node_id: int) -> bytes:
    """The content of `quorum-state`, in Apache Kafka's format.

    If this node is the leader, its vote is left out, because it grants no more votes in its epoch.
    """
    if election.leader_id == node_id:
        election = ElectionState(election.epoch, node_id)
    if kraft_version == 0:
        voters = ",".join(f'{{"voterId":{voter_id}}}' for voter_id in voter_ids)
        return (
            f'{{"clusterId":"","leaderId":{election.leader_id},"leaderEpoch":{election.epoch},'
            f'"votedId":{election.voted_id},"appliedOffset":0,"currentVoters":[{voters}],"data_version":0}}'
        ).encode()
    return (
        f'{{"leaderId":{election.leader_id},"leaderEpoch":{election.epoch},"votedId":{election.voted_id},'
        f'"votedDirectoryId":"{uuid_text(election.voted_directory_id)}","data_version":1}}'
    ).encode()


def decode_election(data: bytes) -> ElectionState:
    """Decode the content of `quorum-state`. Raises `CorruptQuorumState`."""
    import json

    try:
        fields = json.loads(data)
        if fields["data_version"] not in (0, 1):
            raise CorruptQuorumState(f"data_version {fields['data_version']} is of a later release")
        return ElectionState(
            epoch=int(fields["leaderEpoch"]),
            leader_id=int(fields["leaderId"]),
            voted_id=int(fields["votedId"]),
            voted_directory_id=parse_uuid(fields["votedDirectoryId"]) if fields["data_version"] == 1 else ZERO_UUID,
        )
    except KeyError as error:
        raise CorruptQuorumState(f"the field {error} is missing") from error
    except (TypeError, ValueError) as error:  # also bytes that are not text, and text that is not JSON
        reason = error if isinstance(error, CorruptQuorumState) else "the file is not JSON with the fields of a vote"
        raise CorruptQuorumState(str(reason)) from error
