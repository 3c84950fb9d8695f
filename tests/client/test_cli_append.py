"""`dledger append`: input, output and exit codes."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from dledger_client.cli import main
from dledger_fake_server.behavior import Fault
from dledger_fake_server.group import Group
from dledger_formats.log import disk
from dledger_formats.protocol.codes import DLedgerResponseCode

Code = DLedgerResponseCode
UNREACHABLE_SERVER = "127.0.0.1:1"
pytestmark = pytest.mark.usefixtures("group_in_environment")


@pytest.fixture
def lines_file(tmp_path: Path) -> Path:
    path = tmp_path / "lines"
    path.write_bytes(b"one\ntwo\nthree\n")
    return path


def json_lines(capsys: pytest.CaptureFixture[str]) -> list[Any]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_append_appends_each_line_of_a_file(group_in_thread: Group, lines_file: Path) -> None:
    assert main(["append", str(lines_file)]) == 0

    assert group_in_thread.log == [b"one", b"two", b"three"]


def test_append_appends_a_body_from_the_command_line(group_in_thread: Group) -> None:
    assert main(["append", "--body", "héllo"]) == 0

    assert group_in_thread.log == ["héllo".encode()]


def test_append_appends_several_bodies_in_order(group_in_thread: Group) -> None:
    assert main(["append", "--body", "a", "--body", "b", "--in-flight", "1"]) == 0

    assert group_in_thread.log == [b"a", b"b"]


def test_append_appends_the_lines_of_several_files(
    group_in_thread: Group, lines_file: Path
) -> None:
    assert main(["append", str(lines_file), str(lines_file)]) == 0

    assert group_in_thread.log == [b"one", b"two", b"three"] * 2


def test_append_whole_appends_each_file_unchanged(
    group_in_thread: Group, lines_file: Path, tmp_path: Path
) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\n\x00")

    assert main(["append", "--whole", str(lines_file), str(binary)]) == 0
    assert group_in_thread.log == [b"one\ntwo\nthree\n", b"\xff\n\x00"]


def test_append_whole_stops_at_a_file_that_is_too_large(
    group_in_thread: Group, lines_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    large = tmp_path / "large"
    large.write_bytes(bytes(disk.BODY_SIZE_MAX + 1))

    assert main(["append", "--whole", str(lines_file), str(large)]) == 2
    assert "large exceeds the maximum entry size" in capsys.readouterr().err
    assert len(group_in_thread.log) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--body", "x", "file"], "--body cannot be combined with a FILE"),
        (["--whole"], "--whole requires a FILE"),
        (["nowhere"], "cannot read nowhere: No such file or directory; nothing was appended"),
    ],
)
def test_append_rejects_invalid_input_before_appending_anything(
    group_in_thread: Group,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    assert main(["append", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert not group_in_thread.log


def test_append_prints_each_outcome_and_the_summary_as_json(
    group_in_thread: Group, lines_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    group_in_thread["n0"].script.extend([Code.SUCCESS, Code.UNSUPPORTED, Fault.DISCONNECT])

    before = round(time.time(), 4)
    main(["append", str(lines_file), "--output", "json"])

    *outcomes, last = json_lines(capsys)
    times = [before, *(outcome.pop("time") for outcome in outcomes), round(time.time(), 4)]
    assert times == sorted(times)
    assert outcomes[0] == {
        "number": 0, "outcome": "acknowledged", "index": 0, "term": 1, "attempts": 1,
    }  # fmt: skip
    assert (outcomes[1]["outcome"], outcomes[1]["code"]) == ("refused", 303)
    assert outcomes[2]["outcome"] == "unknown"
    summary = last["summary"]
    counts = {key: summary[key] for key in ("acknowledged", "unknown", "refused", "unfinished")}
    assert counts == {"acknowledged": 1, "unknown": 1, "refused": 1, "unfinished": 0}
    assert (summary["leader"], summary["leaderChanges"]) == ("n0", 0)


def test_quiet_does_not_omit_the_outcomes_as_json(
    group_in_thread: Group, lines_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["append", str(lines_file), "--quiet", "--output", "json"]) == 0

    *outcomes, last = json_lines(capsys)
    assert [outcome["number"] for outcome in outcomes] == [0, 1, 2]
    assert last["summary"]["acknowledged"] == len(group_in_thread.log)


def test_the_text_summary_contains_the_counts_and_the_reasons(
    group_in_thread: Group, lines_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    group_in_thread["n0"].script.extend([Code.UNSUPPORTED, Code.UNSUPPORTED])

    main(["append", str(lines_file)])

    captured = capsys.readouterr()
    assert captured.out == ""
    assert "acknowledged    1\n" in captured.err
    assert "indexes         0 to 0\n" in captured.err
    assert "refused         2\n" in captured.err
    assert "2 times: n0 at 127.0.0.1" in captured.err


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ([], 0),
        ([Fault.DISCONNECT], 3),
        ([Code.UNSUPPORTED], 4),
        ([Code.UNSUPPORTED, Fault.DISCONNECT], 3),
    ],
    ids=["all acknowledged", "some unknown", "some refused", "unknown before refused"],
)
def test_the_exit_code_of_append_is_that_of_the_worst_outcome(
    group_in_thread: Group, lines_file: Path, script: list[Fault | Code], code: int
) -> None:
    group_in_thread["n0"].script.extend(script)

    assert main(["append", str(lines_file), "--in-flight", "1"]) == code


def test_append_at_least_once_resends_an_append_with_an_unknown_outcome(
    group_in_thread: Group, lines_file: Path
) -> None:
    group_in_thread["n0"].script.append(Fault.APPEND_AND_DISCONNECT)

    assert main(["append", str(lines_file), "--in-flight", "1", "--at-least-once"]) == 0
    assert group_in_thread.log == [b"one", b"one", b"two", b"three"]


def test_append_stops_at_the_first_deadline_if_the_group_is_unreachable(
    lines_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [
        "--servers",
        UNREACHABLE_SERVER,
        "--deadline",
        "0.1",
        "--in-flight",
        "1",
        "--output",
        "json",
    ]

    code = main(["append", str(lines_file), *options])

    assert code == 5
    assert json_lines(capsys)[-1]["summary"]["refused"] <= 2


def test_append_stops_once_all_that_is_in_flight_was_refused_because_of_full_volumes(
    group_in_thread: Group, lines_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    group_in_thread["n0"].script.extend([Code.DISK_FULL] * 50)

    code = main(["append", str(lines_file), "--deadline", "0.2", "--in-flight", "1"])

    assert code == 4
    assert {*group_in_thread["n0"].appends} == {b"one"}
    assert capsys.readouterr().err.endswith("the group are full; nothing was appended\n")


def test_append_goes_on_after_a_full_volume_once_there_is_room_again(
    group_in_thread: Group, lines_file: Path
) -> None:
    group_in_thread["n0"].script.append(Code.DISK_FULL)

    assert main(["append", str(lines_file), "--deadline", "0.2", "--in-flight", "2"]) == 4

    assert group_in_thread.log == [b"two", b"three"]


def test_append_stops_at_a_line_that_is_too_long(
    group_in_thread: Group, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "long"
    path.write_bytes(b"short\n" + b"x" * (disk.BODY_SIZE_MAX + 1))

    assert main(["append", str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == "appended entry 0\n"
    assert "line 2 exceeds" in captured.err
    assert group_in_thread.log == [b"short"]


def test_append_progress_shows_a_bar_with_the_leader(
    lines_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["append", str(lines_file), "--progress"])

    err = capsys.readouterr().err
    assert "14.0 of 14.0B" in err
    assert "leader n0" in err


def test_append_shows_no_progress_without_a_terminal(
    lines_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["append", str(lines_file)])

    assert "\r" not in capsys.readouterr().err


def test_append_no_follow_asks_only_the_given_servers(
    group_in_thread: Group, capsys: pytest.CaptureFixture[str]
) -> None:
    server = group_in_thread["n1"].address
    options = ["--servers", server, "--no-follow", "--deadline", "0.2"]

    assert main(["append", "--body", "x", *options]) == 5
    assert "the leader is n0" in capsys.readouterr().err
