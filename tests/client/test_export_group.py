"""`dledger export` of a group whose leader has entries that are not committed, as Java's may."""

from pathlib import Path

import msgspec
import pytest

from dledger_client.cli import main
from dledger_client.client import DLedgerClient
from dledger_client.exports.group import ENTRY_BYTES, Taken, settled_entries
from dledger_client.exports.reading import ExportDecoder
from dledger_client.exports.records import ExportError
from dledger_fake_server.group import Group
from dledger_formats.protocol.entry import DLedgerEntry


def give_terms(group: Group, terms: list[int]) -> None:
    """Let entry n have `terms[n]`."""
    stored = group.stored_entry
    group.entry = lambda index: msgspec.structs.replace(stored(index), term=terms[index])


async def read(client: DLedgerClient, first: int, taken: Taken | None) -> list[DLedgerEntry]:
    return [
        entry async for entries in settled_entries(client, first, None, taken) for entry in entries
    ]


async def test_an_entry_that_a_new_leader_replaced_is_found(group: Group) -> None:
    group.log = [b"a", b"b", b"not committed"]
    give_terms(group, [1, 1, 1])
    async with DLedgerClient(group.servers, group.name) as client:
        taken = Taken.of_entry((await read(client, 0, None))[-1])
        group.log[2:] = [b"another", b"d"]
        give_terms(group, [1, 1, 2, 2])

        with pytest.raises(ExportError, match="entry 2 of term 1, which was exported"):
            await read(client, 3, taken)


async def test_an_entry_that_is_gone_is_found(group: Group) -> None:
    group.log = [b"a", b"b", b"not committed"]
    async with DLedgerClient(group.servers, group.name) as client:
        taken = Taken.of_entry((await read(client, 0, None))[-1])
        del group.log[2:]

        with pytest.raises(ExportError, match="the log ends before it"):
            await read(client, 3, taken)


async def test_entries_of_two_leaders_are_read_again(group: Group) -> None:
    """The first leader answers for entry 1, and the second one, which replaces it, for entry 2."""
    group.log = [b"a", b"not committed", b"later"]
    asked: list[int] = []
    stored = group.stored_entry

    def entry(index: int) -> DLedgerEntry:
        asked.append(index)
        is_replaced = asked.count(1) > 1
        if index == 1 and is_replaced:
            group.log[1] = b"committed"
        term = 2 if index == 2 or (index == 1 and is_replaced) else 1
        return msgspec.structs.replace(stored(index), term=term)

    group.entry = entry
    async with DLedgerClient(group.servers, group.name) as client:
        found = await read(client, 0, None)

    assert [(e.term, e.body) for e in found] == [(1, b"a"), (2, b"committed"), (2, b"later")]


async def test_entries_that_were_read_across_a_change_of_leader_are_read_again(
    group: Group,
) -> None:
    group.log = [b"%d" % n for n in range(200)]
    stored, asked = group.stored_entry, []

    def entry(index: int) -> DLedgerEntry:
        asked.append(index)
        if len(asked) == 70:
            group.elect("n1")
        return msgspec.structs.replace(stored(index), term=1)

    group.entry = entry
    async with DLedgerClient(group.servers, group.name) as client:
        found = await read(client, 0, None)

    assert [e.index for e in found] == list(range(200))
    assert asked.count(0) > 1


async def test_tiny_entries_count_for_more_than_their_bodies(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dledger_client.exports.group.HELD_BYTES", 100 * ENTRY_BYTES)
    group.log = [b""] * 1000
    async with DLedgerClient(group.servers, group.name) as client:
        lists = [entries async for entries in settled_entries(client, 0, None, None)]

    assert [entry.index for entries in lists for entry in entries] == list(range(1000))
    assert max(map(len, lists)) <= 100


@pytest.mark.usefixtures("group_in_environment")
def test_an_empty_group_gives_an_export_that_can_grow(
    group_in_thread: Group, tmp_path: Path
) -> None:
    path = tmp_path / "out"
    assert main(["export", str(path)]) == 0
    group_in_thread.log = [b"a"]
    assert main(["export", str(path)]) == 0

    decoder = ExportDecoder("out")
    assert [entry.body for entry in decoder.feed(path.read_bytes())] == [b"a"]
    decoder.finish()


@pytest.mark.usefixtures("group_in_environment")
@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--last", "9"], 4, "there is no entry 9: the log holds the entries 0 to 1"),
        (["--from", "7"], 4, "there is no entry 7: the log holds the entries 0 to 1"),
        (["--from", "3", "--last", "2"], 2, "--from 3 is after --last 2"),
        (["--until", "x"], 2, "--until needs --follow"),
        (["--follow", "--until", ""], 2, "--until needs a TEXT that is not empty"),
        (["--follow", "--last", "2"], 2, "--follow cannot be combined"),
        (["--folder", "/nowhere"], 2, "is not a member's folder"),
    ],
)
def test_wrong_arguments_are_refused(
    group_in_thread: Group, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    arguments: list[str], code: int, message: str,
) -> None:  # fmt: skip
    group_in_thread.log = [b"a", b"b"]

    assert main(["export", str(tmp_path / "out"), *arguments]) == code
    assert message in capsys.readouterr().err


@pytest.mark.usefixtures("group_in_environment")
def test_a_full_disk_is_named(group_in_thread: Group, capsys: pytest.CaptureFixture[str]) -> None:
    group_in_thread.log = [b"a"]

    assert main(["export", "/dev/full"]) == 1
    assert "cannot write /dev/full: No space left on device" in capsys.readouterr().err
