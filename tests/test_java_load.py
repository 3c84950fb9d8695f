"""What the load of Java clients on a cluster demands of their pauses."""

from types import SimpleNamespace
from typing import Any

import pytest

from dledger_e2e.java_load import MEDIAN_S_MAX, NAME_SERVER, PAUSE_S_MAX, JavaLoad

SHORT = 0.5, 0.5


def load(**pauses_s: list[tuple[float, float]]) -> JavaLoad:
    deployment = SimpleNamespace(kubernetes=None)
    group: Any = SimpleNamespace(namespace="orders", deployment=deployment)
    made = JavaLoad(group, NAME_SERVER)
    made.pauses_s = pauses_s
    return made


def test_short_pauses_are_right() -> None:
    load(kills=[SHORT] * 5, rolls=[SHORT]).assert_pauses_are_short()


@pytest.mark.parametrize("pause_s", [(PAUSE_S_MAX, 0.5), (0.5, PAUSE_S_MAX)])
def test_one_long_pause_of_sends_or_of_deliveries_is_too_long(pause_s: tuple[float, float]) -> None:
    with pytest.raises(AssertionError, match="kills"):
        load(rolls=[SHORT], kills=[SHORT] * 20 + [pause_s]).assert_pauses_are_short()


@pytest.mark.parametrize("pause_s", [(MEDIAN_S_MAX, 0.5), (0.5, MEDIAN_S_MAX)])
def test_half_of_three_or_more_pauses_must_be_shorter(pause_s: tuple[float, float]) -> None:
    load(kills=[pause_s] * 2).assert_pauses_are_short()

    with pytest.raises(AssertionError, match="kills"):
        load(kills=[SHORT, pause_s, pause_s]).assert_pauses_are_short()


def test_a_change_may_have_longer_pauses_of_deliveries() -> None:
    load(losses=[(0.5, 35.0)]).assert_pauses_are_short(delivery_s_max=40.0)
