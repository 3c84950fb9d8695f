"""A producer at work, and many short-lived ones beside it; real processes."""

from pathlib import Path

import pytest

from dledger_formats.protocol.codes import DLedgerResponseCode as Code
from dledger_group.producer_client import ProducerClient
from dledger_node.store.derived.producers import ESTABLISHED_SEQUENCE
from tools.groups.node_group import NodeGroup

pytestmark = pytest.mark.group

SHORT_LIVED = 1100
"""More than a member remembers."""


def test_short_lived_clients_evict_no_producer_at_work_also_on_the_next_leader(
    tmp_path: Path,
) -> None:
    with NodeGroup(tmp_path, heartbeat_interval_ms=250, election_timeout_ms=4000) as group:
        leader = group.master()
        with ProducerClient(group, leader) as client:
            at_work, forgotten = client.register(), client.register()
            for sequence in range(1, ESTABLISHED_SEQUENCE + 1):
                last = client.append(at_work, sequence)
            assert last["code"] == Code.SUCCESS

            for _ in range(SHORT_LIVED):
                assert client.append(client.register(), 1)["code"] == Code.SUCCESS

            again = client.append(at_work, ESTABLISHED_SEQUENCE)
            assert (again["code"], again["index"]) == (Code.SUCCESS, last["index"])
            following = client.append(at_work, ESTABLISHED_SEQUENCE + 1)
            assert following["code"] == Code.SUCCESS
            assert client.append(forgotten, 1)["code"] != Code.SUCCESS, "it had done nothing"

        group.kill(leader)
        with ProducerClient(group, group.master()) as client:
            again = client.append(at_work, ESTABLISHED_SEQUENCE + 1)
            assert (again["code"], again["index"]) == (Code.SUCCESS, following["index"])
            assert client.append(at_work, ESTABLISHED_SEQUENCE + 2)["code"] == Code.SUCCESS
