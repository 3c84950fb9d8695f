"""How `dledger append` ends when something goes wrong before the end of its input."""

import errno
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dledger_client.cli import main
from dledger_client.client import DLedgerClient
from dledger_client.commands.named_producer import SAVE_EVERY
from dledger_client.commands.producer_record import Record, RecordError, RecordFile
from dledger_client.errors import GroupUnreachableError
from dledger_fake_server.behavior import Fault
from dledger_fake_server.group import Group
from dledger_formats.log import disk
from dledger_formats.protocol.codes import DLedgerResponseCode

Code = DLedgerResponseCode
COMMAND = "import sys; from dledger_client.cli import main; sys.exit(main())"
UNREACHABLE_SERVER = "127.0.0.1:1"
REST = "the rest of the input was not appended: what follows"
pytestmark = pytest.mark.usefixtures("group_in_environment")


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for the records of producers."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "dledger" / "producers" / "g0"


@pytest.fixture
def group(group_in_thread: Group) -> Group:
    """A group with one entry, which producers can have as their witness."""
    group_in_thread.log = [b"before"]
    return group_in_thread


def given(tmp_path: Path, lines: int) -> str:
    path = tmp_path / "lines"
    path.write_text("".join(f"{number}\n" for number in range(lines)))
    return str(path)


