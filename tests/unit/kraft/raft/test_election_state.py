"""The file quorum-state."""

from __future__ import annotations

import pytest

from moldau.kraft.raft.election_state import CorruptQuorumState, ElectionState, decode_election, encode_election
from tests.unit.kraft.image.images import uuid

# As Apache Kafka 4.3.1 wrote them.
VERSION_0 = (
    b'{"clusterId":"","leaderId":1,"leaderEpoch":2,"votedId":-1,"appliedOffset":0,'
    b'"currentVoters":[{"voterId":1}],"data_version":0}'
)
VERSION_1 = b'{"leaderId":1,"leaderEpoch":3,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'


def test_the_bytes_are_kafkas() -> None:
    assert encode_election(ElectionState(2, leader_id=1, voted_id=1), 0, (1,), 1) == VERSION_0
    assert encode_election(ElectionState(3, leader_id=1, voted_id=1), 1, (1,), 1) == VERSION_1
    assert decode_election(VERSION_0) == ElectionState(2, leader_id=1)
    assert decode_election(VERSION_1) == ElectionState(3, leader_id=1)


def test_a_vote_comes_back() -> None:
    vote = ElectionState(7, voted_id=2, voted_directory_id=uuid(1234))
    assert decode_election(encode_election(vote, 1, (1, 2, 3), 1)) == vote
    assert decode_election(encode_election(vote, 0, (1, 2, 3), 1)) == vote._replace(voted_directory_id=bytes(16))


@pytest.mark.parametrize(
    "data",
    [VERSION_1[:size] for size in (0, 1, 20, len(VERSION_1) - 1)]
    + [b"[]", b"{}", b"null", VERSION_1.replace(b":1}", b":2}"), VERSION_1.replace(b":3,", b':"x",')],
)
def test_a_file_that_says_no_epoch_is_refused(data: bytes) -> None:
    """A voter that forgot its epoch could vote twice in it."""
    with pytest.raises(CorruptQuorumState):
        decode_election(data)
