"""Cuts of links between the members of a benchmark's group."""

from pathlib import Path

import pytest

from tools.groups import namespaces
from tools.groups.namespaces import CuttableGroup


def test_a_cut_ends_although_its_block_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules: set[tuple[str, ...]] = set()

    def ip(*words: str) -> None:
        rule = tuple(word for word in words if word not in {"add", "delete"})
        (rules.add if "add" in words else rules.remove)(rule)

    monkeypatch.setattr(namespaces, "_ip", ip)
    group = CuttableGroup(tmp_path)

    def fail_while_cut() -> None:
        with group.cut(["n0"], ["n1", "n2"]):
            assert len(rules) == 2
            raise TimeoutError

    with pytest.raises(TimeoutError):
        fail_while_cut()

    assert not rules