@pytest.mark.usefixtures("records")
def test_a_record_that_cannot_be_saved_hides_no_unknown_outcome(
    group: Group,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    group["n0"].script.extend([Code.SUCCESS] * SAVE_EVERY + [Fault.NO_ANSWER] * 2)
    save = RecordFile.save

    def refused(file: RecordFile, record: Record) -> None:
        if record.acknowledged:
            raise RecordError("cannot save it: No space left on device")
        save(file, record)

    monkeypatch.setattr(RecordFile, "save", refused)

    assert main(["append", "--producer", "p", given(tmp_path, SAVE_EVERY + 2)]) == 3
    err = capsys.readouterr().err
    assert f"acknowledged    {SAVE_EVERY}\n" in err
    assert f"may or may not be in the log: lines {SAVE_EVERY + 1} to {SAVE_EVERY + 2}." in err
    assert err.endswith("dledger: cannot save it: No space left on device\n")


@pytest.mark.parametrize("options", [[], ["--quiet"]])
def test_each_line_of_unknown_outcome_is_named(
    group: Group, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    group["n0"].script.extend([Fault.DISCONNECT, Code.SUCCESS] * 15)

    assert main(["append", "--in-flight", "1", *options, given(tmp_path, 30)]) == 3
    named = ", ".join(str(number) for number in range(1, 30, 2))
    assert f"\nThese may or may not be in the log: lines {named}. With" in capsys.readouterr().err


@pytest.mark.usefixtures("records")
def test_the_only_line_that_a_further_run_takes_is_named_by_its_number_in_the_input(
    group: Group, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["append", "--quiet", "--producer", "p", "--deadline", "1"]
    assert main([*command, given(tmp_path, 4)]) == 0
    group["n0"].script.extend([Fault.DISCONNECT] * 1000)

    assert main([*command, given(tmp_path, 5)]) == 3
    assert "dledger: line 5 may be in the log: " in capsys.readouterr().err


@pytest.mark.usefixtures("records", "group")
def test_a_record_that_cannot_be_saved_fails_after_the_summary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    replace = Path.replace

    def full(path: Path, target: Path) -> Path:
        if json.loads(path.read_bytes())["acknowledged"]:
            raise OSError(errno.ENOSPC, "No space left on device")
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", full)

    assert main(["append", "--producer", "p", given(tmp_path, 3)]) == 1
    err = capsys.readouterr().err
    assert "acknowledged    3\n" in err
    assert ": No space left on device; once it can be saved, run the command again" in err


@pytest.mark.usefixtures("group")
def test_a_group_that_is_gone_at_the_end_leaves_a_record_from_which_the_next_run_goes_on(
    records: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    get = DLedgerClient.get

    async def gone(client: DLedgerClient, index: int, **options: Any) -> Any:
        if client.statistics.acknowledged:
            raise GroupUnreachableError("no leader accepted the request")
        return await get(client, index, **options)

    monkeypatch.setattr(DLedgerClient, "get", gone)

    assert main(["append", "--producer", "p", given(tmp_path, 3)]) == 0
    err = capsys.readouterr().err
    assert "acknowledged    3\n" in err
    assert "the next run will compare the log: no leader accepted the request\n" in err
    saved = json.loads((records / "p.json").read_bytes())
    assert (saved["acknowledged"], saved["is_complete"]) == (3, False)


def test_an_append_of_an_open_input_ends_at_the_deadline_of_the_first_line() -> None:
    """No further line comes that could tell the command to look at the outcome."""
    command = [sys.executable, "-c", COMMAND, "append", "--deadline", "0.5"]
    with subprocess.Popen(
        [*command, "--servers", UNREACHABLE_SERVER], stdin=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(b"a\n")
        process.stdin.flush()
        try:
            code = process.wait(timeout=20)
        finally:
            process.kill()
        err = process.stderr.read().decode()

    assert code == 5
    assert "dledger: the entry was not appended: no leader" in err
    assert "Connection refused\n" in err, "other errors have no period at their end, either"
    assert "accepted the request within 0.5 s;" in err, "the deadline, not some milliseconds more"
    assert err.endswith("dledger: the group is unreachable; nothing was appended\n")


def test_an_append_to_an_unreachable_group_says_that_it_left_out_all_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--servers", UNREACHABLE_SERVER, "--deadline", "0.5", "--in-flight", "2"]

    assert main(["append", given(tmp_path, 5), *options]) == 5
    err = capsys.readouterr().err
    assert "refused         2\n" in err
    assert "These were not appended" not in err
    assert err.endswith("dledger: the group is unreachable; nothing was appended\n")


@pytest.mark.parametrize("options", [[], ["-o", "json"]])
def test_the_refused_lines_after_the_last_one_that_may_be_in_the_log_belong_to_the_rest(
    group: Group, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    """Whoever continues after the line that is named loses none of them."""
    group["n0"].script.extend([Code.SUCCESS] + [Fault.NO_ANSWER] + [Code.DISK_FULL] * 100)
    command = ["append", "--in-flight", "1", "--deadline", "0.5", *options]

    assert main([*command, given(tmp_path, 5)]) == 3
    err = capsys.readouterr().err
    assert "These were not appended" not in err
    assert err.endswith(f"dledger: the volumes of the group are full; {REST} line 2\n")


def test_refused_lines_before_others_that_are_in_the_log_are_named(
    group: Group, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unsupported = Code.UNSUPPORTED
    group["n0"].script.extend([unsupported, Code.SUCCESS, unsupported, unsupported, Code.SUCCESS])

    assert main(["append", "--in-flight", "1", given(tmp_path, 5)]) == 4
    assert capsys.readouterr().err.endswith("These were not appended: lines 1, 3 to 4.\n")


def test_refused_lines_at_the_end_of_an_input_that_was_taken_wholly_are_named(
    group: Group, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    group["n0"].script.extend([Code.SUCCESS] * 4 + [Code.UNSUPPORTED])

    assert main(["append", "--in-flight", "1", given(tmp_path, 5)]) == 4
    assert capsys.readouterr().err.endswith("These were not appended: line 5.\n")


def test_refused_lines_in_an_input_that_was_cut_short_are_named_once(
    group: Group, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    group["n0"].script.extend([Code.UNSUPPORTED, Code.SUCCESS] + [Code.DISK_FULL] * 100)
    command = ["append", "--in-flight", "1", "--deadline", "0.5"]

    assert main([*command, given(tmp_path, 5)]) == 4
    assert capsys.readouterr().err.endswith(
        "These were not appended: line 1.\n"
        f"dledger: the volumes of the group are full; {REST} line 2\n"
    )


def test_an_append_to_an_unreachable_group_says_nothing_of_a_rest_after_the_last_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--servers", UNREACHABLE_SERVER, "--deadline", "0.5"]

    assert main(["append", given(tmp_path, 5), *options]) == 5
    assert REST not in capsys.readouterr().err


@pytest.mark.usefixtures("records")
def test_a_producer_with_a_refused_line_says_which_lines_it_left_out(
    group: Group, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    group["n0"].script.extend([Code.SUCCESS, Code.UNEXPECTED_ARGUMENT])
    options = ["--producer", "p", "--in-flight", "1"]

    assert main(["append", *options, given(tmp_path, 5)]) == 4
    assert capsys.readouterr().err.endswith(f"dledger: an append failed; {REST} line 1\n")


TOO_LONG = b"x" * (disk.BODY_SIZE_MAX + 1)


def part(tmp_path: Path, name: str, *lines: bytes) -> str:
    path = tmp_path / name
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return str(path)


@pytest.mark.parametrize("options", [[], ["--quiet"]])
def test_a_line_that_is_too_long_ends_the_input_and_the_message_says_after_which_line(
    group: Group, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    one = part(tmp_path, "one", b"1", b"2")
    two = part(tmp_path, "two", b"3", TOO_LONG, b"4")

    assert main(["append", *options, one, two]) == 2
    err = capsys.readouterr().err
    assert group.log == [b"before", b"1", b"2", b"3"]
    assert "acknowledged    3\n" in err
    counted = "line 3, counted over all files"
    assert err.endswith(f"dledger: {two}: line 2 exceeds 4194256 bytes; {REST} {counted}\n")


def test_a_file_that_is_too_long_ends_the_input_and_the_message_says_after_which_file(
    group: Group, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [
        part(tmp_path, name, body) for name, body in [("a", b"1"), ("b", TOO_LONG), ("c", b"2")]
    ]

    assert main(["append", "--whole", "--quiet", *files]) == 2
    out, err = capsys.readouterr()
    assert (group.log, out) == ([b"before", b"1\n"], "appended entry 1\n")
    assert err.endswith(
        f"{files[1]} exceeds the maximum entry size, 4194256 bytes; {REST} file 1\n"
    )


def test_an_input_whose_first_line_is_too_long_says_that_nothing_was_appended(
    group: Group, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["append", part(tmp_path, "one", TOO_LONG, b"1")]) == 2
    err = capsys.readouterr().err
    assert group.log == [b"before"]
    assert err.endswith("one: line 1 exceeds 4194256 bytes; nothing was appended\n")


@pytest.mark.usefixtures("records")
def test_a_producer_whose_input_has_a_line_that_is_too_long_says_where_it_ended(
    group: Group, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["append", "--quiet", "--producer", "p"]
    assert main([*command, part(tmp_path, "one", b"1")]) == 0

    assert main([*command, part(tmp_path, "one", b"1", b"2", TOO_LONG)]) == 2
    err = capsys.readouterr().err
    assert [body for body in group.log if body] == [b"before", b"1", b"2"]
    assert err.endswith(f"one: line 3 exceeds 4194256 bytes; {REST} line 2\n")
