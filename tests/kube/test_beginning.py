"""How long a group that is not whole counts as merely starting."""

from datetime import timedelta

from dledger_kube.objects import NOW, member
from dledger_operator.behaviours.members.beginning import AGE_MAX, Beginning

WHOLE = (member(0), member(1), member(2))
LACKING = (member(0), member(1), member(2, ready=False))
SOON = NOW + timedelta(seconds=1)


def test_members_of_a_young_group_may_be_late() -> None:
    assert Beginning(NOW).lasts(LACKING, SOON)
    assert Beginning(NOW).lasts((), SOON)


def test_it_ends_with_the_group_s_first_minute() -> None:
    assert not Beginning(NOW).lasts(LACKING, NOW + AGE_MAX)


def test_a_member_that_falls_once_all_were_ready_is_not_merely_late() -> None:
    beginning = Beginning(NOW)
    assert not beginning.lasts(WHOLE, SOON)
    assert not beginning.lasts(LACKING, SOON)
