"""`dledger tail`, `transfer`, `bench` and `completion`, and behavior that all commands share."""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence

import msgspec
import pytest

from dledger_client import cli
from dledger_client.cli import main
from dledger_client.client import DLedgerClient
from dledger_client.commands import tail
from dledger_client.commands.bench import Latencies
from dledger_fake_server.group import Group
from dledger_formats.log import disk
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.protocol.entry import DLedgerEntry

pytestmark = pytest.mark.usefixtures("group_in_environment")


# tail


@pytest.mark.parametrize(
    ("arguments", "indexes"),
    [
        (["--from", "0", "--count", "5"], [0, 1, 2, 3, 4]),
        (["--last", "2", "--count", "2"], [3, 4]),
        (["--last", "9", "--count", "5"], [0, 1, 2, 3, 4]),
    ],
)
def test_tail_begins_at_the_given_entry(
    group_in_thread: Group,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    indexes: list[int],
) -> None:
    group_in_thread.log = [b"x"] * 5

    assert main(["tail", "-o", "json", *arguments]) == 0
    written = [json.loads(line)["index"] for line in capsys.readouterr().out.splitlines()]
    assert written == indexes


@pytest.mark.parametrize(("output", "lines"), [("raw", [b"one"]), ("json", [b"{"])])
def test_tail_counts_only_printed_entries(
    group_in_thread: Group,
    capfdbinary: pytest.CaptureFixture[bytes],
    output: str,
    lines: list[bytes],
) -> None:
    group_in_thread.log = [b"", b"one", b"two"]
    stored = group_in_thread.stored_entry
    group_in_thread.entry = lambda index: msgspec.structs.replace(
        stored(index), magic=disk.NORMAL if index else disk.NOOP
    )

    assert main(["tail", "--from", "0", "--count", "1", "-o", output]) == 0
    written = capfdbinary.readouterr().out.splitlines()
    assert [line[: len(start)] for line, start in zip(written, lines, strict=True)] == lines


@pytest.mark.parametrize(
    ("last", "bodies"), [(1, b"two\n"), (2, b"one\ntwo\n"), (9, b"one\ntwo\n")]
)
def test_tail_last_counts_only_printed_entries(
    group_in_thread: Group, capfdbinary: pytest.CaptureFixture[bytes], last: int, bodies: bytes
) -> None:
    group_in_thread.log = [b"one", *[b""] * 5, b"two", *[b""] * 20]
    stored = group_in_thread.stored_entry
    group_in_thread.entry = lambda index: msgspec.structs.replace(
        stored(index), magic=disk.NORMAL if stored(index).body else disk.NOOP
    )
    count = str(bodies.count(b"\n"))

    assert main(["tail", "--last", str(last), "--count", count]) == 0
    assert capfdbinary.readouterr().out == bodies


def only_leaders_entries(group: Group) -> list[int]:
    """Give a group 30 entries that are not printed; return a list that gets what is read."""
    group.log = [b""] * 30
    read: list[int] = []

    def entry(index: int) -> DLedgerEntry:
        read.append(index)
        return msgspec.structs.replace(group.stored_entry(index), magic=disk.NOOP)

    group.entry = entry
    return read


@pytest.mark.parametrize(
    ("last", "first", "reads"),
    [
        (2, 22, range(22, 30)),  # 8 entries in all
        (8, 22, range(22, 30)),
        (9, 21, ()),  # more than it looks at: none is counted
        (30, 0, ()),  # the whole log, whatever is in it
        (10**9, 0, ()),
    ],
)
async def test_tail_last_looks_back_at_a_bounded_number_of_entries(
    group: Group, monkeypatch: pytest.MonkeyPatch, last: int, first: int, reads: Sequence[int]
) -> None:
    read = only_leaders_entries(group)
    monkeypatch.setattr(tail, "LOOK_BACK_MAX", 8)
    arguments = argparse.Namespace(first=None, last=last, output="raw")

    async with DLedgerClient(group.servers, "g0") as client:
        assert await tail._first(client, arguments) == first
    assert sorted(read) == list(reads)


