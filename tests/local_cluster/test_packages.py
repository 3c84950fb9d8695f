"""Which Debian packages are missing, and what is said about it."""

import importlib.util
import os

import pytest

from tools import setup
from tools.local_cluster import packages


def test_a_python_that_cannot_make_environments_is_told_by_its_files() -> None:
    can = importlib.util.find_spec("ensurepip") is not None
    assert (packages.missing(packages.FOR_ENVIRONMENTS) == []) is can


def test_who_may_not_install_packages_is_told_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert not setup.install_packages(["one", "two"])
    said = capsys.readouterr()
    assert said.out == ""
    assert "apt-get install --no-install-recommends one two" in said.err
