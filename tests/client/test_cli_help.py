"""The help of a program and of its commands says the default and the unit of every option."""

import argparse
from collections.abc import Iterator

import pytest

from dledger_audit import arguments as audit_arguments
from dledger_client import cli
from dledger_client.cli import main
from dledger_node.store_command import command as store_command

UNITS = {"SECONDS": ("second", "timeout"), "S": ("second",)}


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yield a parser and those of its commands."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in dict.fromkeys(action.choices.values()):
                yield from parsers(child)


def options(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.Action]]:
    """Yield each option of a parser and of its commands, with its command line."""
    for one in parsers(parser):
        for action in one._actions:
            is_standard = action.dest in ("help", "version")
            if action.option_strings and not action.required and not is_standard:
                yield f"{one.prog} {action.option_strings[-1]}", action


def programs() -> list[argparse.ArgumentParser]:
    """Make the parsers, which take the terminal's width when they are made."""
    return [
        cli.parser(),
        store_command.parser(),
        audit_arguments.parser(),
        audit_arguments.compact_parser(),
        audit_arguments.verify_parser(),
    ]


PROGRAMS = programs()
OPTIONS = dict(option for program in PROGRAMS for option in options(program))
COMMANDS = [one.prog for program in PROGRAMS for one in parsers(program)]
COMMANDS_OF_DLEDGER = [one.prog for one in parsers(cli.parser())][1:]


@pytest.mark.parametrize("option", OPTIONS)
def test_the_help_of_an_option_says_its_default(option: str) -> None:
    assert "default" in (OPTIONS[option].help or "")


@pytest.mark.parametrize("option", OPTIONS)
def test_the_help_of_an_option_says_its_unit(option: str) -> None:
    action = OPTIONS[option]
    words = UNITS.get(str(action.metavar), ("",))

    assert any(word in f"{action.help} {action.metavar}".lower() for word in words)


def help_of(command: str, columns: int, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the help of a command on a terminal with so many columns."""
    monkeypatch.setenv("COLUMNS", f"{columns}")
    return {one.prog: one for program in programs() for one in parsers(program)}[
        command
    ].format_help()


@pytest.mark.parametrize("columns", [40, 80])
@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_fits_a_terminal(
    command: str, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = help_of(command, columns, monkeypatch).splitlines()

    assert [line for line in lines if len(line) > columns] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_divides_no_word(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow, wide = (help_of(command, columns, monkeypatch) for columns in (40, 300))
    words = [word for word in narrow.split() if word != "\\"]

    assert set(words) == set(wide.split())
    assert words[words.index("options:") :] == wide.split()[wide.split().index("options:") :]


@pytest.mark.parametrize("command", COMMANDS_OF_DLEDGER)
def test_every_command_has_help_with_examples_and_exit_codes(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main([*command.split()[1:], "--help"])

    out = capsys.readouterr().out
    assert caught.value.code == 0
    assert "examples:\n" in out
    assert "Exit codes: 0 " in out


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


@pytest.mark.parametrize(
    ("command", "has", "lacks"),
    [("get", "1 the register was never set", "3 "), ("set", "3 it is unknown whether", "1 ")],
)
def test_the_commands_of_a_register_tell_their_own_exit_codes(
    command: str, has: str, lacks: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["register", command, "--help"])

    codes = capsys.readouterr().out.partition("Exit codes: ")[2].replace("\n", " ")
    assert has in codes
    assert f"; {lacks}" not in codes


@pytest.mark.parametrize(
    ("option", "wrong", "allowed"),
    [
        ("--seconds", "0", "a number of seconds, above 0 and at most 3600"),
        ("--warm-up", "1e9", "a number of seconds, above 0 and at most 3600"),
        ("--body-bytes", "-1", "a whole number, 0 to 4194256"),
    ],
)
def test_a_benchmark_tells_the_bounds_of_its_own_options(
    option: str, wrong: str, allowed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["bench", f"{option}={wrong}"])

    assert ended.value.code == 2
    assert f"{wrong!r} is invalid; expected {allowed}; see " in capsys.readouterr().err
