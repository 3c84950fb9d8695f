"""The programs' `--help` and `--version`, also without the libraries that they need to run."""

import subprocess
import sys
import venv
from importlib.metadata import distribution
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAME = "dledger-operator"
PROGRAMS = {
    "dledger": "client",
    "dledger-node": "node",
    "dledger-broker": "node",
    "dledger-operator": "operator",
    "dledger-audit": "audit",
}
"""The extra with what each program needs."""
HELP_NEEDS_LIBRARIES = "dledger"  # its help is that of all its commands
STARTS = {
    "dledger": ["status"],
    "dledger-node": [],
    "dledger-broker": [],
    "dledger-operator": ["--node-image=a", "--audit-image=b"],
    "dledger-audit": ["--group=g", "--member=n0=http://h:1"],
}
"""Arguments with which each program would begin its work."""
CODES = {"dledger-audit": 70}
START = (
    "import sys; from importlib.metadata import entry_points; name = sys.argv.pop(1); "
    "sys.argv[0] = name; [one] = entry_points(group='console_scripts', name=name); "
    "sys.exit(one.load()())"
)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has this project, as `pip install .` leaves it, and no other package."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, symlinks=True)
    [packages] = folder.glob("lib/python*/site-packages")
    folders = ["formats", "node_image", "client", "operator", "audit"]
    (packages / "project.pth").write_text("".join(f"{ROOT / name}\n" for name in folders))
    found = distribution(NAME)
    information = packages / f"{NAME.replace('-', '_')}-{found.version}.dist-info"
    information.mkdir()
    for name in ("METADATA", "entry_points.txt"):
        (information / name).write_text(found.read_text(name) or "")
    return folder / "bin" / "python"


def run(program: str, *arguments: str, python: Path | str) -> subprocess.CompletedProcess[str]:
    """Run a program; only the tests' own Python may take packages from PYTHONPATH."""
    isolated = [] if python == sys.executable else ["-I"]
    return subprocess.run(
        [python, *isolated, "-c", START, program, *arguments],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("option", ["--help", "--version"])
def test_a_program_explains_itself_without_its_libraries(
    program: str, option: str, bare: Path
) -> None:
    done = run(program, option, python=sys.executable if program == HELP_NEEDS_LIBRARIES else bare)

    assert (done.returncode, done.stderr) == (0, "")
    assert program in done.stdout


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("columns", [40, 80])
def test_the_help_of_a_program_fits_a_terminal(
    program: str, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", f"{columns}")

    lines = run(program, "--help", python=sys.executable).stdout.splitlines()

    assert [line for line in lines if len(line) > columns] == []


@pytest.mark.parametrize(
    ("program", "arguments"),
    [
        *STARTS.items(),
        ("dledger", []),
        ("dledger", ["--help"]),
        ("dledger-node", ["store", "info", "nowhere"]),
        ("dledger-node", ["seed", "nowhere"]),
    ],
)
def test_a_program_names_the_library_that_is_missing(
    program: str, arguments: list[str], bare: Path
) -> None:
    done = run(program, *arguments, python=bare)

    assert (done.returncode, done.stdout) == (CODES.get(program, 1), "")
    assert done.stderr.startswith(f"{program}: the Python package ")
    assert done.stderr.endswith(
        " is not installed; install this program with: "
        f"pip install 'dledger-operator[{PROGRAMS[program]}]'\n"
    )
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "statement",
    [
        "from dledger_client import BlockingClient",
        "import dledger_client; dledger_client.DLedgerClient",
        "from dledger_client import *",
    ],
)
def test_the_client_names_the_library_that_is_missing_when_it_is_used(
    statement: str, bare: Path
) -> None:
    done = subprocess.run(
        [bare, "-I", "-c", statement], capture_output=True, text=True, timeout=60, check=False
    )

    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(
        "ModuleNotFoundError: dledger_client: the Python package "
    )
    assert done.stderr.endswith(
        "is not installed; install this package with: pip install 'dledger-operator[client]'\n"
    )
    assert "During handling" not in done.stderr


def test_a_name_that_the_client_does_not_have_is_no_missing_library(bare: Path) -> None:
    code = "import dledger_client; assert not hasattr(dledger_client, 'Klient')"
    done = subprocess.run(
        [bare, "-I", "-c", code], capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("program", ["dledger-node", "dledger-broker"])
def test_a_member_does_not_start_with_a_misspelled_option(program: str) -> None:
    done = run(program, "--halp", python=sys.executable)

    assert done.returncode == 2
    assert "unrecognized arguments: --halp" in done.stderr


@pytest.mark.parametrize(
    ("program", "arguments", "see"),
    [
        ("dledger", ["get", "0", "--frist", "1"], "dledger get"),
        ("dledger", ["member", "add", "n1", "--frist"], "dledger member add"),
        ("dledger-node", ["--frist"], "dledger-node"),
        (
            "dledger-node",
            ["store", "adopt", "f", "--peers=n0-h:1", "--y"],
            "dledger-node store adopt",
        ),
        ("dledger-node", ["seed", "archive", "--frist"], "dledger-node seed"),
        ("dledger-broker", ["--frist"], "dledger-broker"),
        ("dledger-operator", ["--node-im=a"], "dledger-operator"),
        ("dledger-audit", ["--group=g", "--member=n0=http://h:1", "--frist"], "dledger-audit"),
    ],
)
def test_an_unknown_option_is_told_in_one_line_with_the_help_of_its_command(
    program: str, arguments: list[str], see: str
) -> None:
    """An abbreviation is unknown, too: `--y` for `--yes` would change a store."""
    done = run(program, *arguments, python=sys.executable)

    unknown = next(each for each in arguments if each.startswith(("--f", "--y", "--node")))
    told = f"unrecognized arguments: {unknown}"
    assert done.returncode == 2
    assert done.stderr.startswith(f"{see}: {told}")
    assert done.stderr.endswith(f"; see {see} --help\n")
    assert done.stderr.count("\n") == 1
