"""The benchmark of one operator with many groups, with few."""

from pathlib import Path

import pytest

from api_server.client import ApiServer
from dledger_kube.many_groups import measure

pytest_plugins = ["api_server.fixtures"]


@pytest.mark.timeout(180)
async def test_the_benchmark_sees_every_group_led_again_and_no_two_masters(
    api_server: ApiServer, tmp_path: Path
) -> None:
    found = await measure(api_server, tmp_path, count=2, change_count=4, writes_s=1.0, idle_s=5.0)

    assert found["reconciled_after_restart"] == 2
    assert found["double_masters"] == 0
    assert 0 < found["change_p50_ms"] <= found["change_max_ms"]
    assert 20 < found["memory_mib"] < 256
    assert 0 < found["idle_millicores"] < 500
