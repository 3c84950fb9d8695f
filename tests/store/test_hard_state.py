import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dledger_formats.log import properties
from dledger_node.errors import Damage, StoreDamagedError, StoreError
from dledger_node.raft.log_terms import LogEnd
from dledger_node.raft.ready import HardState
from dledger_node.store.small_files.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from dledger_node.store.small_files.hard_state import (
    begin_hard_state,
    load_hard_state,
    save_hard_state,
)

OLD = HardState(term=6, vote_for="n1")
NEW = HardState(term=7, vote_for="n0")


JOINING = HardState(term=0, vote_for=None, joining=True)


def test_a_member_without_any_file_is_joining_in_term_0(tmp_path: Path) -> None:
    assert load_hard_state(tmp_path) == JOINING


def test_a_joining_member_saves_its_state_before_anything_else(tmp_path: Path) -> None:
    assert begin_hard_state(tmp_path, -1) == JOINING
    assert "joining=true\n" in (tmp_path / "currterm").read_text()
    assert load_hard_state(tmp_path, ledger_end_term=0) == JOINING


def test_a_member_with_a_log_but_no_term_file_is_not_joining(tmp_path: Path) -> None:
    """Java's first leader may have written the log in term 0."""
    assert begin_hard_state(tmp_path, 0) == HardState(term=0, vote_for=None)
    assert not (tmp_path / "currterm").exists()


def test_a_term_file_without_our_keys_is_not_joining(tmp_path: Path) -> None:
    """Files of Java and of earlier versions lack these keys."""
    (tmp_path / "currterm").write_text("voteLeader=\ncurrTerm=0\n")

    assert begin_hard_state(tmp_path, -1) == HardState(term=0, vote_for=None)


def test_a_file_of_java_or_an_earlier_version_does_not_say_that_all_was_flushed(
    tmp_path: Path,
) -> None:
    (tmp_path / "currterm").write_text("voteLeader=n1\ncurrTerm=4\n")

    assert not load_hard_state(tmp_path).flushed


def test_half_a_promised_end_is_damage(tmp_path: Path) -> None:
    (tmp_path / "currterm").write_text("voteLeader=\ncurrTerm=4\npromisedTerm=3\n")

    with pytest.raises(StoreDamagedError, match="only one of promisedTerm and promisedIndex"):
        load_hard_state(tmp_path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.builds(
        HardState,
        term=st.integers(0, 2**62),
        vote_for=st.from_regex(r"[A-Za-z0-9_]{1,32}", fullmatch=True) | st.none(),
        joining=st.booleans(),
        alone=st.booleans(),
        flushed=st.booleans(),
        promised_end=st.builds(LogEnd, st.integers(0, 2**62), st.integers(0, 2**62)) | st.none(),
    )
)
def test_a_state_is_read_back(memory_path: Path, state: HardState) -> None:
    save_hard_state(memory_path, state)

    assert load_hard_state(memory_path) == state


def test_a_term_file_that_was_cut_short_is_refused(tmp_path: Path) -> None:
    """Half a number parses as a number, and the cut removes the checksum too.

    A file that lacks exactly its checksum line looks like one of Java, with the same content.
    """
    saved = HardState(term=417, vote_for="n2")
    save_hard_state(tmp_path, saved)
    raw = (tmp_path / "currterm").read_bytes()
    without_checksum = raw.index(b"#crc32=")
    for length in set(range(len(raw))) - {without_checksum}:
        (tmp_path / "currterm").write_bytes(raw[:length])
        with pytest.raises(StoreDamagedError, match=r"cut short|holds the keys") as refused:
            load_hard_state(tmp_path)
        assert refused.value.damage is Damage.HARD_STATE

    (tmp_path / "currterm").write_bytes(raw[:without_checksum])
    assert load_hard_state(tmp_path) == saved


def test_a_checkpoint_that_was_cut_short_counts_as_missing(tmp_path: Path) -> None:
    saved = Checkpoint(end_index=4711, committed_index=4321)
    save_checkpoint(tmp_path, saved)
    raw = (tmp_path / "checkpoint").read_bytes()
    found = {}
    for length in range(len(raw)):
        (tmp_path / "checkpoint").write_bytes(raw[:length])
        found[length] = load_checkpoint(tmp_path)

    without_checksum = raw.index(b"#crc32=")
    assert found.pop(without_checksum) == saved, "it looks like one of Java"
    assert set(found.values()) == {None}


