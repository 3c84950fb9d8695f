"""Random messages to one core; see `dledger_sim.search.fuzz`."""

import pytest

from dledger_node.raft.messages import AppendRequest
from dledger_sim.search.fuzz import KINDS, Fuzzer

STEPS_PER_SEED = 25_000
SEED_COUNT = 8


def test_a_few_random_messages_break_no_rule() -> None:
    changed = Fuzzer(1).run(1_500)

    assert set(changed) == {kind.__name__ for kind in KINDS}
    assert sum(changed.values()) > 100, "a test needs messages that change the core"


@pytest.mark.simulation
@pytest.mark.parametrize("seed", range(SEED_COUNT))
def test_random_messages_break_no_rule(seed: int) -> None:
    Fuzzer(100 + seed).run(STEPS_PER_SEED)


def test_a_push_of_entries_without_a_term_cannot_be_constructed() -> None:
    """The fuzzer found this."""
    with pytest.raises(ValueError, match="the terms -1, -1 are not valid"):
        AppendRequest(
            sender="n1", receiver="n0", term=1, previous_index=-1, previous_term=-1,
            first_index=0, last_index=0, entries_term=-1, committed_index=-1, entries="bytes",
        )  # fmt: skip
