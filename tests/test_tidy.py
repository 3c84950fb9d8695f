"""Rules on the form of the code that no linter has.

import-linter checks the directions of imports; these tests check the rest.
"""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE_FOLDERS = ("formats", "node_image", "client", "operator", "audit")
PYTHON_FOLDERS = (*SOURCE_FOLDERS, "tools", "bench", "tests")
# Folders whose prose is checked. Add a folder here once its prose is plain English.
PLAIN_FOLDERS = (
    "audit", "bench", "client", "formats", "node_image", "operator", "tools", "tests/broker",
    "tests/formats", "tests/fuzz", "tests/lib/dledger_broker_log", "tests/lib/dledger_fuzz",
    "tests/lib/dledger_sim", "tests/lib/dledger_wire", "tests/remoting", "tests/sim",
    "tests/state_machine",
)  # fmt: skip
# The packages that programs outside of the project import: they name what is public.
PACKAGES_THAT_EXPORT = ("audit/pyspark_dledger/__init__.py", "client/dledger_client/__init__.py")
FUNCTION_LINES_MAX = 70
MODULE_LINES_MAX = 350
TEST_MODULE_LINES_MAX = 400
RAFT_IMPORTS = {
    "bisect", "collections", "collections.abc", "dataclasses", "enum", "functools", "itertools",
    "typing",
}  # fmt: skip
TEXT_SUFFIXES = {
    ".py", ".md", ".toml", ".yaml", ".yml", ".json", ".sh", ".txt", ".tpl", ".mod", ".go", "",
}  # fmt: skip
# The first words of a docstring without a subject and a verb: readers have to guess both.
HEADLESS = re.compile(r"(?:Who|Whoever|Whom|Of|As|So|For so)\b")
# The first words of a docstring that only a reader of the line above understands.
POINTING = re.compile(r"(?:The same|Those|All of them|Takes them|(?:Return|Read) the same)\b")
# Old-fashioned or misleading words, and what to write instead.
WORN_WORDS = {
    re.compile(r"\banew\b", re.IGNORECASE): "again, or from scratch",
    re.compile(r"\bfor ever\b", re.IGNORECASE): "forever",
    re.compile(r"\bno more\b(?! than)", re.IGNORECASE): "no longer",
    re.compile(r"\bin vain\b", re.IGNORECASE): "without success",
}
LOG_METHODS = {"debug", "info", "warning", "error", "exception", "critical", "log"}
# Split so that this file does not match itself.
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


def docstrings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and text of every docstring, including those of fields and constants."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            match node.value:
                case ast.Constant(value=str(text), lineno=line):
                    yield line, text


