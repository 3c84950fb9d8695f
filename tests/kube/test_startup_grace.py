"""The startup grace period of a new group."""

from datetime import timedelta

from dledger_kube.objects import NOW, member
from dledger_operator.behaviors.founding.startup_grace import GRACE_PERIOD, StartupGracePeriod

ALL_READY = (member(0), member(1), member(2))
ONE_NOT_READY = (member(0), member(1), member(2, ready=False))
SOON = NOW + timedelta(seconds=1)


def test_the_period_is_active_while_members_of_a_new_group_are_not_ready() -> None:
    assert StartupGracePeriod(NOW).is_active(ONE_NOT_READY, SOON)
    assert StartupGracePeriod(NOW).is_active((), SOON)


def test_the_period_ends_a_minute_after_the_creation() -> None:
    assert not StartupGracePeriod(NOW).is_active(ONE_NOT_READY, NOW + GRACE_PERIOD)


def test_the_period_ends_for_good_once_all_members_were_ready() -> None:
    period = StartupGracePeriod(NOW)
    assert not period.is_active(ALL_READY, SOON)
    assert not period.is_active(ONE_NOT_READY, SOON)
