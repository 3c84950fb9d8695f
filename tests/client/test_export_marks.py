"""`dledger export --follow --until`: the mark that ends a cut-over, and when it is sure."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import msgspec
import pytest

from dledger_client.cli import main
from dledger_client.client import DLedgerClient
from dledger_client.exports.group import following_entries
from dledger_client.exports.reading import ExportDecoder
from dledger_fake_server.group import Group
from dledger_formats.log import disk
from dledger_formats.protocol.entry import DLedgerEntry

FOLLOW = ["export", "--follow", "--until=mark"]


@pytest.fixture
def java(group: Group) -> Group:
    """A Java group: its members report no term, and answer with entries that are not committed."""
    make_java(group)
    return group


def make_java(group: Group) -> None:
    for member in group.members.values():
        member.needs_remote_id, member.supports_follow = True, False


def server_of_n0(group: Group) -> str:
    """Return the server of a client that finds n0 first, although n1 may say that it leads, too."""
    return f"n0={group['n0'].address}"


def let_leaders_append(group: Group, indexes: set[int]) -> None:
    """Let these entries be those that a leader appends for itself."""
    stored = group.stored_entry
    group.entry = lambda index: msgspec.structs.replace(
        stored(index), magic=disk.NOOP if index in indexes else disk.NORMAL
    )


def bodies_in(path: Path) -> list[bytes]:
    decoder = ExportDecoder(str(path))
    entries = decoder.feed(path.read_bytes())
    decoder.finish()
    return [entry.body for entry in entries]


async def bodies_of(entries: AsyncGenerator[list[DLedgerEntry], None]) -> list[bytes]:
    async with asyncio.timeout(10):
        return [entry.body async for some in entries for entry in some]


async def test_a_mark_of_a_deposed_leader_does_not_end_an_export(java: Group) -> None:
    """n0 does not know that n1 leads, so it takes a mark that nobody will acknowledge."""
    java.log = [b"a", b"mark"]
    java["n1"].leader_hint = java["n2"].leader_hint = "n1"
    async with DLedgerClient(server_of_n0(java), java.name) as client:
        following = following_entries(client, 0, None, b"mark")
        assert [entry.body for entry in await anext(following)] == [b"a"]
        end = asyncio.ensure_future(anext(following))
        done, _ = await asyncio.wait({end}, timeout=1.0)
        assert not done, "a majority names n1"

        java["n1"].leader_hint = "n0"

        assert [entry.body for entry in await end] == [b"mark"]
        with pytest.raises(StopAsyncIteration):
            await anext(following)


async def test_an_export_says_which_members_do_not_confirm_the_mark(java: Group) -> None:
    java.log = [b"a", b"mark"]
    java["n1"].leader_hint = java["n2"].leader_hint = None
    said: list[str] = []
    async with DLedgerClient(server_of_n0(java), java.name) as client:
        end = asyncio.ensure_future(
            bodies_of(following_entries(client, 0, None, b"mark", said.append))
        )
        while not said:
            await asyncio.wait({end}, timeout=0.1)
            assert not end.done()
        java["n1"].leader_hint = "n0"
        await end

    wait = "waiting until a majority of the 3 members names n0 as the leader: n1, n2 did not"
    assert said == [f"entry 1 is the mark; {wait}"]


async def test_entries_before_a_mark_are_not_read_again_while_it_is_not_sure(java: Group) -> None:
    java.log = [b"a", b"b", b"mark"]
    java["n1"].leader_hint = java["n2"].leader_hint = "n1"
    asked: list[int] = []
    stored = java.stored_entry

    def entry(index: int) -> DLedgerEntry:
        asked.append(index)
        if asked.count(2) > 3:
            java["n1"].leader_hint = "n0"
        return stored(index)

    java.entry = entry
    async with DLedgerClient(server_of_n0(java), java.name) as client:
        assert await bodies_of(following_entries(client, 0, None, b"mark")) == java.log

    assert asked.count(0) == 1


async def test_a_mark_that_a_new_leader_replaces_does_not_end_an_export(java: Group) -> None:
    java.log = [b"a", b"mark"]
    java["n1"].leader_hint = java["n2"].leader_hint = "n1"
    async with DLedgerClient(server_of_n0(java), java.name) as client:
        following = following_entries(client, 0, None, b"mark")
        assert [entry.body for entry in await anext(following)] == [b"a"]
        end = asyncio.ensure_future(bodies_of(following))
        await asyncio.wait({end}, timeout=0.3)
        java.log[1:] = [b"b", b"mark"]
        java["n1"].leader_hint = "n0"

        assert await end == [b"b", b"mark"]


async def test_members_of_this_project_need_not_confirm_a_mark(group: Group) -> None:
    """They answer with committed entries only."""
    group.log = [b"a", b"mark"]
    group["n1"].leader_hint = group["n2"].leader_hint = None
    async with DLedgerClient(group.servers, group.name) as client:
        assert await bodies_of(following_entries(client, 0, None, b"mark")) == [b"a", b"mark"]


async def test_a_follower_of_this_project_confirms_a_mark_by_itself(group: Group) -> None:
    group.log = [b"a", b"mark"]
    group["n1"].serves_reads = True
    follower = group["n1"].address
    async with DLedgerClient(follower, group.name, follow_leader=False) as client:
        assert await bodies_of(following_entries(client, 0, None, b"mark")) == [b"a", b"mark"]


async def test_a_body_that_a_leader_appends_for_itself_is_no_mark(group: Group) -> None:
    group.log = [b"mark", b"mark"]
    let_leaders_append(group, {0})
    async with DLedgerClient(group.servers, group.name) as client:
        assert await bodies_of(following_entries(client, 0, None, b"mark")) == [b"mark", b"mark"]


@pytest.mark.usefixtures("group_in_environment")
def test_a_file_that_ends_with_the_mark_is_compared_with_the_log(
    group_in_thread: Group, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "out"
    group_in_thread.log = [b"a", b"mark"]
    assert main([*FOLLOW, str(path)]) == 0
    assert main([*FOLLOW, str(path)]) == 0

    group_in_thread.log = [b"a", b"another"]

    assert main([*FOLLOW, str(path)]) == 1
    assert "entry 1 of term 1, which was exported, is not in the log" in capsys.readouterr().err


@pytest.mark.usefixtures("group_in_environment")
def test_the_mark_in_a_file_is_found_before_entries_of_leaders(
    group_in_thread: Group, tmp_path: Path
) -> None:
    path = tmp_path / "out"
    group_in_thread.log = [b"a", b"mark", b"", b""]
    let_leaders_append(group_in_thread, {2, 3})
    assert main(["export", str(path)]) == 0

    assert main([*FOLLOW, str(path)]) == 0

    assert bodies_in(path) == [b"a", b"mark", b"", b""]


@pytest.mark.usefixtures("group_in_environment")
@pytest.mark.parametrize("is_exported", [False, True])
def test_entries_that_clients_appended_after_the_mark_are_named(
    group_in_thread: Group, tmp_path: Path, capsys: pytest.CaptureFixture[str], is_exported: bool
) -> None:
    """Whether the file has them already or not: somebody forgot to stop a program."""
    path = tmp_path / "out"
    group_in_thread.log = [b"a", b"mark", b"", b"late", b"later"]
    let_leaders_append(group_in_thread, {2})
    if is_exported:
        assert main(["export", str(path)]) == 0

    assert main([*FOLLOW, str(path)]) == 1

    printed = capsys.readouterr().err
    assert "entry 3 was appended after the mark, entry 1, and the log ends with entry 4" in printed
    assert bodies_in(path) == (group_in_thread.log if is_exported else [b"a", b"mark"])


@pytest.mark.usefixtures("group_in_environment")
def test_a_mark_may_be_appended_twice(group_in_thread: Group, tmp_path: Path) -> None:
    """The outcome of its first append may have been unknown."""
    group_in_thread.log = [b"a", b"mark", b"mark"]

    assert main([*FOLLOW, str(tmp_path / "out")]) == 0

    assert bodies_in(tmp_path / "out") == [b"a", b"mark"]


@pytest.mark.usefixtures("group_in_environment")
def test_an_export_that_ended_too_early_goes_on_to_another_mark(
    group_in_thread: Group, tmp_path: Path
) -> None:
    path = tmp_path / "out"
    group_in_thread.log = [b"a", b"mark", b"late"]
    assert main([*FOLLOW, str(path)]) == 1
    group_in_thread.log += [b"mark 2"]

    assert main(["export", "--follow", "--until=mark 2", str(path)]) == 0

    assert bodies_in(path) == [b"a", b"mark", b"late", b"mark 2"]
