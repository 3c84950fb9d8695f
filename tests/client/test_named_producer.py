"""`dledger append --producer`: the lines of an input are in the log once, also after a crash."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger_client.cli import main
from dledger_client.sync import BlockingClient
from dledger_formats.log import disk
from dledger_formats.log.channels import WINDOW
from tools.groups.node_group import NodeGroup
from tools.groups.waiting import wait_for

pytestmark = pytest.mark.group
COMMAND = [
    sys.executable, "-c", "import sys; from dledger_client.cli import main; sys.exit(main())",
]  # fmt: skip
LINES = [b"line %d" % n for n in range(30_000)]


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NodeGroup]:
    """One member, which `dledger` finds without options, and an empty folder for records."""
    (tmp_path / "group").mkdir()
    with NodeGroup(tmp_path / "group", 1) as group:
        monkeypatch.setenv("DLEDGER_CLIENT_SERVERS", ",".join(group.peers.values()))
        monkeypatch.setenv("DLEDGER_CLIENT_GROUP", "g")
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        yield group


@pytest.fixture
def lines_file(tmp_path: Path) -> Path:
    path = tmp_path / "lines"
    path.write_bytes(b"\n".join(LINES) + b"\n")
    return path


def bodies(group: NodeGroup) -> list[bytes]:
    with BlockingClient(",".join(group.peers.values()), "g") as client:
        return [entry.body for entry in client.get_range(0) if entry.magic == disk.NORMAL]


def record(tmp_path: Path) -> Path:
    return tmp_path / "state" / "dledger" / "producers" / "g" / "p.json"


def test_lines_are_in_the_log_once_after_every_kill(
    group: NodeGroup, lines_file: Path, tmp_path: Path
) -> None:
    """Each run is killed once it has saved some more progress."""
    for _ in range(5):
        before = saved(tmp_path)
        with subprocess.Popen([*COMMAND, "append", "--producer=p", str(lines_file)]) as process:
            wait_for(lambda before=before: saved(tmp_path) > before, "some lines are saved")
            process.kill()
    assert 0 < saved(tmp_path) < len(LINES)

    assert main(["append", "--producer=p", str(lines_file)]) == 0

    assert len(bodies(group)) == len(LINES)
    assert sorted(bodies(group)) == sorted(LINES)


def saved(tmp_path: Path) -> int:
    try:
        return int(json.loads(record(tmp_path).read_bytes())["acknowledged"])
    except FileNotFoundError:
        return 0


def test_a_kill_before_any_progress_is_saved_duplicates_nothing(
    group: NodeGroup, tmp_path: Path
) -> None:
    """Standard input stays open, so the lines are in the log and not recorded."""
    killed_after_two(group)
    assert saved(tmp_path) == 0
    path = tmp_path / "short"
    path.write_bytes(b"one\ntwo\nthree\n")

    assert main(["append", "--producer=p", str(path)]) == 0
    assert main(["append", "--producer=p", str(path)]) == 0

    assert bodies(group) == [b"one", b"two", b"three"]


def killed_after_two(group: NodeGroup) -> None:
    """Leave two lines in the log that the record does not mention."""
    with subprocess.Popen([*COMMAND, "append", "--producer=p"], stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(b"one\ntwo\n")
        process.stdin.flush()
        wait_for(lambda: bodies(group) == [b"one", b"two"], "both lines are in the log")
        process.kill()


def test_a_shorter_input_after_a_kill_does_not_end_the_numbering(
    group: NodeGroup, tmp_path: Path
) -> None:
    """The killed run had sent a line that the next input does not have yet."""
    killed_after_two(group)
    path = tmp_path / "input"
    for lines in ("one\n", "one\n", "one\ntwo\nthree\n"):
        path.write_text(lines)
        assert main(["append", "--producer=p", str(path)]) == 0

    assert bodies(group) == [b"one", b"two", b"three"]


def test_runs_after_a_kill_end_the_numbering_beyond_what_it_can_have_sent(
    group: NodeGroup, tmp_path: Path
) -> None:
    killed_after_two(group)
    path = tmp_path / "input"
    for count in (WINDOW // 2, WINDOW - 1, WINDOW):
        more = [f"line {number}" for number in range(3, count + 1)]
        path.write_text("\n".join(["one", "two", *more]) + "\n")
        assert main(["append", "--producer=p", str(path)]) == 0
        completed = json.loads(record(tmp_path).read_bytes())["is_complete"]
        assert completed == (count == WINDOW)

    assert len(bodies(group)) == WINDOW


def test_only_what_an_input_has_gained_is_appended(group: NodeGroup, tmp_path: Path) -> None:
    path = tmp_path / "growing"
    for lines in (["a"], ["a", "b"], ["a", "b", "c", "d"]):
        path.write_text("".join(f"{line}\n" for line in lines))
        assert main(["append", "--producer=p", str(path)]) == 0

    assert bodies(group) == [b"a", b"b", b"c", b"d"]


def test_a_file_that_grows_within_its_last_line_is_not_a_trap(
    group: NodeGroup, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "growing"
    path.write_text("a\nsecond li")
    assert main(["append", "--producer=p", str(path)]) == 2
    assert "line 2 has no newline at its end, and was not appended" in capsys.readouterr().err
    assert bodies(group) == [b"a"]

    path.write_text("a\nsecond line\n")
    assert main(["append", "--producer=p", str(path)]) == 0

    assert bodies(group) == [b"a", b"second line"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a\nX\nc\n", "the beginning of the input, up to line 2, is not what"),
        ("a\n", "has 1 line, but this"),
    ],
)
def test_another_input_is_refused(
    group: NodeGroup, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, message: str
) -> None:
    path = tmp_path / "input"
    path.write_text("a\nb\n")
    assert main(["append", "--producer=p", str(path)]) == 0
    path.write_text(content)

    assert main(["append", "--producer=p", str(path)]) == 2

    err = capsys.readouterr().err
    assert message in err
    assert err.endswith("to append all of the input again, also what is already in the log\n")
    assert bodies(group) == [b"a", b"b"]


def test_another_group_of_the_same_name_is_refused(
    group: NodeGroup, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "input"
    path.write_text("a\nb\n")
    assert main(["append", "--producer=p", str(path)]) == 0
    (tmp_path / "other").mkdir()
    with NodeGroup(tmp_path / "other", 1) as other:
        with BlockingClient(",".join(other.peers.values()), "g") as client:
            client.append_batch([b"x"] * 10)
        servers = f"--servers={','.join(other.peers.values())}"

        assert main(["append", "--producer=p", str(path), servers]) == 2

        assert "is not the one to which this producer has appended" in capsys.readouterr().err
        assert bodies(other) == [b"x"] * 10


def test_two_programs_cannot_share_a_name(
    group: NodeGroup, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with subprocess.Popen([*COMMAND, "append", "--producer=p"], stdin=subprocess.PIPE) as process:
        wait_for(record(tmp_path).exists, "the producer has registered")

        assert main(["append", "--producer=p", "--body=x"]) == 2

        process.kill()
    assert "another process appends as producer p" in capsys.readouterr().err


def test_a_record_that_cannot_be_written_ends_the_run(
    group: NodeGroup, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(tmp_path).parent.mkdir(parents=True)
    record(tmp_path).with_suffix(".new").mkdir()

    assert main(["append", "--producer=p", "--body=x"]) == 1

    assert "cannot save" in capsys.readouterr().err
    assert bodies(group) == []


def test_a_damaged_record_is_refused(
    group: NodeGroup, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(tmp_path).parent.mkdir(parents=True)
    record(tmp_path).write_bytes(b"{")

    assert main(["append", "--producer=p", "--body=x"]) == 2
    assert "the record of producer p is damaged" in capsys.readouterr().err


def test_a_signal_keeps_what_was_acknowledged(group: NodeGroup, tmp_path: Path) -> None:
    with subprocess.Popen([*COMMAND, "append", "--producer=p"], stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(b"one\n")
        process.stdin.flush()
        wait_for(lambda: bodies(group) == [b"one"], "the line is in the log")
        process.send_signal(signal.SIGTERM)

    assert process.returncode == 128 + signal.SIGTERM
    assert saved(tmp_path) == 1
