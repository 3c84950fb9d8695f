"""What `dledger group local --broker` offers to try."""

import asyncio
import re
from pathlib import Path

import pytest

from dledger_client.commands import group_local
from dledger_client.local.folder import GroupShape
from dledger_client.local.group import LocalGroup
from tools.groups.ports import consecutive_ports

pytestmark = pytest.mark.group


async def output_of(command: str) -> str:
    process = await asyncio.create_subprocess_shell(command, stdout=asyncio.subprocess.PIPE)
    return (await process.communicate())[0].decode()


async def test_the_command_that_needs_no_java_shows_what_a_member_has_served(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, broker = consecutive_ports(2), consecutive_ports(2)
    shape = GroupShape(group="local", members=1, broker=True)
    async with LocalGroup(shape, tmp_path, first_port=first, broker_port=broker) as group:
        group_local._print_start(group, is_kept=True, as_json=False)
        [command] = re.findall("curl .*", capsys.readouterr().out)
        async with asyncio.timeout(30):
            while True:  # the member has just been started
                if shown := await output_of(command):
                    break
                await asyncio.sleep(0.1)

    assert "dledger_broker_messages_stored_total 0.0" in shown
    assert "dledger_broker_messages_pulled_total 0.0" in shown
