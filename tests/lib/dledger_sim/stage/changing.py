"""Leaders that are ready for membership changes; a test plays their peers."""

from dledger_node.raft.membership import AddLearner
from dledger_node.raft.messages import HeartBeatRequest, Message
from dledger_sim.stage.driver import HEARTBEAT_TICKS, CoreDriver, of_type


def leader(*, voter_count: int = 3, settled: bool = True, lag_max: int = 1000) -> CoreDriver:
    """Return the leader of term 1. If `settled`, all peers hold its log and have answered."""
    driver = CoreDriver(
        voter_count=voter_count, addable_ids=("n7", "n8"), promotion_lag_entries_max=lag_max
    )
    driver.become_leader()
    if settled:
        for peer_id in driver.voters():
            driver.agree(peer_id)
            driver.receive(driver.success_from(peer_id, 0))
            driver.receive(driver.heard_from(peer_id, 1))
    return driver


def confirm(driver: CoreDriver, *peer_ids: str) -> list[Message]:
    """Flush the leader's log, and let peers confirm all of it; return the leader's messages."""
    sent = driver.flush()
    for peer_id in peer_ids:
        sent += driver.receive(driver.success_from(peer_id, driver.raft.ledger_end_index))
    return sent


def with_learner(**settings: int) -> CoreDriver:
    """Return a leader with learner n7, which holds the log and has answered a heartbeat."""
    driver = leader(**settings)
    assert driver.change(AddLearner("n7")) is None
    confirm(driver, *driver.voters())
    driver.agree("n7")
    confirm(driver, "n7")
    sent = driver.tick(HEARTBEAT_TICKS)
    round_ = of_type(HeartBeatRequest, sent)[-1].round
    for peer_id in (*driver.voters(), "n7"):
        driver.receive(driver.heard_from(peer_id, round_))
    return driver
