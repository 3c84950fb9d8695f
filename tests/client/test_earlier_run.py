"""`dledger append --producer` after a kill: what is in the log is compared with the input."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger_client.cli import main
from dledger_client.sync import BlockingClient
from dledger_formats.log import disk
from dledger_formats.log.channels import PRODUCERS_MAX, WINDOW
from tools.groups.node_group import NodeGroup
from tools.groups.waiting import wait_for

pytestmark = pytest.mark.group
COMMAND = [
    sys.executable, "-c", "import sys; from dledger_client.cli import main; sys.exit(main())",
    "append", "--producer=p",
]  # fmt: skip
LINES = [f"line {number}\n" for number in range(3_000)]


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NodeGroup]:
    """One member, which `dledger` finds without options, and an empty folder for records."""
    (tmp_path / "group").mkdir()
    with NodeGroup(tmp_path / "group", 1) as group:
        monkeypatch.setenv("DLEDGER_CLIENT_SERVERS", ",".join(group.peers.values()))
        monkeypatch.setenv("DLEDGER_CLIENT_GROUP", "g")
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        yield group


def client_of(group: NodeGroup, *, idempotent: bool = False) -> BlockingClient:
    return BlockingClient(",".join(group.peers.values()), "g", idempotent=idempotent)


def bodies(group: NodeGroup) -> list[bytes]:
    with client_of(group) as client:
        return [entry.body for entry in client.get_range(0) if entry.magic == disk.NORMAL]


def record_of(tmp_path: Path) -> Path:
    return tmp_path / "state" / "dledger" / "producers" / "g" / "p.json"


def killed_after(group: NodeGroup, tmp_path: Path, *lines: bytes) -> int:
    """Leave lines in the log that the record does not mention; return the registration."""
    with subprocess.Popen(COMMAND, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(b"".join(line + b"\n" for line in lines))
        process.stdin.flush()
        wait_for(record_of(tmp_path).exists, "the producer has registered")
        wait_for(lambda: bodies(group) == list(lines), "the lines are in the log")
        process.kill()
    return int(json.loads(record_of(tmp_path).read_bytes())["producer"])


def append_with_number(group: NodeGroup, registration: int, number: int, body: bytes) -> None:
    with client_of(group, idempotent=True) as client:
        client.resume_producer(registration, number - 1, number)
        client.append(body)


@pytest.mark.parametrize("content", ["one\nTWO\n", "one\nTWO\nthree\n", "ONE\ntwo\nthree\n"])
def test_other_lines_than_those_of_a_killed_run_are_refused(
    group: NodeGroup, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str
) -> None:
    killed_after(group, tmp_path, b"one", b"two")
    path = tmp_path / "input"
    path.write_text(content)

    assert main(["append", "--producer=p", str(path)]) == 2

    number = 1 if content.startswith("ONE") else 2
    printed = capsys.readouterr().err
    assert f"line {number} of the input is not the one that this producer has appended" in printed
    assert str(record_of(tmp_path)) in printed
    assert bodies(group) == [b"one", b"two"]


def test_the_lines_of_a_killed_run_are_accepted_after_others_were_refused(
    group: NodeGroup, tmp_path: Path
) -> None:
    killed_after(group, tmp_path, b"one", b"two")
    path = tmp_path / "input"
    path.write_text("one\nTWO\n")
    assert main(["append", "--producer=p", str(path)]) == 2

    path.write_text("one\ntwo\nthree\n")
    assert main(["append", "--producer=p", str(path)]) == 0

    assert bodies(group) == [b"one", b"two", b"three"]


def test_other_lines_are_refused_before_a_line_that_is_missing_in_between_is_appended(
    group: NodeGroup, tmp_path: Path
) -> None:
    """The killed run's first two lines were lost, and the third is in the log."""
    registration = killed_after(group, tmp_path)
    append_with_number(group, registration, 3, b"three")
    path = tmp_path / "input"
    path.write_text("one\ntwo\nTHREE\n")

    assert main(["append", "--producer=p", str(path)]) == 2
    assert bodies(group) == [b"three"]

    path.write_text("one\ntwo\nthree\n")
    assert main(["append", "--producer=p", str(path)]) == 0
    assert bodies(group) == [b"three", b"one", b"two"]


def test_lines_before_a_missing_end_are_appended_although_later_ones_are_in_the_log(
    group: NodeGroup, tmp_path: Path
) -> None:
    registration = killed_after(group, tmp_path)
    append_with_number(group, registration, 3, b"three")
    path = tmp_path / "input"
    path.write_text("one\n")

    assert main(["append", "--producer=p", str(path)]) == 0

    assert bodies(group) == [b"three", b"one"]


def test_a_line_is_refused_if_a_late_copy_of_another_has_its_number(
    group: NodeGroup, tmp_path: Path
) -> None:
    """The copy waited in a socket of the killed run, until the next run had looked at the log."""
    registration = killed_after(group, tmp_path, b"one")
    process = subprocess.Popen(
        [*COMMAND, "-o", "json"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(b"one\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["outcome"] == "acknowledged"
        append_with_number(group, registration, 2, b"late")
        process.stdin.write(b"two\n")
        process.stdin.close()

        refused, summary = map(json.loads, process.stdout)
        problem = process.stderr.read().decode()

    assert process.returncode == 2
    assert (refused["number"], refused["outcome"]) == (1, "refused")
    assert "an earlier run of this producer" in refused["reason"]
    assert (summary["summary"]["acknowledged"], summary["summary"]["refused"]) == (1, 1)
    assert problem == ""
    assert bodies(group) == [b"one", b"late"]


def test_the_record_says_from_where_on_a_later_run_must_look(
    group: NodeGroup, tmp_path: Path
) -> None:
    with client_of(group) as client:
        for _ in client.append_all([b"other"] * 5_000):
            pass
    path = tmp_path / "input"
    path.write_text("".join(LINES))

    assert main(["append", "--producer=p", str(path)]) == 0

    saved = json.loads(record_of(tmp_path).read_bytes())
    assert saved["above_index"] - saved["producer"] == len(LINES) - WINDOW + 1


def forget_all_producers(group: NodeGroup) -> None:
    with client_of(group) as client:
        for _ in range(PRODUCERS_MAX):
            client.register_producer()


def test_a_producer_that_the_group_has_forgotten_goes_on_with_what_the_log_lacks(
    group: NodeGroup, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    killed_after(group, tmp_path, b"one", b"two")
    forget_all_producers(group)
    path = tmp_path / "input"
    path.write_text("one\nTWO\nthree\n")
    assert main(["append", "--producer=p", str(path)]) == 2
    assert "the beginning of the input, up to line 2, is not what" in capsys.readouterr().err

    path.write_text("one\ntwo\nthree\n")
    for _ in range(2):
        assert main(["append", "--producer=p", str(path)]) == 0

    assert bodies(group) == [b"one", b"two", b"three"]


def test_a_forgotten_producer_with_a_gap_in_the_log_is_not_registered_again(
    group: NodeGroup, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody can put the missing lines before those that follow them."""
    registration = killed_after(group, tmp_path)
    append_with_number(group, registration, 3, b"three")
    forget_all_producers(group)
    path = tmp_path / "input"
    path.write_text("one\ntwo\nthree\n")

    assert main(["append", "--producer=p", str(path)]) == 3

    printed = capsys.readouterr().err
    assert "UNKNOWN_PRODUCER" in printed
    assert "append the rest under another name" in printed
    assert "Run the command again" not in printed
    assert bodies(group) == [b"three"]
