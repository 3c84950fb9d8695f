"""The form of the code: rules that no linter has, each with its reason.

Import directions are import-linter's; this file holds what it cannot see.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE_FOLDERS = ("formats", "node_image", "client", "operator", "audit")
PYTHON_FOLDERS = (*SOURCE_FOLDERS, "tools", "bench", "tests")
FUNCTION_LINES_MAX = 70
MODULE_LINES_MAX = 400
RAFT_IMPORTS = {
    "bisect", "collections", "collections.abc", "dataclasses", "enum", "functools", "itertools",
    "typing",
}  # fmt: skip
TEXT_SUFFIXES = {
    ".py", ".md", ".toml", ".yaml", ".yml", ".json", ".sh", ".txt", ".tpl", ".mod", ".go", "",
}  # fmt: skip
# Split so that this file does not find itself.
PATHS_OF_ONE_MACHINE = re.compile(r"/(?:ro" + r"ot|wo" + r"rk|home/[a-z]+|opt/whe" + r"els)/")
REGISTRY_HOSTS = re.compile(
    r"py"
    r"pi\.org|pythonho"
    r"sted|proxy\.go"
    r"lang|deb\.deb"
    r"ian\.org|registry\.np"
    r"mjs"
)


def python_files(*folders: str) -> list[Path]:
    return sorted(
        path
        for folder in folders
        for path in (ROOT / folder).rglob("*.py")
        if "__pycache__" not in path.parts
    )


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def tracked_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def test_every_function_fits_a_screen() -> None:
    too_long = [
        f"{name_of(path)}:{node.lineno} {node.name}: {node.end_lineno - node.lineno + 1} lines"
        for path in python_files(*PYTHON_FOLDERS)
        for node in functions(ast.parse(path.read_text()))
        if node.end_lineno is not None and node.end_lineno - node.lineno + 1 > FUNCTION_LINES_MAX
    ]

    assert not too_long


def test_no_module_grows_past_what_one_can_hold_in_mind() -> None:
    lengths = {
        name_of(path): len(path.read_text().splitlines()) for path in python_files(*PYTHON_FOLDERS)
    }

    assert not {name: length for name, length in lengths.items() if length > MODULE_LINES_MAX}


def test_every_package_says_what_belongs_in_it_and_does_nothing_on_import() -> None:
    wrong = []
    for path in python_files(*SOURCE_FOLDERS):
        if path.name == "__init__.py":
            tree = ast.parse(path.read_text())
            if ast.get_docstring(tree) is None or len(tree.body) != 1:
                wrong.append(name_of(path))

    assert not wrong, "an __init__.py holds a docstring and nothing else"


def test_every_module_begins_with_what_it_is_for() -> None:
    wrong = [
        name_of(path)
        for path in python_files(*SOURCE_FOLDERS, "tools", "bench")
        if ast.get_docstring(ast.parse(path.read_text())) is None
    ]

    assert not wrong


def test_the_raft_core_imports_from_its_allow_list_alone() -> None:
    wrong = []
    for path in python_files("node_image/dledger_node/raft"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            wrong += [
                f"{name_of(path)}: {name}"
                for name in names
                if name not in RAFT_IMPORTS
                and not name.startswith("dledger_node.raft")
                and name != "dledger_node.errors"
            ]

    assert not wrong


@pytest.mark.parametrize("folder", SOURCE_FOLDERS)
def test_a_source_folder_holds_packages_and_no_loose_modules(folder: str) -> None:
    loose = [path.name for path in (ROOT / folder).glob("*.py")]

    assert not loose, "in an editable install these would be global names"


@pytest.mark.parametrize("folder", [".", "operator", "tests"])
def test_the_standard_library_operator_wins_in_every_folder(folder: str) -> None:
    started = subprocess.run(
        [sys.executable, "-c", "import collections, operator; operator.add(1, 2)"],
        cwd=ROOT / folder, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert started.returncode == 0, started.stderr


def test_test_folders_are_no_packages() -> None:
    packages = [
        name_of(path)
        for path in (ROOT / "tests").rglob("__init__.py")
        if (ROOT / "tests" / "lib") not in path.parents
    ]

    assert not packages, "importlib mode needs none, and tests/operator would hide the library's"


def test_nothing_names_one_machine_or_a_registry() -> None:
    found = []
    for path in tracked_files():
        if path.suffix not in TEXT_SUFFIXES:
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if PATHS_OF_ONE_MACHINE.search(line) or REGISTRY_HOSTS.search(line):
                found.append(f"{name_of(path)}:{number}: {line.strip()[:80]}")

    assert not found


def test_no_work_is_left_as_a_note_in_the_code() -> None:
    mark = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b|NotImplemented" + r"Error")
    found = [
        f"{name_of(path)}:{number}"
        for path in python_files(*PYTHON_FOLDERS)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if mark.search(line)
    ]

    assert not found


def test_no_file_is_too_large_for_a_repository() -> None:
    large = {
        name_of(path): size
        for path in tracked_files()
        if (size := path.stat().st_size) > 512 * 1024
    }

    assert not large
