"""Snapshots on disk: DLedger's names, our checksums, and no partial snapshots."""

import errno
import json
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import pytest

from dledger_formats.log import snapshot_meta
from dledger_formats.log.snapshot_meta import SnapshotMeta
from dledger_node.errors import StoreDamagedError, StoreError, StoreFullError
from dledger_node.store.snapshots.snapshots import Snapshots

STATE = [b"a state ", b"in two pieces"]
META = (
    b'{"lastIncludedIndex":100,"lastIncludedTerm":3,"dataBytes":21,"dataCrc32":2533019478,'
    b'"metaCrc32":1050039067}'
)


def load_into(found: list[bytes]) -> Callable[[BinaryIO], None]:
    return lambda file: found.append(file.read())


def read(snapshots: Snapshots, meta: SnapshotMeta) -> bytes:
    found: list[bytes] = []
    snapshots.read(meta, load_into(found))
    return found[0]


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def snapshots(tmp_path: Path) -> Snapshots:
    return Snapshots(tmp_path, reserved=3)


def saved(snapshots: Snapshots, *indexes: int) -> None:
    for index in indexes:
        snapshots.save(index, 3, [b"state %d" % index])


def indexes(snapshots: Snapshots) -> list[int]:
    return [meta.last_included_index for meta in snapshots.newest_first]


def test_a_snapshot_has_the_same_layout_as_in_dledger(tmp_path: Path, snapshots: Snapshots) -> None:
    snapshots.save(100, 3, STATE)

    assert files(tmp_path) == {
        "snapshot/snapshot_100/data": b"".join(STATE),
        "snapshot/snapshot_100/snapshot_meta": META,
    }
    assert [path.name for path in (tmp_path / "snapshot").iterdir()] == ["snapshot_100"]
    # The keys that DLedger reads; it ignores the others.
    assert json.loads(META).items() >= {"lastIncludedIndex": 100, "lastIncludedTerm": 3}.items()


def test_a_snapshot_is_found_at_the_next_start(tmp_path: Path, snapshots: Snapshots) -> None:
    snapshots.save(100, 3, STATE)

    again = Snapshots(tmp_path, reserved=3)

    assert again.newest_first == snapshots.newest_first
    assert read(again, again.newest_first[0]) == b"".join(STATE)
    assert not again.damaged


def test_the_newest_snapshots_are_kept_and_those_in_use(
    tmp_path: Path, snapshots: Snapshots
) -> None:
    assert (snapshots.newest_index, snapshots.oldest_index) == (-1, -1)
    saved(snapshots, 1, 2, 3, 4)
    assert indexes(snapshots) == [4, 3, 2]

    snapshots.save(5, 3, STATE, keep={2})
    assert indexes(snapshots) == [5, 4, 3, 2]
    assert (snapshots.newest_index, snapshots.oldest_index) == (5, 2)

    saved(snapshots, 6)
    assert indexes(snapshots) == indexes(Snapshots(tmp_path, reserved=3)) == [6, 5, 4]


def test_a_snapshot_older_than_the_newest_is_not_saved(snapshots: Snapshots) -> None:
    saved(snapshots, 5, 5, 4)

    assert indexes(snapshots) == [5]


def test_no_snapshot_is_saved_after_close(tmp_path: Path, snapshots: Snapshots) -> None:
    snapshots.close()
    saved(snapshots, 5)

    assert not files(tmp_path)


def test_unfinished_snapshots_are_removed_at_the_next_start(
    tmp_path: Path, snapshots: Snapshots
) -> None:
    saved(snapshots, 5)
    for name in ("tmp", "install_tmp", "remove_tmp"):
        (tmp_path / "snapshot" / name).mkdir()
        (tmp_path / "snapshot" / name / "data").write_bytes(b"half of")

    assert indexes(Snapshots(tmp_path, reserved=3)) == [5]
    assert [path.name for path in (tmp_path / "snapshot").iterdir()] == ["snapshot_5"]


