"""`dledger import`: an output that cannot be written, and an order that is lost."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dledger_client.cli import main
from dledger_fake_server.group import Group
from dledger_formats.log import disk
from dledger_formats.protocol.codes import DLedgerResponseCode
from tests.client.written_exports import entry, write_export
from tools.groups.waiting import wait_for

Code = DLedgerResponseCode
COMMAND = "import sys; from dledger_client.cli import main; sys.exit(main())"


def exported(path: Path, bodies: list[bytes]) -> Path:
    """Write an export in which an entry of a leader follows each body, so each is a run."""
    entries = []
    for at, body in enumerate(bodies):
        entries += [entry(2 * at, body), entry(2 * at + 1, b"", disk.NOOP)]
    return write_export(path, entries)


@pytest.fixture
def destination(
    group_in_thread: Group,
    group_in_environment: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Group:
    """A group with one entry, which `dledger` finds without options."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    group_in_thread.log = [b"before"]
    return group_in_thread


def run_import(path: Path, output: int) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-c", COMMAND, "import", "--append", str(path)]
    return subprocess.run(command, stdout=output, stderr=subprocess.PIPE, check=False, timeout=60)


def test_an_import_whose_reader_has_gone_imports_everything(
    destination: Group, tmp_path: Path
) -> None:
    bodies = [b"%d" % n for n in range(50)]
    reader, writer = os.pipe()
    os.close(reader)

    done = run_import(exported(tmp_path / "export", bodies), writer)

    os.close(writer)
    assert destination.log == [b"before", *bodies]
    assert (done.returncode, b"imported 50 entries" in done.stderr) == (0, True)


