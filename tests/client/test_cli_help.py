"""The help of `dledger` says the default and the unit of every option."""

import argparse
from collections.abc import Iterator

import pytest

from dledger_client import cli
from dledger_client.cli import main

UNITS = {"SECONDS": ("second", "timeout"), "S": ("second",)}


def options(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.Action]]:
    """Yield each option of a parser and of its commands, with its command line."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in dict.fromkeys(action.choices.values()):
                yield from options(child)
        elif action.option_strings and action.dest not in ("help", "version"):
            yield f"{parser.prog} {action.option_strings[-1]}", action


OPTIONS = dict(options(cli.parser()))


@pytest.mark.parametrize("option", OPTIONS)
def test_the_help_of_an_option_says_its_default(option: str) -> None:
    assert "default" in (OPTIONS[option].help or "")


@pytest.mark.parametrize("option", OPTIONS)
def test_the_help_of_an_option_says_its_unit(option: str) -> None:
    action = OPTIONS[option]
    words = UNITS.get(str(action.metavar), ("",))

    assert any(word in f"{action.help} {action.metavar}".lower() for word in words)


def test_dledger_alone_prints_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([])

    captured = capsys.readouterr()
    assert (caught.value.code, captured.err) == (0, "")
    assert "print entries as they are appended" in captured.out


def test_dledger_prints_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--version"])

    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith("dledger ")
