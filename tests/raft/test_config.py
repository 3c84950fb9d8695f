"""Validation of the core's settings."""

import dataclasses

import pytest

from dledger_formats.protocol.leadership_transfer import TRANSFER_LAG_ENTRIES_MAX
from dledger_formats.protocol.membership_change import PROMOTION_LAG_ENTRIES_MAX
from dledger_node.raft.config import RaftConfig

SOUND = RaftConfig(self_id="n1", voters=("n0", "n1", "n2"), heartbeat_ticks=5, election_ticks=20)


def test_the_peers_are_the_other_voters_in_order() -> None:
    assert SOUND.peers == ("n0", "n2")


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"voters": ("n1", "n0", "n2")}, id="voters that are not sorted"),
        pytest.param({"voters": ("n0", "n1", "n1")}, id="a voter that is listed twice"),
        pytest.param({"self_id": "n3"}, id="a member that is no voter"),
        pytest.param({"heartbeat_ticks": 0}, id="no heartbeat"),
        pytest.param({"election_ticks": 9}, id="a timeout below two heartbeats"),
        pytest.param({"push_entries_max": 0}, id="empty pushes"),
        pytest.param({"inflight_ranges_max": 0}, id="no window"),
    ],
)
def test_contradictory_settings_raise_an_error(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        dataclasses.replace(SOUND, **change)  # type: ignore[arg-type]


def test_the_core_has_the_bounds_on_lag_that_the_operator_knows() -> None:
    assert SOUND.transfer_lag_entries_max == TRANSFER_LAG_ENTRIES_MAX
    assert SOUND.promotion_lag_entries_max == PROMOTION_LAG_ENTRIES_MAX
