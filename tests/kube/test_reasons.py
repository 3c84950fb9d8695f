"""Reasons that several modules say or compare are written once."""

import ast
from collections.abc import Iterator
from pathlib import Path

from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_operator import reasons

PACKAGE = Path(reasons.__file__).parent
OTHER_MEANINGS = {"TYPE", "BUDGET_CAUSE"}
"""Constants with such a text that is no reason: a condition's type, a cause of the API server's."""


def texts() -> set[str]:
    return {text for name, text in vars(reasons).items() if name.isupper()}


def written_in(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of every string of a module that is meant as a reason."""
    tree = ast.parse(path.read_text())
    others = {
        id(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name) and target.id in OTHER_MEANINGS
    }
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text), lineno=line) if id(node) not in others:
                yield line, text


def test_a_shared_reason_is_written_in_its_module_alone() -> None:
    shared = texts()
    written = [
        f"{path.relative_to(PACKAGE)}:{line} {text}"
        for path in PACKAGE.rglob("*.py")
        if path.name != "reasons.py"
        for line, text in written_in(path)
        if text in shared
    ]

    assert not written


def test_a_refusal_of_the_leader_gives_the_reason_its_code() -> None:
    assert reasons.of_refusal(DLedgerResponseCode.MEMBERSHIP_CHANGING) == "MembershipChanging"
    assert reasons.of_refusal(DLedgerResponseCode.DISK_FULL) == "DiskFull"
