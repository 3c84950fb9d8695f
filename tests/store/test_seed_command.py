"""`dledger-node seed`: it fills the folder of a new group's first voter, and no other."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from dledger_compaction.model import key_history
from dledger_compaction.runs import compacted, copies_of
from dledger_formats.log import disk
from dledger_formats.log.archives import INFO_FILE
from dledger_formats.settings import GroupState
from dledger_group.mounts import volume_of_8_mib
from dledger_logs import damage
from dledger_logs.read import read_log
from dledger_logs.write import Entry, Shape, write_log
from dledger_node.main import open_store
from dledger_node.raft.log_terms import LogEnd, Seed
from dledger_node.raft.ready import HardState
from dledger_node.store.small_files.hard_state import load_hard_state, save_hard_state
from dledger_store_files.seeding import (
    NOWHERE,
    archive_of,
    archive_without_voters,
    info_of,
    member,
    run,
)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return archive_without_voters(tmp_path_factory.mktemp("archive"))


def entries_of(folder: Path) -> dict[str, bytes]:
    return {
        f"{name}/{path.name}": path.read_bytes()
        for name in (disk.DATA_FOLDER, disk.INDEX_FOLDER)
        for path in (folder / name).iterdir()
    }


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "store").glob("*"))


def test_each_first_voter_begins_with_the_same_bytes_and_does_not_vote_yet(
    tmp_path: Path, archive: Path
) -> None:
    info = info_of(archive)
    for self_id in ("n0", "n1"):
        settings = member(tmp_path, archive, self_id=self_id)
        assert run(settings, archive) == 0
        store, state, _ = open_store(settings, verify_all=True)
        store.close()
        assert (store.begin_index, store.end_index) == (info.first_index, info.end_index)
        assert store.committed_index == info.end_index
        end = LogEnd(info.end_term, info.end_index)
        assert state == HardState(
            term=info.end_term,
            vote_for=None,
            joining=True,
            flushed=True,
            seed=Seed(end, info.copy_sha256),
        )
    assert names_in(tmp_path) == ["dledger-n0", "dledger-n1"]
    one, other = (entries_of(tmp_path / "store" / f"dledger-{each}") for each in ("n0", "n1"))
    assert one == other


def test_a_half_copy_is_made_again(tmp_path: Path, archive: Path) -> None:
    run(member(tmp_path, archive), archive)
    whole = entries_of(tmp_path / "store" / "dledger-n0")
    half = tmp_path / "store" / "seeding-n0"
    (tmp_path / "store" / "dledger-n0").rename(half)
    shutil.rmtree(half / "index")

    assert run(member(tmp_path, archive), archive) == 0
    assert entries_of(tmp_path / "store" / "dledger-n0") == whole
    assert names_in(tmp_path) == ["dledger-n0"]


def test_a_complete_copy_is_never_made_again(
    tmp_path: Path, archive: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(member(tmp_path, archive), archive)

    def files() -> dict[Path, tuple[int, int]]:
        return {
            path: (path.stat().st_ino, path.stat().st_mtime_ns)
            for path in (tmp_path / "store").rglob("*")
        }

    before = files()

    assert run(member(tmp_path, archive), tmp_path / "gone") == 0
    assert "holds a log already" in capsys.readouterr().err
    assert files() == before


def test_a_volume_with_another_archive_than_the_wanted_one_does_not_begin_the_group(
    tmp_path: Path, archive: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A group that never had a leader was deleted, and is created again with another archive."""
    june = archive_without_voters(tmp_path / "june", 2)
    old, new = (info_of(each).copy_sha256 for each in (archive, june))
    settings = member(tmp_path, archive)
    run(settings, archive)
    folder = tmp_path / "store" / "dledger-n0"
    before, state = entries_of(folder), load_hard_state(folder)

    for place, options in ((june, ("--copy-sha256", new)), (june, ()),
                           (tmp_path / "gone", ("--copy-sha256", new))):  # fmt: skip
        assert run(settings, place, *options) == 1
        stderr = capsys.readouterr().err
        assert f"{folder} holds the log of another archive" in stderr
        assert f"copySha256 is {old}, and that of the wanted one is {new}" in stderr
        assert (entries_of(folder), load_hard_state(folder)) == (before, state)
    for options in ((), ("--copy-sha256", old)):
        assert run(settings, archive, *options) == 0


