"""The program `dledger-audit`: its command line, exit codes and output files."""

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from dledger_audit.main import main
from dledger_formats.audit import AuditSummary, ExitCode, Verdict
from dledger_logs import damage
from dledger_logs.histories import history, small_shape
from dledger_logs.layout import manifest
from dledger_logs.serve import served
from dledger_logs.write import write_log

LONG = "x" * 300
"""A name that no file system takes."""


@pytest.mark.parametrize(
    "arguments",
    [
        ["--group", "g"],
        ["--group", "g", "--member", "n0"],
        ["--group", "g", "--member", "n0=nowhere"],
        ["--group", "g", "--member", "n0=http://h:1", "--member", "n0=http://h:2"],
        ["--group", "g", "--member", "n0=http://h:1", "--level", "half"],
    ],
)
def test_a_wrong_command_line_exits_with_the_usage_code(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)

    assert stopped.value.code == ExitCode.USAGE
    stderr = capsys.readouterr().err
    assert stderr.startswith("dledger-audit: ")
    assert stderr.endswith("; see dledger-audit --help\n")
    assert stderr.count("\n") == 1


def test_a_group_without_any_answer_is_incomplete_and_does_not_start_spark(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = write_log(tmp_path / "log", history(3), small_shape())
    with served(log.root, manifest(log, "n0"), lambda _: 403) as url:
        summary_file = tmp_path / "termination-log"
        code = main(["--group", "g", "--member", f"n0={url}", "--summary-file", str(summary_file)])

    assert code == ExitCode.INCOMPLETE
    assert AuditSummary.from_json(summary_file.read_bytes()).verdict is Verdict.INCOMPLETE
    assert "member_unreachable  n0" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("--summary-file", "nowhere/summary", "the folder nowhere does not exist"),
        ("--html", "nowhere/page.html", "the folder nowhere does not exist"),
        ("--html", ".", "'.' is a folder"),
        ("--history", "/dev/null", "/dev/null is no folder"),
        ("--history", "/dev/null/orders", "/dev/null is no folder"),
        ("--summary-file", f"{LONG}/summary", "File name too long"),
        ("--html", LONG, "File name too long"),
        ("--history", f"{LONG}/history", "File name too long"),
        ("--master", "loca", "'loca' is no Spark master: use local[N]"),
        ("--executors", "two", "'two' is not a whole number"),
        ("--rea", "5", "unrecognized arguments: --rea"),
        ("--executors", "9" * 5000, "'99"),
        ("--summary-file", "", "'' is no file"),
        ("--group", "", "'' is no group"),
        ("--member", "n1=http://h:abc", "'http://h:abc' is not of the form http://HOST[:PORT]"),
        ("--member", "n1=http://h:99999", "'http://h:99999' is not of the form http://HOST[:PORT]"),
        ("--member", "n1=http://[::1", "'http://[::1' is not of the form http://HOST[:PORT]"),
    ],
)
def test_a_wrong_option_is_told_before_anything_is_read(
    option: str, value: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--group", "g", "--member", "n0=http://127.0.0.1:1", option, value])

    stderr = capsys.readouterr().err
    assert stopped.value.code == ExitCode.USAGE
    assert told in stderr
    assert len(stderr) < 600


def test_a_member_without_a_name_is_told_without_words_for_python(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["--group", "g", "--member", ""])

    assert "no members are given; each is ID=http://HOST:PORT" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--summary-file", "--html"])
def test_a_folder_that_may_not_be_searched_ends_no_command_with_a_traceback(
    option: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Root may search every folder, so the system's answer is a copy of the real one."""
    stat = os.stat

    def refuse(path: Any, *arguments: Any, **options: Any) -> os.stat_result:
        if str(path).startswith(str(tmp_path / "secret")):
            raise PermissionError(13, "Permission denied", str(path))
        return stat(path, *arguments, **options)

    monkeypatch.setattr(os, "stat", refuse)
    given = ["--group", "g", "--member", "n0=http://127.0.0.1:1"]

    with pytest.raises(SystemExit) as stopped:
        main([*given, option, str(tmp_path / "secret" / "orders")])

    assert stopped.value.code == ExitCode.USAGE


def test_a_wrong_command_is_told_with_those_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["compct", "--group", "g"])

    stderr = capsys.readouterr().err
    assert "'compct' is no command: there are compact and verify-compaction" in stderr


@pytest.mark.spark
def test_a_damaged_member_sets_the_exit_code_and_the_summary(tmp_path: Path) -> None:
    """The audit runs in a separate process, which starts and stops Spark as a pod does."""
    members = []
    with ExitStack() as stack:
        for member in ("n0", "n1", "n2"):
            log = write_log(tmp_path / member, history(50), small_shape(1 << 16))
            if member == "n2":
                damage.flip_body(log, 33)
            url = stack.enter_context(served(log.root, manifest(log, member)))
            members += ["--member", f"{member}={url}"]
        summary_file = tmp_path / "termination-log"
        ended = subprocess.run(
            [
                sys.executable, "-m", "dledger_audit", "--group", "g", *members, "--level", "full",
                "--summary-file", str(summary_file), "--master", "local[1]", "--output", "json",
                "--html", str(tmp_path / "page.html"),
            ],
            capture_output=True, text=True, check=False, cwd=tmp_path,
        )  # fmt: skip

    assert ended.returncode == ExitCode.DAMAGED, ended.stderr
    summary = AuditSummary.from_json(summary_file.read_bytes())
    assert (summary.verdict, summary.findings) == (Verdict.DAMAGED, 1)
    found = summary.first_findings[0]
    assert (found.check, found.member, found.first_index) == ("bad_body_crc", "n2", 33)
    assert json.loads(ended.stdout)["verdict"] == "Damaged"
    assert "bad_body_crc" in (tmp_path / "page.html").read_text()
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"n0", "n1", "n2", "termination-log", "page.html"}


def test_the_page_follows_the_report_so_that_both_are_in_the_log_of_a_job(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = write_log(tmp_path / "log", history(3), small_shape())
    with served(log.root, manifest(log, "n0"), lambda _: 403) as url:
        main(["--group", "g", "--member", f"n0={url}", "--html", "-"])

    report, _, page = capsys.readouterr().out.partition("<!DOCTYPE html>")
    assert "member_unreachable  n0" in report
    assert page.endswith("</html>\n")
    assert "member_unreachable" in page


def test_a_job_with_a_verdict_succeeds_whatever_the_verdict_is(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log", history(3), small_shape())
    with served(log.root, manifest(log, "n0"), lambda _: 403) as url:
        summary = tmp_path / "summary"
        refused = ["--group", "g", "--member", f"n0={url}", "--summary-file", str(summary)]

        assert main(refused) == ExitCode.INCOMPLETE
        assert main([*refused, "--verdict-exits-0"]) == 0
    assert AuditSummary.from_json(summary.read_bytes()).verdict is Verdict.INCOMPLETE


def test_a_token_file_that_is_a_named_pipe_is_refused_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "token")

    with pytest.raises(SystemExit) as ended:
        main(["--group=g", "--member=n0=http://h:1", f"--token-file={tmp_path}/token"])

    assert ended.value.code == 2
    assert "token: it is a named pipe, and a regular file is needed; see" in capsys.readouterr().err


def test_an_option_takes_no_other_number_than_digits(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--group=g", "--member=n0=http://h:1", "--opening-within=1_000"])

    assert "'1_000' is not a whole number" in capsys.readouterr().err
