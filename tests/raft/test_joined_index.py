"""What a member tells about having joined: up to which entry it took the leader's log."""

from dataclasses import replace

from dledger_node.raft.messages import JoinResponse
from dledger_sim.stage.driver import INCARNATION, CoreDriver, append


def told_by(
    sender: str, term: int, end_index: int = -1, *, leading: bool = False, joining: bool = False
) -> JoinResponse:
    return JoinResponse(
        sender=sender, receiver="n0", term=term, incarnation=INCARNATION,
        ledger_end_index=end_index, leading=leading, joining=joining, alone=False,
    )  # fmt: skip


def joining_core(*answers: JoinResponse) -> CoreDriver:
    driver = CoreDriver(joining=True)
    for one in answers:
        driver.receive(one)
    return driver


def test_a_voter_that_lost_its_volume_tells_where_the_leader_s_log_ended() -> None:
    driver = joining_core(told_by("n1", 3, 4, leading=True), told_by("n2", 2))
    driver.receive(append(3, (-1, -1), 3))
    driver.flush()
    assert driver.raft.joined_index == -1, "it does not vote yet"
    driver.receive(append(3, (3, 3), 6))
    driver.flush()

    assert not driver.raft.joining
    assert driver.raft.joined_index == 4


def test_no_member_of_a_new_group_has_lost_a_volume() -> None:
    driver = joining_core(told_by("n1", 0, joining=True), told_by("n2", 0, joining=True))

    assert not driver.raft.joining
    assert driver.raft.joined_index == -1


def test_a_member_that_is_no_voter_yet_has_lost_nothing() -> None:
    driver = CoreDriver(joining=True, self_id="n3", addable_ids=("n3",))
    for told in (told_by("n0", 3, 0, leading=True), told_by("n1", 2), told_by("n2", 2)):
        driver.receive(replace(told, receiver="n3"))
    driver.receive(replace(append(3, (-1, -1), 0), sender="n0", receiver="n3"))
    driver.flush()

    assert not driver.raft.joining
    assert driver.raft.joined_index == -1
