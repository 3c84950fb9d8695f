"""The Python client and command line against groups of Java members of every version."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger_client.append.outcomes import Acknowledged
from dledger_client.client import DLedgerClient
from dledger_client.cluster.members import Timing
from dledger_client.errors import NoEntryError, RefusedError
from dledger_formats.protocol.entry import DLedgerEntry
from dledger_java.client import JavaClient
from tools.groups.java_group import JavaGroup

pytestmark = [
    pytest.mark.interop,
    pytest.mark.sampled(2, by="java", among="test_python_client"),
]

BODIES = [b"", b"hello", bytes(range(256)), bytes(100_000), *(b"%d" % n for n in range(200))]
COMMAND_LINE = "import sys; from dledger_client.cli import main; sys.exit(main())"
# Java members take seconds to elect a leader, and a JVM is slow after its start.
TIMING = Timing(deadline_s=90.0, request_timeout_s=10.0)


@pytest.fixture(scope="module")
def group(java: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaGroup]:
    """Three Java members; the last test of this module kills one of them."""
    with JavaGroup(tmp_path_factory.mktemp("java"), java) as running:
        yield running


def client_of(group: JavaGroup) -> DLedgerClient:
    return DLedgerClient(servers=group.servers, group="g", timing=TIMING, at_least_once=True)


async def append_all(client: DLedgerClient, bodies: list[bytes]) -> dict[int, bytes]:
    stored = {}
    async for outcome in client.append_all(bodies, in_flight=64):
        assert isinstance(outcome, Acknowledged), outcome
        stored[outcome.index] = bodies[outcome.number]
    return stored


async def read_back(client: DLedgerClient, indexes: list[int]) -> dict[int, bytes]:
    return {
        entry.index: entry.body
        async for entry in client.get_range(min(indexes), max(indexes))
        if entry.index in indexes
    }


def dledger(group: JavaGroup, *arguments: str, given: bytes = b"") -> bytes:
    """Run the command line and return its output."""
    environment = os.environ | {
        "DLEDGER_CLIENT_SERVERS": ",".join(group.servers), "DLEDGER_CLIENT_GROUP": "g",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", COMMAND_LINE, *arguments, "--deadline=90"],
        input=given, env=environment, capture_output=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


async def test_an_appended_body_is_read_back_at_its_index(group: JavaGroup) -> None:
    async with client_of(group) as client:
        stored = await append_all(client, BODIES)

        assert sorted(stored.values()) == sorted(BODIES)
        assert await read_back(client, list(stored)) == stored


async def test_java_reads_an_entry_appended_by_python(
    group: JavaGroup, java: str, tmp_path: Path
) -> None:
    body = bytes(range(256))
    async with client_of(group) as client:
        appended = await client.append(body)

    with JavaClient(tmp_path, java, group.peers) as reader:
        answer = reader.get(appended.index)

    assert (answer.body, answer.pos, answer.term) == (body, appended.pos, appended.term)


async def test_idempotent_appends_are_refused_before_any_is_sent(
    group: JavaGroup,
) -> None:
    async with DLedgerClient(
        servers=group.servers, group="g", timing=TIMING, idempotent=True
    ) as client:
        with pytest.raises(RefusedError, match="do not support idempotent appends"):
            await client.append(b"never")


async def test_an_index_past_the_end_raises_no_entry_error(group: JavaGroup) -> None:
    async with client_of(group) as client:
        with pytest.raises(NoEntryError):
            await client.get(1_000_000)


async def test_an_entry_from_java_has_no_checksums(group: JavaGroup) -> None:
    async with client_of(group) as client:
        appended = await client.append(b"plain")
        entry = await client.get(appended.index)

    assert entry == DLedgerEntry(
        body=b"plain", body_crc=0, chain_crc=0, channel=0, index=appended.index, magic=1,
        pos=appended.pos, size=53, term=appended.term,
    )  # fmt: skip


def test_the_command_line_appends_reads_and_prints_the_leader(group: JavaGroup) -> None:
    lines = [b"one", b"two", b"three"]

    printed = dledger(group, "append", "-", "--output=json", given=b"\n".join(lines))
    outcomes = [json.loads(line) for line in printed.splitlines()][: len(lines)]
    read = [dledger(group, "get", f"--first={outcome['index']}") for outcome in outcomes]
    shown = json.loads(dledger(group, "group", "--output=json"))

    assert [body.strip() for body in read] == lines
    assert shown == {"group": "g", "leader": group.leader(), "peers": group.peers}


async def test_appends_continue_after_the_leader_is_killed(group: JavaGroup) -> None:
    leader = group.leader()
    async with client_of(group) as client:
        stored = await append_all(client, BODIES)
        group.kill(leader)
        stored |= await append_all(client, [b"after " + body for body in BODIES])

        assert client.leader_id != leader
        assert await read_back(client, list(stored)) == stored
    group.start(leader)
    group.leader()
