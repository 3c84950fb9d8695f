"""What a member says about its volume, by which the operator lets it grow."""

import os
from pathlib import Path

from tools.groups.node_group import NodeGroup
from tools.groups.waiting import wait_for


def test_a_member_tells_the_size_of_its_volume_and_the_room_on_it(tmp_path: Path) -> None:
    with NodeGroup(tmp_path, members=1) as group:
        member = group.master()
        wait_for(
            lambda: group.status(member).volume_size_bytes > 0,
            "the member has looked at its volume",
        )
        reported, found = group.status(member), os.statvfs(tmp_path)

    assert reported.volume_size_bytes == found.f_blocks * found.f_frsize
    assert 0 < reported.volume_available_bytes < reported.volume_size_bytes
