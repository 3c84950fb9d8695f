"""Cuts of links between the members of a benchmark's group."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tools.groups import namespaces
from tools.groups.namespaces import CuttableGroup

Fails = Callable[[tuple[str, ...]], bool]


class Rules:
    """The rules that `ip` has added and not deleted."""

    def __init__(self) -> None:
        self.left: set[tuple[str, ...]] = set()
        self.fails: Fails = lambda words: False
        """Whether a command fails."""

    def __call__(self, *words: str) -> None:
        """Run a command of `ip`."""
        if self.fails(words):
            raise OSError("ip has failed")
        rule = tuple(word for word in words if word not in {"add", "delete"})
        (self.left.add if "add" in words else self.left.remove)(rule)


@pytest.fixture
def rules(monkeypatch: pytest.MonkeyPatch) -> Rules:
    made = Rules()
    monkeypatch.setattr(namespaces, "_ip", made)
    return made


def test_a_cut_ends_although_its_block_raises(tmp_path: Path, rules: Rules) -> None:
    group = CuttableGroup(tmp_path)

    def fail_while_cut() -> None:
        with group.cut(["n0"], ["n1", "n2"]):
            assert len(rules.left) == 2
            raise TimeoutError

    with pytest.raises(TimeoutError):
        fail_while_cut()

    assert not rules.left


def test_a_cut_that_cannot_be_made_whole_is_undone(tmp_path: Path, rules: Rules) -> None:
    rules.fails = lambda words: "add" in words and "n2" in words

    with (
        pytest.raises(OSError, match="ip has failed"),
        CuttableGroup(tmp_path).cut(["n0"], ["n1", "n2"]),
    ):
        pytest.fail("the block must not begin")

    assert not rules.left


@pytest.mark.parametrize("stuck", ["n1", "n2"])
def test_a_rule_that_cannot_be_deleted_does_not_keep_the_others(
    tmp_path: Path, rules: Rules, stuck: str
) -> None:
    rules.fails = lambda words: "delete" in words and stuck in words

    with (
        pytest.raises(OSError, match="ip has failed"),
        CuttableGroup(tmp_path).cut(["n0"], ["n1", "n2"]),
    ):
        assert len(rules.left) == 2

    assert [stuck in rule for rule in rules.left] == [True]