@pytest.mark.parametrize(
    ("changes", "status"),
    [({}, 1), ({"joining": False}, 0), ({"term": 99}, 0), ({"seed": None}, 0)],
    ids=["nothing more", "it may vote", "it has heard of a later term", "its log was healed"],
)
def test_a_member_that_has_begun_or_heard_of_a_leader_starts_whatever_the_archive_is(
    tmp_path: Path, archive: Path, changes: dict[str, object], status: int
) -> None:
    settings, folder = member(tmp_path, archive), tmp_path / "store" / "dledger-n0"
    run(settings, archive)
    save_hard_state(folder, replace(load_hard_state(folder), **changes))

    assert run(settings, archive, "--copy-sha256", "5a" * 32) == status


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"initial_group_state": GroupState.EXISTING}, "is not new"),
        ({"self_id": "n3"}, "n3 is not one of the first voters"),
    ],
    ids=["a member that was replaced", "a member that was added"],
)
def test_a_later_member_begins_empty_whether_or_not_there_is_an_archive(
    tmp_path: Path, archive: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, object],
    reason: str,
) -> None:  # fmt: skip
    for place in (archive, tmp_path / "gone"):
        assert run(member(tmp_path, archive, **changes), place) == 0
        assert reason in capsys.readouterr().err
    assert names_in(tmp_path) == []


def own_archive(folder: Path, archive: Path) -> Path:
    own = folder / "own"
    shutil.copytree(archive, own)
    (own / INFO_FILE).write_bytes(replace(info_of(archive), group_identity="mine").to_json())
    return own


def test_a_group_begins_again_with_its_own_archive_under_another_identity(
    tmp_path: Path, archive: Path
) -> None:
    """The disks of the group are lost, and its volumes come back blank."""
    store, _, _ = open_store(member(tmp_path, archive, group_identity="mine"))
    store.close()
    own = own_archive(tmp_path, archive)

    settings, info = member(tmp_path, archive, group_identity="again"), info_of(own)
    assert run(settings, own) == 0
    store, state, _ = open_store(settings, verify_all=True)
    store.close()
    assert (store.begin_index, store.end_index) == (info.first_index, info.end_index)
    assert state.seed == Seed(LogEnd(info.end_term, info.end_index), info.copy_sha256)


@pytest.mark.parametrize("blank", [False, True], ids=["no folder", "a blank folder"])
def test_a_group_never_begins_again_under_the_identity_of_its_own_archive(
    tmp_path: Path, archive: Path, capsys: pytest.CaptureFixture[str], *, blank: bool
) -> None:
    own = own_archive(tmp_path, archive)
    settings = member(tmp_path, archive, group_identity="mine")
    if blank:
        store, _, _ = open_store(settings)
        store.close()

    assert run(settings, own) == 1
    assert "was made of this very group" in (stderr := capsys.readouterr().err)
    assert "delete the group and its volume claims, and create it again" in stderr
    assert "`kubectl delete pvc -l dledger.io/group=g`" in stderr
    assert len(stderr) < 450, "a condition would not show the end"
    assert names_in(tmp_path) == (["dledger-n0"] if blank else [])
    if blank:
        store, _, _ = open_store(settings)
        store.close()
        assert store.end_index == -1


def test_the_folder_of_a_member_that_never_had_anything_is_filled(
    tmp_path: Path, archive: Path
) -> None:
    settings = member(tmp_path, archive)
    store, state, _ = open_store(settings)
    store.close()
    assert state.joining

    assert run(settings, archive) == 0
    assert load_hard_state(tmp_path / "store" / "dledger-n0", 0).seed is not None
    assert names_in(tmp_path) == ["dledger-n0"]


