"""What a joining member says of those that it has to hear."""

import pytest

from dledger_node.raft.messages import JoinResponse, VoteResponse, VoteResult
from dledger_sim.stage.driver import INCARNATION, CoreDriver, of_type, only, vote_request


@pytest.mark.parametrize("addable_ids", [(), ("n5", "n6")])
def test_a_blank_member_names_the_voters_that_it_has_to_hear_before_it_votes(
    addable_ids: tuple[str, ...],
) -> None:
    """The operator concludes from it that a group cannot have begun; see `founded_again`."""
    driver = CoreDriver(joining=True, voter_count=5, addable_ids=addable_ids, new_group=True)
    peers = ["n4", "n1", "n3", "n2"]
    for heard, peer_id in enumerate(peers):
        assert driver.raft.unheard_voters == sorted(peers[heard:])
        assert not of_type(VoteResponse, driver.receive(vote_request(1)))
        driver.receive(
            JoinResponse(
                sender=peer_id,
                receiver="n0",
                term=0,
                incarnation=INCARNATION,
                ledger_end_index=-1,
                leading=False,
                joining=True,
                alone=False,
            )
        )
        driver.tick(1)

    assert driver.raft.unheard_voters == []
    assert not driver.raft.joining
    vote = only(VoteResponse, driver.receive(vote_request(1)))
    assert vote.result is VoteResult.ACCEPT
