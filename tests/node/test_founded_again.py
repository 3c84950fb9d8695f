"""A group that is emptied and founded again under its name, while its clients stay open."""

import shutil
from pathlib import Path

import pytest

from dledger_client.client import DLedgerClient
from dledger_client.cluster.members import Timing
from dledger_client.errors import GroupUnreachableError
from dledger_group.failing import bodies_by_index
from tools.groups.node_group import NodeGroup

pytestmark = pytest.mark.group

TIMING = Timing(deadline_s=2.0)


def found_again(group: NodeGroup) -> None:
    """Delete the folder of the only member, and start it again at its address."""
    group.kill("n0")
    shutil.rmtree(group.store_folder("n0"))
    group.start("n0")
    group.wait_until_up("n0")
    group.master()


async def test_no_append_is_acknowledged_for_that_of_another_client_in_the_earlier_group(
    tmp_path: Path,
) -> None:
    """A new registration may have the id of an earlier one: that is the index of its entry."""
    acknowledged: list[bytes] = []

    async def append(client: DLedgerClient, *bodies: bytes) -> None:
        for body in bodies:
            await client.append(body)
            acknowledged.append(body)

    with NodeGroup(tmp_path, members=1) as group:
        group.master()
        async with DLedgerClient(group.servers, "g", idempotent=True, timing=TIMING) as old:
            await append(old, *(b"old %d" % number for number in range(3)))
            found_again(group)
            acknowledged.clear()
            async with DLedgerClient(group.servers, "g", idempotent=True, timing=TIMING) as new:
                await append(new, *(b"new %d" % number for number in range(9)))
                with pytest.raises(GroupUnreachableError, match="another group named g"):
                    await append(old, b"of the old client")

        assert sorted((await bodies_by_index(group)).values()) == sorted(acknowledged)
