"""`dledger-node store` on sound, torn and damaged folders."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dledger_formats.log import disk, memberships
from dledger_node.errors import StoreDamagedError
from dledger_node.raft.ready import HardState
from dledger_node.store.derived import memberships_file
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.small_files.hard_state import save_hard_state
from dledger_node.store.snapshots.snapshots import Snapshots
from dledger_node.store_command import command
from dledger_node.store_command.command import ExitCode
from dledger_node.store_command.log_folder import RawSegment
from dledger_store_files.archives import extract
from dledger_store_files.command import Command
from dledger_store_files.contents import COMMAND_BODIES, bodies_of, files_under, flush
from dledger_store_files.damage import flip, poke
from dledger_store_files.upkeep import remove_before

GOLDEN = Path(__file__).parent.parent / "formats" / "golden"
OpenStore = Callable[..., LogStore]


def pos_of(folder: Path, index: int) -> int:
    raw = b"".join(path.read_bytes() for path in sorted((folder / "index").iterdir()))
    return disk.unpack_index_unit(raw, index * 32).pos


def test_a_sound_store_is_described(store_command: Command, written: Path) -> None:
    before = files_under(written)

    assert store_command("verify", written) == ExitCode.OK
    assert store_command.lines == [store_command.summary]
    summary = store_command.summary
    assert summary["verdict"] == "sound"
    assert summary["runs"] == [
        {"firstIndex": 0, "lastIndex": 29, "term": 1},
        {"firstIndex": 30, "lastIndex": 39, "term": 3},
    ]
    assert (summary["term"], summary["voteFor"]) == (4, "n2")
    assert (summary["durableIndex"], summary["committedIndex"]) == (39, 35)
    assert files_under(written) == before


@pytest.mark.parametrize("version", ["0.3.1.2", "0.4.0"])
def test_java_stores_are_sound_and_not_covered_by_checksums(
    store_command: Command, tmp_path: Path, version: str
) -> None:
    extract(GOLDEN / f"store-{version}.tar.xz", tmp_path)
    for member in ("n0", "n1", "n2"):
        folder = tmp_path / f"store-{version}" / f"dledger-{member}"

        assert store_command("verify", folder) == ExitCode.OK
        assert store_command.finding("not_covered")["severity"] == "note"
        assert (store_command.summary["entries"], store_command.summary["endIndex"]) == (300, 299)
        assert store_command("dump", folder, "--first", "148", "--last", "151") == ExitCode.OK
        assert [(line["index"], line["term"]) for line in store_command.lines] == [
            (148, 1), (149, 1), (150, 2), (151, 2),
        ]  # fmt: skip


def test_an_empty_store_is_sound(
    store_command: Command, open_store: OpenStore, folder: Path
) -> None:
    open_store().close()

    assert store_command("verify", folder) == ExitCode.OK
    assert store_command.summary["entries"] == 0


def change_membership(store: LogStore, *learners: str) -> None:
    body = memberships.encode(("n0", "n1"), learners)
    store.append_bodies([body], 3, [memberships.MEMBERSHIP_CHANNEL], disk.NOOP)
    flush(store)
    store.save_checkpoint(store.end_index)


def test_the_membership_is_reported(
    store_command: Command,
    open_store: OpenStore,
    written: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    store = open_store()
    change_membership(store, "n2")
    change_membership(store)
    store.close()

    assert store_command("verify", written) == ExitCode.OK
    summary = store_command.summary
    assert (summary["membershipIndex"], summary["voters"]) == (41, ["n0", "n1"])
    assert command.main(["verify", str(written)]) == ExitCode.OK
    assert "voters n0, n1; learners none; since entry 41" in capsys.readouterr().out
    assert store_command("dump", written, "--first", "39") == ExitCode.OK
    assert [line["kind"] for line in store_command.lines] == ["entry", "members", "members"]
    assert store_command.lines[1]["body"] == '{"voters":["n0","n1"],"learners":["n2"]}'


@pytest.mark.parametrize("how", ["lost", "damaged", "old"])
def test_a_memberships_file_that_a_node_would_refuse_is_damage(
    store_command: Command, open_store: OpenStore, written: Path, how: str
) -> None:
    store = open_store()
    change_membership(store, "n2")
    path = written / memberships_file.FILE_NAME
    old = path.read_bytes()
    change_membership(store)
    store.close()
    if how == "lost":
        path.unlink()
    else:
        path.write_bytes(old if how == "old" else b"x")

    assert store_command("verify", written) == ExitCode.DAMAGED
    assert store_command.finding("damaged_memberships")["file"] == "memberships"
    with pytest.raises(StoreDamagedError, match="memberships"):
        open_store()


def test_a_membership_of_a_later_version_is_reported(
    store_command: Command, open_store: OpenStore, written: Path
) -> None:
    store = open_store()
    body = b'{"voters":["n0"],"learners":[],"weights":{}}'
    with pytest.raises(ValueError, match="nothing else"):
        store.append_bodies([body], 3, [memberships.MEMBERSHIP_CHANNEL], disk.NOOP)
    store.close()

    assert store_command("verify", written) == ExitCode.DAMAGED
    assert store_command.finding("unknown_membership")["firstIndex"] == 40


@pytest.mark.parametrize(
    ("offset", "reason"),
    [(3, "bad_magic"), (7, "bad_size"), (15, "bad_chain_crc"), (31, "bad_chain_crc"),
     (38, "bad_chain_crc"), (41, "bad_body_crc"), (60, "bad_body_crc")],
)  # fmt: skip
def test_damage_is_reported_and_later_entries_are_found(
    store_command: Command, written: Path, offset: int, reason: str
) -> None:
    pos = pos_of(written, 7)
    flip(written / "data", pos + offset)

    assert store_command("verify", written) == ExitCode.DAMAGED
    finding = store_command.finding("damaged_entries")
    assert (finding["firstIndex"], finding["lastIndex"]) == (7, 7)
    assert (finding["file"], finding["byte"]) == ("data/" + disk.file_name(0), pos)
    assert finding["detail"].startswith(reason)
    assert store_command.summary["entries"] == 39


def test_a_zeroed_block_is_damage_although_java_reads_it_as_the_end(
    store_command: Command, written: Path
) -> None:
    poke(written / "data", 4096, bytes(2048))
    first, last = (
        next(i for i in range(40) if pos_of(written, i) >= pos) for pos in (4096, 4096 + 2048)
    )
    (written / "checkpoint").unlink()

    assert store_command("verify", written) == ExitCode.DAMAGED
    finding = store_command.finding("damaged_entries")
    assert (finding["firstIndex"], finding["lastIndex"]) == (first, last - 1)


def test_a_missing_segment_is_damage(store_command: Command, written: Path) -> None:
    (written / "data" / disk.file_name(4096)).unlink()

    assert store_command("verify", written) == ExitCode.DAMAGED
    assert store_command.finding("missing_segment")["file"] == "data/" + disk.file_name(8192)
    assert store_command.finding("damaged_entries")["detail"].startswith("their segment is missing")


def test_missing_durable_entries_are_damage(store_command: Command, written: Path) -> None:
    last = max((written / "data").iterdir())
    last.write_bytes(bytes(last.stat().st_size))
    for path in (written / "index").iterdir():
        path.unlink()

    assert store_command("verify", written) == ExitCode.DAMAGED
    assert store_command.finding("lost_tail")["lastIndex"] == 39


def test_an_unreadable_sector_is_damage(
    store_command: Command, written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = pos_of(written, 7)
    read = RawSegment.read

    def read_until_the_bad_sector(segment: RawSegment, at: int, size: int) -> bytes:
        where = segment.start + at
        if segment.path.parent.name == "data" and where <= bad + 40 < where + size:
            return read(segment, at, bad + 40 - where)
        return read(segment, at, size)

    monkeypatch.setattr(RawSegment, "read", read_until_the_bad_sector)

    assert store_command("verify", written) == ExitCode.DAMAGED
    assert store_command.finding("unreadable")["firstIndex"] == 7
    assert store_command.summary["entries"] == 39


def test_wrong_index_units_are_repairable(store_command: Command, written: Path) -> None:
    for index in (35, 36, 38):
        flip(written / "index", index * 32 + 11, segment_bytes=320)

    assert store_command("verify", written) == ExitCode.REPAIRABLE
    found = [line for line in store_command.lines if line.get("finding") == "wrong_index_units"]
    assert [(line["firstIndex"], line["lastIndex"]) for line in found] == [(35, 36), (38, 38)]
    assert store_command("repair-tail", written, "--yes") == ExitCode.OK


def test_a_damaged_term_file_is_damage(store_command: Command, written: Path) -> None:
    path = written / "currterm"
    path.write_text(path.read_text().replace("currTerm=4", "currTerm=5"))

    assert store_command("verify", written) == ExitCode.DAMAGED
    assert "checksum" in store_command.finding("damaged_hard_state")["detail"]


def test_snapshots_are_listed_and_a_damaged_one_is_repairable(
    store_command: Command, written: Path
) -> None:
    snapshots = Snapshots(written, reserved=3)
    snapshots.save(10, 1, [b"state"])
    snapshots.save(20, 1, [b"state"])
    assert store_command("verify", written) == ExitCode.OK
    assert store_command.summary["snapshots"] == [10, 20]

    (written / "snapshot" / "snapshot_20" / "data").write_bytes(b"stata")
    (written / "snapshot" / "install_tmp").mkdir()

    assert store_command("verify", written) == ExitCode.REPAIRABLE
    finding = store_command.finding("damaged_snapshot")
    assert (finding["file"], finding["lastIndex"]) == ("snapshot/snapshot_20/", 20)
    assert store_command.finding("left_behind")["file"] == "snapshot/install_tmp/"
    assert store_command.summary["snapshots"] == [10]


def test_a_log_without_its_front_needs_a_snapshot_if_there_were_any(
    store_command: Command, open_store: OpenStore, written: Path
) -> None:
    store = open_store(written)
    begin_index = store.front.sealed_segments()[0].last_index + 1
    remove_before(store, begin_index)
    store.close()
    assert store_command("verify", written) == ExitCode.OK

    snapshots = Snapshots(written, reserved=3)
    snapshots.save(begin_index - 2, 1, [b"state"])
    assert store_command("verify", written) == ExitCode.DAMAGED
    assert store_command.finding("missing_state")["lastIndex"] == begin_index - 1

    snapshots.save(begin_index - 1, 1, [b"state"])
    assert store_command("verify", written) == ExitCode.OK


def test_a_folder_without_a_store_is_a_usage_error(store_command: Command, tmp_path: Path) -> None:
    assert store_command("verify", tmp_path) == ExitCode.USAGE
    assert "not a member's folder" in store_command.error


@pytest.fixture
def torn(open_store: OpenStore, crashed: Callable[[LogStore], Path]) -> Path:
    """The folder of a log of twenty durable entries, and twenty more with the last one torn."""
    store = open_store()
    save_hard_state(store._folder, HardState(term=1, vote_for=None))
    store.append_bodies(COMMAND_BODIES[:20], term=1)
    flush(store)
    store.save_checkpoint(10)
    store.append_bodies(COMMAND_BODIES[20:], term=1)
    at = crashed(store)
    flip(at / "data", pos_of(at, 39) + 50)
    return at


def test_a_torn_tail_is_repairable_and_stays_without_yes(
    store_command: Command, torn: Path
) -> None:
    before = files_under(torn)

    assert store_command("verify", torn) == ExitCode.REPAIRABLE
    assert store_command("repair-tail", torn) == ExitCode.REPAIRABLE
    finding = store_command.finding("torn_tail")
    assert finding["firstIndex"] == 39
    assert store_command.summary["tailBytes"] == 48 + len(COMMAND_BODIES[39])
    assert files_under(torn) == before


def test_a_torn_tail_is_cut_with_yes(
    store_command: Command, torn: Path, open_store: OpenStore
) -> None:
    assert store_command("repair-tail", torn, "--yes") == ExitCode.OK
    assert store_command.summary["verdict"] == "sound"
    assert bodies_of(open_store(torn)) == COMMAND_BODIES[:39]


def test_a_damaged_store_is_not_repaired(store_command: Command, written: Path) -> None:
    flip(written / "data", pos_of(written, 7) + 50)
    before = files_under(written)

    assert store_command("repair-tail", written, "--yes") == ExitCode.DAMAGED
    assert files_under(written) == before


def test_a_store_in_use_is_read_and_not_repaired(
    store_command: Command, open_store: OpenStore, folder: Path
) -> None:
    open_store().append_bodies([b"alive"], term=0)

    assert store_command("verify", folder) == ExitCode.OK
    assert store_command.finding("in_use")["severity"] == "note"
    assert store_command("repair-tail", folder, "--yes") == ExitCode.FAILED
    assert "stop that process first" in store_command.error


def test_the_spare_segments_of_a_running_node_are_no_finding(
    store_command: Command, open_store: OpenStore, folder: Path
) -> None:
    open_store().append_bodies([b"alive"], term=0)
    (folder / "data-1.spare").write_bytes(b"the next segment")

    assert store_command("verify", folder) == ExitCode.OK
    assert [line["finding"] for line in store_command.lines[:-1]] == ["in_use"]
    assert store_command.summary["verdict"] == "sound"


def test_the_spare_segments_of_a_killed_node_are_repairable(
    store_command: Command, written: Path
) -> None:
    (written / "data-1.spare").write_bytes(b"the next segment")

    assert store_command("verify", written) == ExitCode.REPAIRABLE
    assert store_command.finding("left_behind")["severity"] == "repairable"


def test_what_a_running_node_has_not_finished_is_a_note(
    store_command: Command, open_store: OpenStore, folder: Path
) -> None:
    store = open_store()
    store.append_bodies([b"alive"], term=0)
    poke(folder / "data", pos_of(folder, 0) + 200, b"half of an entry")

    assert store_command("verify", folder) == ExitCode.OK
    assert store_command.finding("torn_tail")["severity"] == "note"
    assert store_command.summary["verdict"] == "sound"


def test_a_dump_that_ends_before_it_begins_is_a_usage_error(
    store_command: Command, written: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        store_command("dump", written, "--first", "9", "--last", "3")

    assert caught.value.code == ExitCode.USAGE
    assert "dledger-node store dump --help" in capsys.readouterr().err


def test_the_program_writes_text_by_default(torn: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dledger_node", "store", "verify", str(torn)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == ExitCode.REPAIRABLE
    assert "entries:    0 to 38 of term 1" in done.stdout
    assert "torn_tail" in done.stdout
    assert done.stdout.endswith("repairable\n")


def test_unknown_arguments_start_no_node() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dledger_node", "stroe"], capture_output=True, text=True, check=False
    )

    assert done.returncode == ExitCode.USAGE
    assert "dledger-node store" in done.stderr
