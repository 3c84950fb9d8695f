"""Leaders are killed while consumers wait: what is acknowledged is delivered as it was told, once.

`python -m dledger_broker_client.long_run` does the same for longer
(docs/benchmarks/broker-failover.md).
"""

from pathlib import Path

import pytest

from dledger_broker_client.long_run import LongRun, Verdict
from tools.groups.broker_group import BrokerGroup

pytestmark = pytest.mark.group


def test_nothing_acknowledged_is_undelivered_and_no_offset_is_given_twice_after_kills(
    tmp_path: Path,
) -> None:
    with BrokerGroup(tmp_path, segment_size_bytes=1 << 24) as group:
        verdict = LongRun(group).run(messages=20_000, kills=2, within_s=60)

    assert verdict.is_good, f"{verdict} {verdict.moved[:5]}"
    assert verdict.acknowledged >= 10_000
    assert len(verdict.gaps_s) == 2


@pytest.mark.parametrize(
    "broken",
    [
        Verdict(),
        Verdict(acknowledged=1, gaps_s=[0.1, 0.1, 10.0]),
        Verdict(acknowledged=1, gaps_s=[0.1, 2.0, 2.0]),
        Verdict(acknowledged=1, wrong_bodies=1),
        Verdict(acknowledged=1, not_in_log=1),
        Verdict(acknowledged=1, moved=["from 2 to 0"]),
    ],
    ids=str,
)
def test_a_broken_promise_or_a_long_gap_is_not_good(broken: Verdict) -> None:
    assert Verdict(acknowledged=1, gaps_s=[0.1, 1.0, 9.0]).is_good
    assert not broken.is_good