def test_java_can_read_the_term_file(tmp_path: Path) -> None:
    """Java's Properties class reads the two lines and ignores the comment."""
    save_hard_state(tmp_path, NEW)
    lines = (tmp_path / "currterm").read_text().splitlines()

    assert lines[:2] == ["voteLeader=n0", "currTerm=7"]
    assert [line[0] for line in lines[2:]] == ["#"]


@pytest.mark.parametrize(
    "text",
    [
        "voteLeader=n0\ncurrTerm=7\n",
        "currTerm=7\r\nvoteLeader=n0\r\n",
        "# a comment\n\ncurrTerm : 7\nvoteLeader = n0\n",
    ],
)
def test_every_notation_that_java_accepts_is_read(tmp_path: Path, text: str) -> None:
    (tmp_path / "currterm").write_bytes(text.encode())

    assert load_hard_state(tmp_path) == NEW


@pytest.mark.parametrize(
    "text",
    [
        "",
        "currTerm=7\n",
        "voteLeader=n0\n",
        "voteLeader=n0\ncurrTerm=\n",
        "voteLeader=n0\ncurrTerm=-1\n",
        "voteLeader=n0\ncurrTerm=7_0\n",
        "voteLeader=n0\ncurrTerm=seven\n",
        "voteLeader=n0\ncurrTerm=7\ncurrTerm=8\n",
        "voteLeader=n0\ncurrTerm=7\nmore=1\n",
        "voteLeader=n0\ncurrTerm=7\njoining=false\n",
        "voteLeader=n0\ncurrTerm=7\nalone=\n",
        "voteLeader=n0\ncurrTerm\n",
        "voteLeader=n0\ncurrTerm=7\n#crc32=00000000\n",
        "voteLeader=\xff\ncurrTerm=7\n",
        "\0" * 25,
        "x" * 5000,
    ],
)
def test_a_file_that_cannot_be_trusted_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "currterm").write_bytes(text.encode("latin-1"))

    with pytest.raises(StoreDamagedError, match="currterm"):
        load_hard_state(tmp_path)


def test_every_flipped_bit_is_refused_or_harmless(tmp_path: Path) -> None:
    save_hard_state(tmp_path, NEW)
    path = tmp_path / "currterm"
    raw = path.read_bytes()
    refused = 0
    for bit in range(len(raw) * 8):
        damaged = bytearray(raw)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            assert load_hard_state(tmp_path) == NEW
        except StoreDamagedError:
            refused += 1

    assert refused > len(raw) * 6


@pytest.mark.parametrize("cut", range(0, 45, 4))
def test_a_crash_while_the_new_state_is_written_leaves_the_old_one(
    tmp_path: Path, cut: int
) -> None:
    save_hard_state(tmp_path, NEW)
    new = (tmp_path / "currterm").read_bytes()
    save_hard_state(tmp_path, OLD)
    (tmp_path / "currterm.tmp").write_bytes(new[:cut])

    assert load_hard_state(tmp_path) == OLD


def test_a_crash_during_the_first_save_leaves_a_joining_member(tmp_path: Path) -> None:
    (tmp_path / "currterm.tmp").write_bytes(b"voteLe")

    assert load_hard_state(tmp_path) == JOINING


@pytest.mark.parametrize(
    ("tmp", "bak", "expected"),
    [
        ("voteLeader=n0\ncurrTerm=7\n", "voteLeader=n1\ncurrTerm=6\n", NEW),
        ("voteLeader=n1\ncurrTerm=6\n", "voteLeader=n0\ncurrTerm=7\n", NEW),
        ("voteLeader=n0\ncurrTerm=7\n", "voteLeader=\ncurrTerm=7\n", NEW),
        (None, "voteLeader=n0\ncurrTerm=7\n", NEW),
        ("voteLe", "voteLeader=n1\ncurrTerm=6\n", OLD),
    ],
)
def test_after_a_crash_of_java_the_highest_remaining_term_counts(
    tmp_path: Path, tmp: str | None, bak: str, expected: HardState
) -> None:
    if tmp is not None:
        (tmp_path / "currterm.tmp").write_text(tmp)
    (tmp_path / "currterm.bak").write_text(bak)

    assert load_hard_state(tmp_path) == expected


