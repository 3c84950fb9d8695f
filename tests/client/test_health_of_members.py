"""What `dledger health` says about members by their pages, without a group."""

import argparse
import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dledger_client.admin import GroupMembership
from dledger_client.commands import health
from dledger_formats.http.status import (
    FlushDiskType,
    NodeStatus,
    PeerStatus,
    Role,
    StorageState,
)

VOTERS = ("n0", "n1", "n2")


def end_s() -> float:
    return asyncio.get_running_loop().time() + 30


async def problems(http: str | None, addresses: dict[str, str], *voters: str) -> list[str]:
    arguments = argparse.Namespace(group="g", max_lag=None, http=http, http_port=1)
    group = GroupMembership(
        group="g", leader_id="n0", term=1, voters=voters, learners=("n1",), index=-1,
        addresses=addresses,
    )  # fmt: skip
    found = health.Health(leader_id="n0")
    return await health._members_problems(arguments, found, group, end_s())


async def test_a_learner_may_be_silent() -> None:
    (problem,) = await problems(None, {"n0": "127.0.0.1:9", "n1": "localhost:9"}, "n0")

    assert problem == "the page of n0 at 127.0.0.1:1: Connection refused"


async def test_members_that_would_share_a_page_need_http() -> None:
    (problem,) = await problems(None, {"n0": "127.0.0.1:7", "n2": "127.0.0.1:9"}, "n0", "n2")

    assert "n0, n2 would all have their pages at 127.0.0.1:1; name the page of each" in problem


async def test_a_page_without_an_answer_may_be_that_of_any_member_which_is_missing() -> None:
    found = await problems("127.0.0.1:1", {}, "n0", "n2")

    assert found == [
        "the page at 127.0.0.1:1: Connection refused",
        "no page has answered for n0, n2",
    ]


async def test_a_voter_whose_page_nobody_names_is_a_problem() -> None:
    found = await problems("n0=127.0.0.1:1", {}, "n0", "n2")

    assert found[1] == "no page has answered for n2; give its address in --http"


@asynccontextmanager
async def page(**changes: Any) -> AsyncIterator[str]:
    """Serve the page of n0, the leader of three voters; yield its address."""
    values: dict[str, Any] = {
        "group": "g", "self_id": "n0", "role": Role.LEADER, "term": 1, "leader_id": "n0",
        "master": True, "ready": True, "reason": "", "broker_id": 0, "ledger_begin_index": 0,
        "ledger_end_index": 1, "ledger_end_term": 1, "committed_index": 1, "durable_index": 1,
        "flush_disk_type": FlushDiskType.SYNC_FLUSH, "peers": {}, "voters": [*VOTERS],
        "version": "",
    }  # fmt: skip
    status = NodeStatus(**(values | changes))

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.0 200 OK\r\n\r\n" + status.to_json())
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def voter_problems(max_lag: int | None = None, **changes: Any) -> list[str]:
    """Return what is wrong with the voter n1, while n0 leads term 1 with its log up to entry 6."""
    group = GroupMembership(
        group="g", leader_id="n0", term=1, voters=("n1",), learners=(), index=-1, addresses={}
    )
    found = health.Health(leader_id="n0", term=1, end_index=6)
    values = {"self_id": "n1", "role": Role.FOLLOWER, "master": False} | changes
    async with page(**values) as address:
        arguments = argparse.Namespace(group="g", max_lag=max_lag, http=address, http_port=1)
        return await health._members_problems(arguments, found, group, end_s())


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"leader_id": "n2"}, "n1 follows n2"),
        ({"leader_id": None}, "n1 follows no leader"),
        (
            {"leader_id": None, "ready": False, "reason": "its folder belongs to the group h"},
            "n1 follows no leader: its folder belongs to the group h",
        ),
        ({"role": Role.CANDIDATE, "leader_id": None}, "n1 follows no leader"),
        (
            {"role": Role.LEADER, "leader_id": "n1", "term": 2},
            "n1 says that it leads term 2 itself",
        ),
        ({"ready": False, "reason": "catching up"}, "n1 is not ready: catching up"),
    ],
)
async def test_a_voter_that_does_not_follow_the_leader_is_a_problem(
    changes: dict[str, Any], problem: str
) -> None:
    assert await voter_problems(**changes) == [problem]


async def test_a_voter_that_follows_the_leader_is_no_problem() -> None:
    assert await voter_problems() == []
    assert await voter_problems(max_lag=5) == []


async def test_a_voter_that_lags_by_more_than_allowed_is_a_problem() -> None:
    assert await voter_problems(max_lag=4) == ["n1 lags by 5 entries"]
    assert await voter_problems(max_lag=4, ledger_end_index=6) == []


async def leader_problems(http: str | None, addresses: dict[str, str]) -> list[str]:
    arguments = argparse.Namespace(group="g", max_lag=None, http=http, http_port=1)
    group = GroupMembership(
        group="g", leader_id="n0", term=1, voters=VOTERS, learners=(), index=-1,
        addresses=addresses,
    )  # fmt: skip
    return await health._leader_problems(arguments, group, end_s())


def followers(*full: str) -> list[PeerStatus]:
    return [
        PeerStatus(peer_id=one, match_index=1, reachable=True, full=one in full)
        for one in VOTERS[1:]
    ]


async def test_a_leader_on_a_full_volume_is_a_problem() -> None:
    full = {"storage": StorageState.FULL, "ready": False, "reason": "the volume is full"}
    async with page(**full) as address:
        found = await leader_problems(address, {})

    assert found == ["n0, the leader, is not ready: the volume is full"]


async def test_a_majority_on_full_volumes_is_a_problem() -> None:
    async with page(followers=followers("n1", "n2")) as address:
        found = await leader_problems(f"127.0.0.1:1,{address}", {})

    assert found == ["the volumes of n1, n2 are full, so no majority has room for another entry"]


async def test_one_follower_on_a_full_volume_leaves_a_majority() -> None:
    async with page(followers=followers("n1")) as address:
        assert await leader_problems(address, {}) == []


async def test_a_leader_whose_page_does_not_answer_is_believed() -> None:
    """Java's members have no page."""
    assert await leader_problems(None, {one: f"127.0.0.{one[1:]}:9" for one in VOTERS}) == []


async def test_a_page_that_members_would_share_tells_nothing_of_the_leader() -> None:
    assert await leader_problems(None, dict.fromkeys(VOTERS, "127.0.0.1:9")) == []