def messages(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and text of every string in a raise statement or in a call of a logger."""
    for node in ast.walk(tree):
        match node:
            case ast.Raise():
                pass
            case ast.Call(func=ast.Attribute(attr=method)) if method in LOG_METHODS:
                pass
            case _:
                continue
        for part in ast.walk(node):
            match part:
                case ast.Constant(value=str(text), lineno=line):
                    yield line, text


def unplain_prose(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and reason for each violation of the rules of plain English."""
    tree = ast.parse(source)
    for line, text in docstrings(tree):
        if found := HEADLESS.match(text.strip()):
            yield line, f"begins with {found[0]!r}: write a sentence or name the thing"
    for line, text in [*docstrings(tree), *messages(tree)]:
        for words, better in WORN_WORDS.items():
            if found := words.search(" ".join(text.split())):
                yield line, f"{found[0]!r}: write {better}"


def is_export(node: ast.stmt) -> bool:
    """Whether a statement imports names, or lists them in `__all__`.

    The imports may be for type checkers alone, if the package loads the names at first use.
    """
    match node:
        case ast.ImportFrom() | ast.Assign(targets=[ast.Name(id="__all__" | "TYPE_CHECKING")]):
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return all(map(is_export, (*node.body, *node.orelse)))
    return False


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


def test_no_module_is_too_long() -> None:
    lengths = {
        name_of(path): len(path.read_text().splitlines()) for path in python_files(*PYTHON_FOLDERS)
    }

    def lines_max(name: str) -> int:
        return TEST_MODULE_LINES_MAX if "/test_" in name else MODULE_LINES_MAX

    assert not {name: length for name, length in lengths.items() if length > lines_max(name)}


def test_every_init_file_of_a_package_holds_only_a_docstring() -> None:
    wrong = []
    for path in python_files(*SOURCE_FOLDERS):
        if path.name == "__init__.py":
            tree = ast.parse(path.read_text())
            rest = tree.body[1:]
            if name_of(path) in PACKAGES_THAT_EXPORT:
                rest = [node for node in rest if not is_export(node)]
            if ast.get_docstring(tree) is None or rest:
                wrong.append(name_of(path))

    assert not wrong, "an __init__.py holds a docstring and nothing else"


def listed_modules(docstring: str) -> set[str]:
    """Return the names before two spaces at the beginnings of lines, and lists with commas."""
    text = docstring.split("\nGlossary\n")[0]
    pattern = r"^ *((?:\w+, )+\w+|\w+(?=  ))(?:  .*)?$"
    return {name for found in re.findall(pattern, text, re.MULTILINE) for name in found.split(", ")}


def modules_of(package: Path) -> set[str]:
    return {
        path.stem
        for path in package.iterdir()
        if (path.suffix == ".py" and not path.stem.startswith("__"))
        or (path / "__init__.py").exists()
    }


def test_a_package_that_lists_its_modules_lists_all_of_them() -> None:
    wrong = []
    for path in python_files(*SOURCE_FOLDERS, "tests/lib"):
        if path.name != "__init__.py":
            continue
        docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
        listed, existing = listed_modules(docstring), modules_of(path.parent)
        if len(listed & existing) < 2:
            continue
        lacking = set() if "Every other module" in docstring else existing - listed
        wrong += [f"{name_of(path)}: {name}" for name in sorted(lacking | (listed - existing))]
    assert wrong == []


def test_every_module_has_a_docstring() -> None:
    wrong = [
        name_of(path)
        for path in python_files(*SOURCE_FOLDERS, "tools", "bench")
        if ast.get_docstring(ast.parse(path.read_text())) is None
    ]

    assert not wrong


def test_the_raft_core_only_imports_from_its_allow_list() -> None:
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


def test_the_page_on_the_architecture_shows_the_layers_that_are_enforced() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    lines = [
        "".join(f"{container}: " for container in contract.get("containers", ()))
        + " ─▶ ".join(contract["layers"])
        for contract in contracts["contracts"]
        if contract["type"] == "layers"
    ]
    page = (ROOT / "docs" / "architecture.md").read_text()
    _, _, section = page.partition("## Which way imports go\n")

    assert section.split("```")[1].splitlines()[1:] == lines


@pytest.mark.parametrize("folder", SOURCE_FOLDERS)
def test_a_source_folder_holds_only_packages(folder: str) -> None:
    loose = [path.name for path in (ROOT / folder).glob("*.py")]

    assert not loose, "in an editable install, these modules would have global names"


@pytest.mark.parametrize("folder", [".", "operator", "tests"])
def test_import_operator_finds_the_standard_library_in_every_folder(folder: str) -> None:
    started = subprocess.run(
        [sys.executable, "-c", "import collections, operator; operator.add(1, 2)"],
        cwd=ROOT / folder, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert started.returncode == 0, started.stderr


def test_folders_of_tests_are_not_packages() -> None:
    packages = [
        name_of(path)
        for path in (ROOT / "tests").rglob("__init__.py")
        if (ROOT / "tests" / "lib") not in path.parents
    ]

    assert not packages, (
        "importlib mode needs no packages, and tests/operator would hide the standard library's"
    )


def test_no_file_names_a_path_of_one_machine_or_a_registry() -> None:
    found = []
    for path in tracked_files():
        if path.suffix not in TEXT_SUFFIXES:
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if PATHS_OF_ONE_MACHINE.search(line) or REGISTRY_HOSTS.search(line):
                found.append(f"{name_of(path)}:{number}: {line.strip()[:80]}")

    assert not found


@pytest.mark.parametrize("folder", PLAIN_FOLDERS)
def test_docstrings_and_errors_are_plain_english(folder: str) -> None:
    found = [
        f"{name_of(path)}:{line}: {reason}"
        for path in python_files(folder)
        for line, reason in unplain_prose(path.read_text())
    ]

    assert not found


@pytest.mark.parametrize("folder", [one for one in PLAIN_FOLDERS if one != "operator"])
def test_docstrings_name_what_they_are_about(folder: str) -> None:
    found = [
        f"{name_of(path)}:{line}: begins with {words[0]!r}"
        for path in python_files(folder)
        for line, text in docstrings(ast.parse(path.read_text()))
        if (words := POINTING.match(text.strip()))
    ]

    assert not found, "help() and a jump show a docstring without the line above"


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ('"""Of what comes in."""', [1]),
        ('"""Return a name.\n\nThe name stays for\never."""', [1]),
        ('LIMIT = 1\n"""So many at most."""', [2]),
        ('raise ValueError(f"{1} is no more")', [1]),
        ('def start() -> None:\n    _LOG.info("starts %s anew", 1)', [2]),
        ('"""Offer at most 1; no more than that."""', []),
        ('text = "made anew"', []),
    ],
)
def test_the_rule_on_plain_english_finds_what_it_should(source: str, lines: list[int]) -> None:
    assert [line for line, _ in unplain_prose(source)] == lines


def test_the_code_has_no_notes_on_unfinished_work() -> None:
    mark = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b|NotImplemented" + r"Error")
    found = [
        f"{name_of(path)}:{number}"
        for path in python_files(*PYTHON_FOLDERS)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if mark.search(line)
    ]

    assert not found


def test_no_file_is_larger_than_512_kib() -> None:
    large = {
        name_of(path): size
        for path in tracked_files()
        if (size := path.stat().st_size) > 512 * 1024
    }

    assert not large