@pytest.mark.parametrize("name", ["data", "snapshot_meta"])
def test_a_snapshot_with_any_changed_byte_is_damaged(
    tmp_path: Path, snapshots: Snapshots, name: str
) -> None:
    snapshots.save(100, 3, STATE)
    path = tmp_path / "snapshot" / "snapshot_100" / name
    sound = path.read_bytes()
    for at in range(len(sound)):
        for bit in (0, 3, 7):
            path.write_bytes(sound[:at] + bytes((sound[at] ^ 1 << bit,)) + sound[at + 1 :])
            found = Snapshots(tmp_path, reserved=3)
            assert (indexes(found), list(found.damaged)) == ([], [100]), (at, bit)
    for length in range(len(sound)):
        path.write_bytes(sound[:length])
        assert list(Snapshots(tmp_path, reserved=3).damaged) == [100], length
    path.write_bytes(sound + b"\n")
    assert list(Snapshots(tmp_path, reserved=3).damaged) == [100]
    path.unlink()
    assert list(Snapshots(tmp_path, reserved=3).damaged) == [100]


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        (b'{"lastIncludedIndex":100,"lastIncludedTerm":3}', "another program"),
        (b"[]", "not a JSON object"),
        (b"[" * 500, "not a JSON object"),
        (b"x" * 600, "more than 512 bytes"),
        (META.replace(b":3,", b':"3",'), "not a number"),
        (META.replace(b":3,", b":true,"), "not a number"),
        (META.replace(b":100,", b":-1,"), "negative value"),
        (META.replace(b":100,", b":101,"), "checksum"),
        (META.replace(b",", b", "), "checksum"),
    ],
)
def test_a_malformed_meta_is_refused(raw: bytes, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        snapshot_meta.decode(raw)


def test_a_snapshot_under_a_wrong_name_is_damaged(tmp_path: Path, snapshots: Snapshots) -> None:
    snapshots.save(100, 3, STATE)
    (tmp_path / "snapshot" / "snapshot_100").rename(tmp_path / "snapshot" / "snapshot_101")

    assert "says entry 100" in Snapshots(tmp_path, reserved=3).damaged[101]


def test_data_that_has_changed_is_not_loaded(tmp_path: Path, snapshots: Snapshots) -> None:
    snapshots.save(100, 3, STATE)
    (tmp_path / "snapshot" / "snapshot_100" / "data").write_bytes(b"another state, yes")

    with pytest.raises(StoreDamagedError, match="18 bytes"):
        read(snapshots, snapshots.newest_first[0])


def test_is_sound_detects_a_snapshot_that_has_changed(snapshots: Snapshots) -> None:
    saved(snapshots, 100, 200)
    newest, older = snapshots.newest_first
    assert snapshots.is_sound(newest)
    (snapshots.folder_of(newest) / "data").write_bytes(b"rotten!!!")

    assert not snapshots.is_sound(newest)
    assert indexes(snapshots) == [100]
    assert "9 bytes" in snapshots.damaged[200]
    assert snapshots.is_sound(older)


def make_unreadable(path: Path) -> None:
    """Let reads of a file fail, as those of a bad sector do."""
    path.unlink()
    path.mkdir()


def test_a_snapshot_that_cannot_be_read_is_damaged(snapshots: Snapshots) -> None:
    saved(snapshots, 100, 200, 300)
    newest, middle, _ = snapshots.newest_first
    for meta in (newest, middle):
        make_unreadable(snapshots.folder_of(meta) / "data")

    assert not snapshots.is_sound(newest)
    assert snapshots.chunk(middle, 2, 4) is None
    assert indexes(snapshots) == [100]
    assert sorted(snapshots.damaged) == [200, 300]
    saved(snapshots, 400)
    assert (indexes(snapshots), snapshots.damaged) == ([400, 100], {})


def test_a_snapshot_that_is_cut_short_while_it_is_sent_is_damaged(snapshots: Snapshots) -> None:
    saved(snapshots, 100, 200)
    newest, _ = snapshots.newest_first
    (snapshots.folder_of(newest) / "data").write_bytes(b"a")

    assert snapshots.chunk(newest, 2, 4) is None
    assert indexes(snapshots) == [100]


def test_a_snapshot_for_which_descriptors_are_short_is_not_damaged(snapshots: Snapshots) -> None:
    saved(snapshots, 100)
    (meta,) = snapshots.newest_first
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        found = snapshots.is_sound(meta), snapshots.chunk(meta, 0, 4)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert found == (False, None)
    assert (indexes(snapshots), snapshots.damaged) == ([100], {})
    assert snapshots.is_sound(meta)


def test_a_damaged_snapshot_stays_until_another_is_saved(
    tmp_path: Path, snapshots: Snapshots
) -> None:
    """If it were removed at once, a member that crashed before the next save would look like one
    that never had a state, and would not heal.
    """
    saved(snapshots, 100)
    (meta,) = snapshots.newest_first
    (snapshots.folder_of(meta) / "data").write_bytes(b"rotten!!!")
    assert not snapshots.is_sound(meta)

    again = Snapshots(tmp_path, reserved=3)
    assert list(again.damaged) == [100]
    saved(again, 200)

    assert (indexes(again), again.damaged) == ([200], {})
    assert not Snapshots(tmp_path, reserved=3).damaged


def test_a_discarded_snapshot_is_not_sound_and_not_damaged(snapshots: Snapshots) -> None:
    saved(snapshots, 100, 200)
    newest, older = snapshots.newest_first
    snapshots.discard(200)

    assert not snapshots.is_sound(newest)
    assert snapshots.newest_first == (older,)


def test_is_sound_changes_no_files_after_close(snapshots: Snapshots) -> None:
    saved(snapshots, 100)
    (meta,) = snapshots.newest_first
    (snapshots.folder_of(meta) / "data").write_bytes(b"rotten!!!")
    snapshots.close()

    assert not snapshots.is_sound(meta)
    assert snapshots.folder_of(meta).exists()


def test_a_damaged_snapshot_can_be_replaced_or_discarded(
    tmp_path: Path, snapshots: Snapshots
) -> None:
    saved(snapshots, 5, 6)
    for index in (5, 6):
        (tmp_path / "snapshot" / f"snapshot_{index}" / "data").write_bytes(b"")
    again = Snapshots(tmp_path, reserved=3)
    assert sorted(again.damaged) == [5, 6]

    again.discard(5)
    again.save(6, 4, STATE)

    assert (indexes(again), again.damaged) == ([6], {})
    assert indexes(Snapshots(tmp_path, reserved=3)) == [6]


def test_a_snapshot_of_another_member_is_adopted(tmp_path: Path, snapshots: Snapshots) -> None:
    other = Snapshots(tmp_path.parent, reserved=1)
    other.save(9, 2, STATE)
    meta = other.newest_first[0]
    (snapshots.installing(0) / "data").write_bytes(b"".join(STATE))

    snapshots.adopt(meta)

    assert Snapshots(tmp_path, reserved=3).newest_first == (meta,)


def test_chunks_are_parts_of_the_data(tmp_path: Path, snapshots: Snapshots) -> None:
    snapshots.save(100, 3, STATE)
    meta = snapshots.newest_first[0]
    data = b"".join(STATE)

    assert snapshots.chunk(meta, 0, 8) == data[:8]
    assert snapshots.chunk(meta, 16, 8) == data[16:]
    assert snapshots.chunk(meta, 21, 8) == b""
    (tmp_path / "snapshot" / "snapshot_100" / "data").write_bytes(data[:10])
    assert snapshots.chunk(meta, 8, 8) is None
    snapshots.discard(100)
    assert snapshots.chunk(meta, 0, 8) is None


class _Broken:
    """A system call that fails with an errno."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __call__(self, *_: object) -> None:
        raise OSError(self.number, os.strerror(self.number))


@pytest.fixture
def breaks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    yield lambda number: monkeypatch.setattr(os, "fsync", _Broken(number))
    monkeypatch.undo()


def too_many() -> Iterator[bytes]:
    yield b"some"
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_volume_keeps_only_the_newest_snapshot(tmp_path: Path, snapshots: Snapshots) -> None:
    saved(snapshots, 5, 6)

    with pytest.raises(StoreFullError, match="cannot save or remove"):
        snapshots.save(7, 3, too_many())

    # The room of the other snapshot, and of the entries that only it needed, is free.
    assert indexes(snapshots) == indexes(Snapshots(tmp_path, reserved=3)) == [6]
    assert list(files(tmp_path)) == [
        "snapshot/snapshot_6/data",
        "snapshot/snapshot_6/snapshot_meta",
    ]


def test_a_full_volume_keeps_a_damaged_snapshot_if_there_is_no_other(
    tmp_path: Path, snapshots: Snapshots
) -> None:
    saved(snapshots, 5)
    (tmp_path / "snapshot" / "snapshot_5" / "data").write_bytes(b"")
    again = Snapshots(tmp_path, reserved=3)

    with pytest.raises(StoreFullError, match="cannot save or remove"):
        again.save(7, 3, too_many())

    assert list(again.damaged) == list(Snapshots(tmp_path, reserved=3).damaged) == [5]


def test_a_broken_volume_keeps_all_snapshots(
    tmp_path: Path, snapshots: Snapshots, breaks: Callable[[int], None]
) -> None:
    saved(snapshots, 5, 6)
    breaks(errno.EIO)

    with pytest.raises(StoreError):
        saved(snapshots, 7)

    assert indexes(snapshots) == indexes(Snapshots(tmp_path, reserved=3)) == [6, 5]
