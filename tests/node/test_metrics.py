"""The node's metrics: their names and values, and the page that lists them."""

import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from prometheus_client import Metric

from dledger_client.client import DLedgerClient
from dledger_formats.http.status import StorageState
from dledger_formats.settings import NodeSettings
from dledger_node.histogram import Histogram
from dledger_node.http.auditors import Auditors
from dledger_node.http.metrics import registry
from dledger_node.http.outage import Outage
from dledger_node.shell.meters import Meters
from dledger_node.shell.token_file import TokenFile
from tools.groups.node_group import NodeGroup
from tools.groups.waiting import wait_for

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
UNITS_NOT_OF_PROMETHEUS = ("_ms", "_percent", "_kib", "_mib", "_minutes", "_milliseconds")


@pytest.fixture(scope="module")
def families() -> list[Metric]:
    """Every metric family of a member; one out of service has them all."""
    settings = NodeSettings(
        group="g", self_id="n0", peers={"n0": "127.0.0.1:1"}, store_base_dir="/nowhere"
    )
    outage = Outage(settings, "1", state=StorageState.SOUND, reason="being opened")
    return list(registry(outage, Meters(), Auditors(TokenFile(""))).collect())


def exposed_name(family: Metric) -> str:
    return f"{family.name}_total" if family.type == "counter" else family.name


def test_the_page_lists_every_metric_with_its_type_and_help(families: Iterable[Metric]) -> None:
    row = r"^\| `(dledger_node_[a-z_]+)(?:\{[a-z]+\})?` \| (\w+) \| (.+) \|$"
    rows = re.findall(row, PAGE.read_text(), re.MULTILINE)

    assert rows == sorted(
        (exposed_name(family), family.type, family.documentation) for family in families
    )


def test_names_and_help_follow_the_rules_of_prometheus(families: Iterable[Metric]) -> None:
    for family in families:
        assert re.fullmatch(r"dledger_node(_[a-z]+)+", family.name), family.name
        assert not family.name.endswith(UNITS_NOT_OF_PROMETHEUS), "base units only"
        assert family.type == "counter" or not family.name.endswith(("_total", "_count"))
        assert family.type != "histogram" or family.name.endswith("_seconds")
        assert family.documentation.endswith(".")


def test_a_histogram_counts_values_up_to_each_bound() -> None:
    histogram = Histogram((1.0, 2.0))

    histogram.observe(1.0)
    histogram.observe(1.5, count=3)
    histogram.observe(9.0)

    assert histogram.cumulative() == [1, 4, 5]
    assert (histogram.count, histogram.sum, histogram.max) == (5, 14.5, 9.0)


def values_of(group: NodeGroup, member: str) -> dict[str, float]:
    lines = group.get(member, "/metrics")[1].decode().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


@pytest.mark.group
async def test_appends_flushes_links_and_lag_are_measured(steady_group: NodeGroup) -> None:
    master = steady_group.master()
    peers = [member for member in steady_group.running() if member != master]
    before = values_of(steady_group, master)

    async with DLedgerClient(steady_group.servers, "g") as client:
        await client.append_batch([b"x"] * 100)

    after = values_of(steady_group, master)
    waited = (
        after["dledger_node_append_seconds_count"] - before["dledger_node_append_seconds_count"]
    )
    assert waited == 100
    assert after["dledger_node_append_seconds_sum"] > before["dledger_node_append_seconds_sum"]
    flushes = "dledger_node_flush_seconds_count"
    wait_for(  # the followers' flushes alone may have made the quorum
        lambda: values_of(steady_group, master)[flushes] > before[flushes],
        "the leader has flushed",
    )
    assert after["dledger_node_leader_changes_total"] >= 1
    for name in ("received", "sent"):
        for kind in ("client", "peer", "http"):
            series = f'dledger_node_{name}_bytes_total{{kind="{kind}"}}'
            assert after[series] > before[series], series
    assert [after[f'dledger_node_peer_link_up{{peer="{peer}"}}'] for peer in peers] == [1, 1]
    wait_for(
        lambda: all(
            values_of(steady_group, master)[f'dledger_node_peer_lag_entries{{peer="{peer}"}}'] == 0
            for peer in peers
        ),
        "every peer holds the log",
    )


@pytest.mark.group
def test_the_volume_is_measured(steady_group: NodeGroup) -> None:
    member = steady_group.master()

    wait_for(
        lambda: values_of(steady_group, member)["dledger_node_volume_size_bytes"] > 0,
        "the member has looked at its volume",
    )

    values = values_of(steady_group, member)
    available_bytes = values["dledger_node_volume_available_bytes"]
    assert 0 < available_bytes < values["dledger_node_volume_size_bytes"]