@pytest.mark.parametrize(
    "state",
    [
        HardState(term=99, vote_for=None, joining=True),
        HardState(term=1, vote_for="n1", joining=True),
        HardState(term=0, vote_for=None),
        HardState(term=3, vote_for="n1"),
    ],
    ids=["a later term", "a vote while joining", "a member that may vote", "a vote"],
)
def test_a_member_with_a_promise_but_no_log_does_not_start(
    tmp_path: Path, archive: Path, capsys: pytest.CaptureFixture[str], state: HardState
) -> None:
    settings = member(tmp_path, archive)
    store, _, _ = open_store(settings)
    store.close()
    folder = tmp_path / "store" / "dledger-n0"
    save_hard_state(folder, state)

    assert run(settings, archive) == 1
    assert "delete the group and its volume claims" in capsys.readouterr().err
    assert load_hard_state(folder) == state


def test_a_log_whose_term_and_vote_are_lost_is_left_alone(tmp_path: Path, archive: Path) -> None:
    settings = member(tmp_path, archive)
    run(settings, archive)
    folder = tmp_path / "store" / "dledger-n0"
    (folder / "currterm").unlink()
    before = entries_of(folder)

    assert run(settings, archive) == 0
    assert not (folder / "currterm").exists()
    assert entries_of(folder) == before


def test_archives_that_cannot_be_used_are_refused_in_words(
    tmp_path: Path, archive: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    info = info_of(archive)
    damaged = tmp_path / "damaged"
    shutil.copytree(archive, damaged)
    damage.flip_header(read_log(damaged / info.folder), 50, "term", 0)
    cut = tmp_path / "cut"
    shutil.copytree(archive, cut)
    last = max((cut / info.folder / "data").iterdir())
    last.unlink()
    settings = member(tmp_path, archive)
    larger = {"segment_size_bytes": 16384, "index_segment_size_bytes": 3200}
    for place, changes, options, words in (
        (tmp_path / "gone", {}, (), "is no archive"),
        (damaged, {}, (), "is damaged: it is not as archive.json describes it"),
        (cut, {}, (), f"No such file or directory: '{last}'"),
        (archive, {"group": "other"}, (), f"was made of the group {info.group}, and not of other"),
        (archive, {}, ("--group", "orders"), "and not of orders: name the group"),
        (archive, {}, ("--copy-sha256", "0" * 64), f"copySha256 is {info.copy_sha256}, and not 0"),
        (archive, larger, (), "have 8192 bytes, and those of its index 3200; this group's have 16"),
    ):  # fmt: skip
        assert run(replace(settings, **changes), place, *options) == 1, words
        stderr = capsys.readouterr().err
        assert stderr.startswith("the group cannot begin with its archive: ")
        assert words in stderr
        assert "dledger-n0" not in names_in(tmp_path)
    shutil.copytree(archive, tmp_path / "gone")
    right = ("--group", info.group, "--copy-sha256", info.copy_sha256)
    assert run(replace(settings, group="other"), tmp_path / "gone", *right) == 0
    assert names_in(tmp_path) == ["dledger-n0"]


def test_an_archive_that_names_other_voters_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = archive_of(tmp_path, key_history(400, 1))
    settings = member(tmp_path, archive)

    assert run(replace(settings, peers={"n0": NOWHERE}), archive) == 1
    assert "names the voters n0, n1, n2" in capsys.readouterr().err
    assert names_in(tmp_path) == []


def test_an_archive_that_is_too_large_for_the_volume_is_refused_until_the_volume_has_grown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shape = Shape(segment_bytes=2 << 20, index_segment_bytes=320 << 10)
    log = write_log(
        tmp_path / "source",
        [Entry(term=1, body=b"k%d=" % number + b"v" * 60_000) for number in range(60)],
        shape,
    )
    made = compacted(copies_of({"n0": log}), tmp_path / "archive", "kv")
    assert made is not None
    with volume_of_8_mib(tmp_path / "small"):
        settings = replace(
            member(tmp_path / "small", made.path),
            segment_size_bytes=shape.segment_bytes,
            index_segment_size_bytes=shape.index_segment_bytes,
        )
        (tmp_path / "small" / "full").write_bytes(b"x" * (4 << 20))
        assert run(settings, made.path) == 1
        assert "the volume is too small for the archive: it has" in capsys.readouterr().err
        assert names_in(tmp_path / "small") == []
        (tmp_path / "small" / "full").unlink()
        assert run(settings, made.path) == 0
