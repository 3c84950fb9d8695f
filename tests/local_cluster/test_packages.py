"""Detection of missing Debian packages, and the message about them."""

import importlib.util
import os

import pytest

from tools import setup
from tools.local_cluster import packages


def test_a_python_without_ensurepip_lacks_the_venv_package() -> None:
    can = importlib.util.find_spec("ensurepip") is not None
    assert (packages.missing(packages.FOR_ENVIRONMENTS) == []) is can


def test_a_user_who_cannot_install_packages_gets_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert not setup.install_packages(["one", "two"])
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "apt-get install --no-install-recommends one two" in captured.err
