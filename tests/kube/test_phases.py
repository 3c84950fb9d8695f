"""How the groups are spread over the moments at which their loops run."""

import contextlib
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from dledger_operator.behaviors.loops import TICK_S
from dledger_operator.behaviors.phases import GROUPS_PER_PHASE, PHASE_S, PHASES_MAX, Phases


@given(st.integers(0, 2 * GROUPS_PER_PHASE * PHASES_MAX))
def test_few_groups_share_a_moment_and_as_few_moments_as_possible_are_used(count: int) -> None:
    phases = Phases()
    with contextlib.ExitStack() as groups:
        given_s = Counter(groups.enter_context(phases.for_a_group()) for _ in range(count))

    needed = min(PHASES_MAX, -(-count // GROUPS_PER_PHASE))
    assert len(given_s) == needed
    assert max(given_s.values(), default=0) <= max(GROUPS_PER_PHASE, -(-count // PHASES_MAX))
    assert all(0 <= each_s < TICK_S for each_s in given_s)
    assert given_s.keys() == {k * PHASE_S for k in range(needed)}


@given(st.data())
def test_a_group_that_is_gone_leaves_its_place_to_another(data: st.DataObject) -> None:
    phases = Phases()
    alive: list[tuple[contextlib.ExitStack, float]] = []
    for _ in range(3 * GROUPS_PER_PHASE):
        if alive and data.draw(st.booleans()):
            gone, _ = alive.pop(data.draw(st.integers(0, len(alive) - 1)))
            gone.close()
        else:
            stack = contextlib.ExitStack()
            alive.append((stack, stack.enter_context(phases.for_a_group())))

    assert max(Counter(each_s for _, each_s in alive).values(), default=0) <= GROUPS_PER_PHASE