def test_an_import_whose_output_is_full_imports_everything_and_fails(
    destination: Group, tmp_path: Path
) -> None:
    bodies = [b"%d" % n for n in range(50)]

    with open("/dev/full", "wb") as full:
        done = run_import(exported(tmp_path / "export", bodies), full.fileno())

    assert destination.log == [b"before", *bodies]
    told = b"not all indexes were written, and a further run writes only the last ones: for the "
    assert (done.returncode, told in done.stderr) == (1, True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_an_import_whose_indexes_nobody_takes(
    destination: Group, tmp_path: Path, number: signal.Signals
) -> None:
    bodies = [b"%d" % n for n in range(6000)]
    path = exported(tmp_path / "export", bodies)
    reader, writer = os.pipe()
    command = [sys.executable, "-c", COMMAND, "import", "--append", str(path)]
    with subprocess.Popen(command, stdout=writer, stderr=subprocess.PIPE) as process:
        wait_for(lambda: len(destination.log) > len(bodies), "there are more than a pipe takes")
        process.send_signal(number)
        _, printed = process.communicate(timeout=20)
    os.close(reader)
    os.close(writer)

    assert process.returncode == 128 + number
    assert b"the reader of the indexes pauses: not all indexes were written" in printed
    [imported] = re.findall(rb"imported (\d+) entries; imported before: 0", printed)
    assert len(bodies) - 1 <= int(imported) <= len(bodies)  # the last one may be unanswered
    assert b"ended by a signal; run the command again" in printed


def test_an_import_whose_reader_pauses_imports_everything(
    destination: Group, tmp_path: Path
) -> None:
    bodies = [b"%d" % n for n in range(6000)]
    path = exported(tmp_path / "export", bodies)
    command = [sys.executable, "-c", COMMAND, "import", "--append", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        wait_for(lambda: len(destination.log) > len(bodies), "everything is imported")
        written, _ = process.communicate(timeout=60)

    assert process.returncode == 0
    assert written.splitlines() == [
        b"%d to %d are now %d to %d" % (2 * n, 2 * n, n + 1, n + 1) for n in range(len(bodies))
    ]


def test_the_indexes_of_an_earlier_export_are_not_written_for_another_one(
    destination: Group, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = exported(tmp_path / "export", [b"a", b"b"])
    assert main(["import", "--append", str(path)]) == 0
    assert capsys.readouterr().out == "0 to 0 are now 1 to 1\n2 to 2 are now 2 to 2\n"

    for name, bodies in (("other", [b"a", b"X", b"c"]), ("short", [b"a"])):
        other = exported(tmp_path / name, bodies)
        assert main(["import", "--append", str(other)]) == 2
        assert capsys.readouterr().out == ""
    assert main(["import", "--append", str(path)]) == 0
    assert capsys.readouterr().out == "2 to 2 are now 2 to 2\n"
    assert destination.log == [b"before", b"a", b"b"]


def test_an_entry_that_the_group_refuses_for_good_is_refused_by_each_run(
    destination: Group, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = exported(tmp_path / "export", [b"a", b"large", b"c"])
    for script in ([Code.SUCCESS, Code.UNEXPECTED_ARGUMENT], [Code.UNEXPECTED_ARGUMENT]):
        destination["n0"].script.extend(script)

        assert main(["import", "--append", str(path)]) == 4

        printed = capsys.readouterr().err
        assert "entry 2 was not imported" in printed
        assert "too large for a segment of this group. A further run would not import" in printed
        assert destination.log == [b"before", b"a"]

    assert main(["import", "--append", str(path)]) == 0
    assert destination.log == [b"before", b"a", b"large", b"c"]


def test_an_import_into_a_group_without_idempotent_appends_names_who_has_none(
    destination: Group, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = exported(tmp_path / "export", [b"a"])
    for member in destination.members.values():
        member.supports_producers = False

    assert main(["import", "--append", str(path)]) == 4

    assert "dledger: group g0 takes no import" in capsys.readouterr().err
    assert destination.log == [b"before"]


def test_a_lost_order_is_found_again_by_each_run(
    destination: Group, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = exported(tmp_path / "export", [b"a", b"b", b"early"])
    take = destination.producers.take
    destination.producers.take = (  # type: ignore[method-assign]
        lambda request, append: 0 if request.body == b"early" else take(request, append)
    )

    for _ in range(2):
        assert main(["import", "--append", str(path)]) == 1
        printed = capsys.readouterr().err
        assert "entry 4 of the export is entry 0, before entry 2" in printed
        assert "Empty the group, remove " in printed


def export_from(path: Path, first: int, bodies: list[bytes]) -> Path:
    return write_export(path, [entry(first + at, body) for at, body in enumerate(bodies)])


@pytest.mark.parametrize("first", [1, 2, 3])
def test_an_export_that_lacks_the_first_entries_is_continued(
    destination: Group, tmp_path: Path, capsys: pytest.CaptureFixture[str], first: int
) -> None:
    """The old group has removed its first entries, or the export was begun with --from."""
    bodies = [b"a", b"b", b"c", b"d", b"e"]
    assert main(["import", "--append", str(export_from(tmp_path / "begin", 0, bodies[:3]))]) == 0
    rest = export_from(tmp_path / "rest", first, bodies[first:])

    assert main(["import", "--append", str(rest)]) == 0
    assert "imported 2 entries; imported before: 3" in capsys.readouterr().err
    assert main(["import", "--append", str(export_from(tmp_path / "whole", 0, bodies))]) == 0

    assert destination.log == [b"before", *bodies]
    assert capsys.readouterr().out.endswith("0 to 4 are now 1 to 5\n")


def test_an_export_that_begins_after_the_next_entry_is_refused(
    destination: Group, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["import", "--append", str(export_from(tmp_path / "a", 0, [b"a", b"b"]))]) == 0

    assert main(["import", "--append", str(export_from(tmp_path / "b", 4, [b"e"]))]) == 2

    assert (
        "begins with entry 4, and the last imported one is entry 1: entries 2 to 3 are missing"
        in capsys.readouterr().err
    )
    assert destination.log == [b"before", b"a", b"b"]


def test_an_export_of_another_log_is_not_continued(
    destination: Group, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["import", "--append", str(export_from(tmp_path / "a", 0, [b"a", b"b"]))]) == 0
    other = export_from(tmp_path / "other", 1, [b"X", b"c"])
    short = export_from(tmp_path / "short", 1, [b"X"])
    before = write_export(tmp_path / "before", [entry(0, b"a"), entry(1, b"b")])
    assert main(["import", "--append", str(before)]) == 0

    for path in (other, short):
        assert main(["import", "--append", str(path)]) == 2
        assert "entry 1 of the export is not the one that was imported" in capsys.readouterr().err

    assert destination.log == [b"before", b"a", b"b"]


def test_an_export_that_ends_before_the_last_imported_entry_is_refused(
    destination: Group, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begin = export_from(tmp_path / "begin", 0, [b"a", b"b", b"c"])
    assert main(["import", "--append", str(begin)]) == 0

    assert main(["import", "--append", str(export_from(tmp_path / "b", 1, [b"b"]))]) == 2

    assert "ends with entry 1, but entries up to 2 are imported" in capsys.readouterr().err
    assert destination.log == [b"before", b"a", b"b", b"c"]


def test_the_first_export_may_begin_anywhere(destination: Group, tmp_path: Path) -> None:
    for count in (2, 3):
        path = export_from(tmp_path / f"{count}", 7, [b"a", b"b", b"c"][:count])
        assert main(["import", "--append", str(path)]) == 0

    assert destination.log == [b"before", b"a", b"b", b"c"]


def test_what_a_pipe_brings_before_damage_is_imported(destination: Group, tmp_path: Path) -> None:
    raw = bytearray(exported(tmp_path / "export", [b"a", b"b", b"wrong", b"d"]).read_bytes())
    raw[raw.index(b"wrong")] ^= 1
    command = [sys.executable, "-c", COMMAND, "import", "--append", "-"]

    done = subprocess.run(command, input=raw, capture_output=True, check=False, timeout=60)

    assert destination.log == [b"before", b"a", b"b"]
    assert (done.returncode, b"where entry 4 belongs, is damaged" in done.stderr) == (1, True)
    assert b"imported 2 entries" in done.stderr
    assert done.stdout


def test_a_check_of_a_file_ends_on_a_signal(destination: Group, tmp_path: Path) -> None:
    path = exported(tmp_path / "export", [bytes(100_000)] * 60)
    # Small pieces: the check takes seconds.
    slow = "import dledger_client.exports.reading as r; r.PIECE_BYTES = 64; " + COMMAND
    command = [sys.executable, "-c", slow, "import", "--append", str(path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        wait_for(lambda: reads(process.pid, path), "the file is being checked")
        process.send_signal(signal.SIGINT)
        _, printed = process.communicate(timeout=60)

    assert (process.returncode, printed.count(b"\n")) == (130, 1)
    assert b"ended by a signal; run the command again" in printed
    assert destination.log == [b"before"]


def reads(process_id: int, path: Path) -> bool:
    """Whether a process has begun to read a file, and installed its handlers before."""
    for number in Path(f"/proc/{process_id}/fd").glob("*"):
        try:
            place = Path(f"/proc/{process_id}/fdinfo/{number.name}").read_text().split()[1]
            if number.readlink() == path and int(place) > 0:
                return True
        except OSError:
            continue
    return False


def test_a_name_that_is_no_text_is_a_usage_error(
    destination: Group, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = exported(tmp_path / "export", [b"a"])

    assert main(["import", "--append", "--producer", "\udcff", str(path)]) == 2

    assert "the name of a producer must be UTF-8" in capsys.readouterr().err
    assert destination.log == [b"before"]


@pytest.mark.usefixtures("destination")
def test_a_user_without_a_home_folder_gets_a_usage_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = exported(tmp_path / "export", [b"a"])
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("os.getuid", lambda: 2**31 - 7)  # no user has it

    assert main(["import", "--append", str(path)]) == 2

    assert "this user has no home folder; set HOME or XDG_STATE_HOME" in capsys.readouterr().err