# Background processes of a shell ignore SIGINT, and so do their children.
ON_A_TERMINAL = """
import signal, sys
from dledger_client.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(main())
"""


@pytest.mark.local
def test_tail_prints_each_entry_immediately_and_ends_with_ctrl_c(group_in_thread: Group) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", ON_A_TERMINAL, "tail", "--from", "0"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        for body in (b"one", b"two"):
            main(["append", "--body", body.decode()])
            assert process.stdout.readline() == body + b"\n"
        process.send_signal(2)
        _, err = process.communicate(timeout=60)

    assert (process.returncode, err) == (130, b"")


# transfer


def test_transfer_prints_the_new_leader(
    group_in_thread: Group, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["transfer", "n2"]) == 0
    assert capsys.readouterr().out == "n2 is the leader of term 2\n"

    assert main(["transfer", "n1", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"group": "g0", "leader": "n1", "term": 3}


def test_a_refused_transfer_prints_an_error_and_sets_the_exit_code(
    group_in_thread: Group, capsys: pytest.CaptureFixture[str]
) -> None:
    group_in_thread["n0"].transfers.append(DLedgerResponseCode.FALL_BEHIND_TOO_MUCH)

    assert main(["transfer", "n1"]) == 4
    assert "417 FALL_BEHIND_TOO_MUCH" in capsys.readouterr().err


# bench


def test_bench_counts_the_acknowledged_appends(
    group_in_thread: Group, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["bench", "--seconds", "0.2", "--warm-up", "0.01", "--body-bytes", "10",
                 "-o", "json"])  # fmt: skip

    figures = json.loads(capsys.readouterr().out)
    assert (code, figures["acknowledged"]) == (0, len(group_in_thread.log))
    assert figures["appendsPerSecond"] > 0
    assert 0 < figures["p50Ms"] <= figures["p99Ms"] <= figures["longestMs"] * 1.01
    assert {len(body) for body in group_in_thread.log} == {10}


def test_bench_that_measured_nothing_says_so_and_fails(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ["--seconds", "0.001", "--warm-up", "0.001", "--in-flight", "100000"]

    assert main(["bench", *arguments]) == 1
    assert "use more --seconds or fewer --in-flight" in capsys.readouterr().err


def test_bench_reports_an_unreachable_group(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--servers", "127.0.0.1:1", "--deadline", "0.1"]) == 5
    assert "cannot be reached" in capsys.readouterr().err


def test_percentiles_are_accurate_to_a_percent() -> None:
    latencies = Latencies()
    for number in range(1, 1001):
        latencies.add(number / 1000)

    assert latencies.percentile_s(0.5) == pytest.approx(0.5, rel=0.01)
    assert latencies.percentile_s(0.99) == pytest.approx(0.99, rel=0.01)
    assert latencies.longest_s == 1.0
    assert Latencies().percentile_s(0.5) == 0.0


# All commands


def test_an_internal_error_prints_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(_: object) -> None:
        raise LookupError("a defect")

    monkeypatch.setattr(cli.get.group_client, "open_client", broken)

    assert main(["get", "0"]) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "LookupError: a defect" in err


def test_the_trace_variable_shows_the_traceback_of_an_internal_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(_: object) -> None:
        raise LookupError("a defect")

    monkeypatch.setattr(cli.get.group_client, "open_client", broken)
    monkeypatch.setenv("DLEDGER_CLIENT_TRACE", "1")

    with pytest.raises(LookupError):
        main(["get", "0"])


def test_a_bench_that_the_group_refuses_says_why(
    group_in_thread: Group, capsys: pytest.CaptureFixture[str]
) -> None:
    for member in group_in_thread.members.values():
        member.script.extend([DLedgerResponseCode.DISK_FULL] * 1000)

    arguments = ["bench", "--seconds=0.1", "--warm-up=0.1", "--in-flight=1", "--deadline=0.6"]
    assert main(arguments) == 4

    printed = capsys.readouterr().err
    assert "not every append was acknowledged: n0 at" in printed
    assert "415 DISK_FULL, the volume of the leader, or those of a majority, are full" in printed
    assert "use more --seconds" not in printed
