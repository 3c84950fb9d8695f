"""`dledger-audit` with outputs that are closed, full, or no longer read."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger_compaction.folders import folders, places
from dledger_compaction.runs import compacted, copies_of
from dledger_formats.audit import AuditSummary, ExitCode, Verdict
from dledger_logs.histories import history, small_shape
from dledger_logs.layout import manifest
from dledger_logs.serve import served
from dledger_logs.write import write_log

PROGRAM = f"{sys.executable} -m dledger_audit"
FULL = "No space left on device"


def run_in_shell(arguments: str, *, nobody_reads: bool = False) -> tuple[int, str]:
    """Run `dledger-audit` in bash; return its exit code and what it says on standard error."""
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    reader = " | true" if nobody_reads else ""
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {PROGRAM} {arguments}{reader}"],
        capture_output=True, text=True, timeout=60, env=kept, check=False,
    )  # fmt: skip
    return done.returncode, done.stderr


@pytest.fixture
def refused(tmp_path: Path) -> Iterator[str]:
    """The arguments of an audit that cannot read its only member, which needs no Spark."""
    log = write_log(tmp_path / "log", history(3), small_shape())
    with served(log.root, manifest(log, "n0"), lambda _: 403) as url:
        yield f"--group g --member n0={url}"


@pytest.mark.parametrize("output", ["text", "json"])
def test_a_report_to_a_full_device_fails_in_one_line_and_the_rest_is_written(
    refused: str, output: str, tmp_path: Path
) -> None:
    page, summary = tmp_path / "page.html", tmp_path / "summary"
    code, said = run_in_shell(
        f"{refused} --output {output} --html {page} --summary-file {summary} >/dev/full"
    )

    assert (code, said) == (
        ExitCode.FAILED,
        f"dledger-audit: cannot write to standard output: {FULL}\n",
    )
    assert page.read_text().endswith("</html>\n")
    assert AuditSummary.from_json(summary.read_bytes()).verdict is Verdict.INCOMPLETE


@pytest.mark.parametrize("option", ["--summary-file", "--html"])
@pytest.mark.parametrize("job", ["", "--verdict-exits-0"])
def test_an_output_file_on_a_full_device_fails_in_one_line_behind_the_report(
    refused: str, option: str, job: str, tmp_path: Path
) -> None:
    report = tmp_path / "report"
    code, output = run_in_shell(f"{refused} {option} /dev/full {job} >{report}")

    assert (code, output) == (ExitCode.FAILED, f"dledger-audit: cannot write /dev/full: {FULL}\n")
    assert "member_unreachable  n0" in report.read_text()


@pytest.mark.parametrize("option", ["--summary-file", "--html"])
def test_a_named_pipe_that_nobody_reads_fails_in_one_line_and_the_report_is_written(
    refused: str, option: str, tmp_path: Path
) -> None:
    pipe, report = tmp_path / "pipe", tmp_path / "report"
    os.mkfifo(pipe)

    code, said = run_in_shell(f"{refused} {option} {pipe} >{report}")

    assert (code, said) == (
        ExitCode.FAILED,
        f"dledger-audit: cannot write {pipe}: no process has opened this named pipe for reading\n",
    )
    assert "member_unreachable  n0" in report.read_text()


def test_the_reader_of_a_named_pipe_gets_the_page(refused: str, tmp_path: Path) -> None:
    page = tmp_path / "page.html"

    code, said = run_in_shell(
        f"{refused} --html >(cat >{page}) >/dev/null; code=$?; wait $!; exit $code"
    )

    assert (code, said) == (ExitCode.INCOMPLETE, "")
    assert page.read_text().endswith("</html>\n")


@pytest.mark.parametrize("options", ["", "--html - --output json"])
def test_an_audit_whose_report_nobody_reads_tells_its_verdict_in_silence(
    refused: str, options: str
) -> None:
    assert run_in_shell(f"{refused} {options}", nobody_reads=True) == (ExitCode.INCOMPLETE, "")


def test_an_audit_without_a_standard_output_tells_its_verdict(refused: str) -> None:
    assert run_in_shell(f"{refused} >&-") == (ExitCode.INCOMPLETE, "")


@pytest.mark.parametrize(
    ("to", "code", "said"),
    [
        (
            ">/dev/full",
            ExitCode.FAILED,
            f"dledger-audit: cannot write to standard output: {FULL}\n",
        ),
        (">&-", ExitCode.DAMAGED, ""),
        ("| true", ExitCode.DAMAGED, ""),
    ],
)
def test_a_proof_whose_output_is_lost_ends_with_a_code_of_its_help(
    to: str, code: ExitCode, said: str, tmp_path: Path
) -> None:
    logs = folders(tmp_path)
    archive = compacted(copies_of(logs), tmp_path / "a")
    assert archive is not None
    next((archive.log / "data").iterdir()).write_bytes(b"")

    proof = f"verify-compaction {','.join(places(logs))} {tmp_path / 'a'} {to}"

    assert run_in_shell(proof) == (code, said)


@pytest.mark.parametrize("command", ["", "compact", "verify-compaction"])
def test_help_to_a_full_device_fails_in_one_line(command: str) -> None:
    assert run_in_shell(f"{command} --help >/dev/full") == (
        ExitCode.FAILED,
        f"dledger-audit: cannot write to standard output: {FULL}\n",
    )