def test_a_damaged_backup_alone_is_refused(tmp_path: Path) -> None:
    (tmp_path / "currterm.bak").write_text("currTerm=")

    with pytest.raises(StoreDamagedError, match=r"currterm\.bak"):
        load_hard_state(tmp_path)


def test_a_term_below_that_of_the_last_entry_is_refused(tmp_path: Path) -> None:
    save_hard_state(tmp_path, NEW)

    assert load_hard_state(tmp_path, ledger_end_term=7) == NEW
    with pytest.raises(StoreDamagedError, match="says term 7, but the log has an entry of term 8"):
        load_hard_state(tmp_path, ledger_end_term=8)


def test_the_file_is_durable_before_its_name_and_the_name_before_the_return(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    fsync, replace = os.fsync, os.replace

    def recording_fsync(fd: int) -> None:
        calls.append(f"fsync {Path(os.readlink(f'/proc/self/fd/{fd}')).name}")
        fsync(fd)

    def recording_replace(source: Path, target: Path) -> None:
        calls.append(f"rename {source.name} {target.name}")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", recording_fsync)
    monkeypatch.setattr(os, "replace", recording_replace)
    save_hard_state(tmp_path, NEW)

    assert calls == [
        "fsync currterm.tmp",
        "rename currterm.tmp currterm",
        f"fsync {tmp_path.name}",
    ]


def test_a_killed_writer_leaves_a_state_that_it_had_saved_or_was_saving(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path\n"
        "from dledger_node.raft.ready import HardState\n"
        "from dledger_node.store.small_files.hard_state import save_hard_state\n"
        "term = int(sys.argv[2])\n"
        "while True:\n"
        "    term += 1\n"
        "    save_hard_state(Path(sys.argv[1]), HardState(term=term, vote_for=f'n{term % 3}'))\n"
        "    print(term, flush=True)\n"
    )
    term = 0
    for round_ in range(5):
        with subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path), str(term)], stdout=subprocess.PIPE
        ) as writer:
            assert writer.stdout is not None
            for _ in range(round_ * 7 + 1):
                saved = int(writer.stdout.readline())
            writer.kill()
            rest = writer.stdout.read().split()
        saved = int(rest[-1]) if rest else saved
        state = load_hard_state(tmp_path)
        assert state.term in (saved, saved + 1)
        assert state.vote_for == f"n{state.term % 3}"
        term = state.term


def test_a_state_that_cannot_be_saved_is_an_error(tmp_path: Path) -> None:
    save_hard_state(tmp_path, OLD)
    (tmp_path / "currterm.tmp").mkdir()

    with pytest.raises(StoreError, match="cannot save term 7"):
        save_hard_state(tmp_path, NEW)
    assert load_hard_state(tmp_path) == OLD


def test_a_checkpoint_is_read_back(tmp_path: Path) -> None:
    checkpoint = Checkpoint(end_index=299, committed_index=-1)
    save_checkpoint(tmp_path, checkpoint)

    assert load_checkpoint(tmp_path) == checkpoint


def test_a_checkpoint_of_java_is_read(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").write_text("committedIndex=299\nendIndex=301\n")

    assert load_checkpoint(tmp_path) == Checkpoint(end_index=301, committed_index=299)


@pytest.mark.parametrize("text", ["", "committedIndex=5\n", "endIndex=-2\ncommittedIndex=-1\n"])
def test_a_damaged_checkpoint_counts_as_missing(tmp_path: Path, text: str) -> None:
    (tmp_path / "checkpoint").write_text(text)

    assert load_checkpoint(tmp_path) is None


def test_the_longest_member_id_fits_in_the_term_file(tmp_path: Path) -> None:
    save_hard_state(tmp_path, HardState(term=2**63 - 1, vote_for="n" * 32))

    assert (tmp_path / "currterm").stat().st_size * 4 < properties.FILE_BYTES_MAX
