"""When a follower gives up a leader that it does not hear of any more."""

from __future__ import annotations

from random import Random

from ottla.raft.config import RaftConfig
from ottla.raft.election import ElectionState
from ottla.raft.machine import RaftMachine
from ottla.raft.roles import Follower
from ottla.raft.voters import VoterHistory
from tests.raft.stage import ListedLog, endpoint, key, voters


def gives_up_at_ms(seed: int) -> int:
    """Of a voter that follows from the moment 0 on, and hears nothing."""
    machine = RaftMachine(
        local=key("1:a"),
        cluster_id="ours",
        voters=VoterHistory(voters("1:a,2:b,3:c")),
        kraft_version=1,
        log=ListedLog(),
        random=Random(seed),
        config=RaftConfig(),
        endpoints=(endpoint(1),),
        bootstrap=(),
        can_become_voter=True,
    )
    machine.on_start(stored=ElectionState(epoch=1, leader_id=2), now_ms=0)
    assert isinstance(machine.role, Follower)
    return machine.role.fetch_deadline_ms


def test_followers_of_one_leader_give_it_up_one_after_the_other() -> None:
    """Else each would vote for itself: they have heard the leader for the last time at the same moment."""
    timeout_ms = RaftConfig().fetch_timeout_ms
    moments = [gives_up_at_ms(seed) for seed in range(100)]
    assert all(timeout_ms * 4 // 5 < moment <= timeout_ms for moment in moments)
    assert len(set(moments)) > 50
