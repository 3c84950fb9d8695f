"""The programs' `--help` and `--version`, also without the libraries that they need to run."""

import subprocess
import sys

import pytest

PROGRAMS = {
    "dledger": "dledger_client.program",
    "dledger-node": "dledger_node.main",
    "dledger-operator": "dledger_operator.program",
    "dledger-audit": "dledger_audit.program",
}
MISSING = {
    "dledger": ["argcomplete"],
    "dledger-operator": ["kopf", "lightkube", "aiohttp", "cronsim", "prometheus_client"],
    "dledger-audit": ["pyspark"],
}


def run(
    program: str, *arguments: str, without: list[str] | None = None
) -> subprocess.CompletedProcess[str]:
    hidden = "".join(f"sys.modules[{name!r}] = None; " for name in without or [])
    code = (
        f"import sys; {hidden}sys.argv[0] = {program!r}; "
        f"from {PROGRAMS[program]} import main; sys.exit(main())"
    )
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("option", ["--help", "--version"])
def test_a_program_explains_itself_without_its_libraries(program: str, option: str) -> None:
    needs_them = program == "dledger"  # its help is that of all its commands
    done = run(program, option, without=[] if needs_them else MISSING.get(program))

    assert (done.returncode, done.stderr) == (0, "")
    assert program in done.stdout


@pytest.mark.parametrize(
    ("program", "arguments", "code"),
    [
        ("dledger", ["--help"], 1),
        ("dledger-operator", ["--node-image=a", "--audit-image=b"], 1),
        ("dledger-audit", ["--group=g", "--member=n0=http://h:1"], 70),
    ],
)
def test_a_program_names_the_library_that_is_missing(
    program: str, arguments: list[str], code: int
) -> None:
    done = run(program, *arguments, without=MISSING[program])

    assert (done.returncode, done.stdout) == (code, "")
    assert "is not installed; install this program with: pip install" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_node_does_not_start_with_a_misspelled_option() -> None:
    done = run("dledger-node", "--halp")

    assert done.returncode == 2
    assert "unrecognized arguments: --halp" in done.stderr
