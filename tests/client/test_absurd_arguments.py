"""Every argument of `dledger`, with values that make no sense.

Each is refused with exit code 2 and one line that names the argument or its value, before anything
is sent or written.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger_client import cli
from dledger_client.cli import main
from dledger_client.exports.records import Head, pack_end, pack_head
from dledger_fake_server.group import Group

VAST = "9" * 5000
NO_DIGITS = ["1_0", " 7", "+7", "\u0667"]
"""Texts that Python takes for numbers."""
NO_TIMES = [*NO_DIGITS, "0", "-1", "nan", "inf", "x", "", VAST, "1e400", "1e300"]
NO_COUNTS = [*NO_DIGITS, "0", "-1", "1.5", "x", "", VAST]
NO_INDEXES = [*NO_DIGITS, "-1", "1.5", "x", "", VAST, "9223372036854775808"]
NO_PORTS = [*NO_DIGITS, "0", "-1", "65536", "x", "", VAST]
NO_NUMBERS = [*NO_DIGITS, "2147483648", "-2147483649", "1.5", "x", "", VAST]
NO_HOSTS = ["[::1:1", "::1]:1", "a b:1", "a\nb:1", "a\0b:1"]
NO_MEMBERS = ["", "x" * 256, "\udcff"]
NO_FILES = ["", "nowhere/file", "\udcff/file"]

WRONG: dict[str, list[str]] = {
    "--servers": [
        *NO_HOSTS,
        "h",
        "h:0",
        "h:65536",
        "http://h:1",
        "h:1," * 65,
        "n-1=h:1",
        ",",
        "\udcff",
        f"h:{VAST}",
    ],
    "--group": ["x" * 256, "\udcff", "g\0"],
    "--profile": ["none", "\udcff", "x" * 5000],
    "--deadline": NO_TIMES,
    "--in-flight": [*NO_COUNTS, "2147483649"],
    "--output": ["", "xml"],
    "--read-from": ["", "nobody"],
    "--consistency": ["", "strong"],
    "--delimiter": ["\\q", "\\"],
    "--format": ["%", "%q", "\\q"],
    "--first": NO_INDEXES,
    "--last": NO_INDEXES,
    "--from": NO_INDEXES,
    "--count": NO_COUNTS,
    "--max-lag": NO_INDEXES,
    "--http": [*NO_HOSTS, "h", "h:0", "http://h:1/status", ",", f"h:{VAST}"],
    "--http-port": NO_PORTS,
    "--watch": NO_TIMES,
    "--term": NO_INDEXES,
    "--admin-token-file": ["nowhere/file", "\udcff/file", "."],
    "--seconds": [*NO_TIMES, "3601"],
    "--warm-up": [*NO_TIMES, "3601"],
    "--body-bytes": [*NO_INDEXES, "99999999"],
    "--producer": ["", "x" * 81, "\udcff"],
    "--folder": [],  # a folder that is none is a failure of the export, with exit code 1
    "--members": ["0", "2", "9", "x", "", VAST],
    "--addable": ["-1", "7", "x", "", VAST],
    "--data": ["file", "file/folder"],
    "--port": [*NO_PORTS, "65535"],
    "--broker-port": [*NO_PORTS, "65535", "40911"],
    "--state-machine": ["", "x"],
    "--seed": ["", "nowhere", "file"],
    "MEMBER": NO_MEMBERS,
    "KEY": NO_NUMBERS,
    "VALUE": NO_NUMBERS,
    "FILE": NO_FILES,
    "INDEX|FIRST..[LAST]": [*NO_INDEXES, "..", "..3", "5..3", "1..x", f"0..{VAST}", "1.. 2 3"],
    "SHELL": ["", "tcsh"],
}
"""Wrong values of each argument that takes one."""
CODES = {(("export",), "FILE"): 1}
"""The exit code where it is not that of a usage error: the file cannot be written."""
ANY_TEXT = {"--body", "--until"}
BESIDE = {"--broker-port": ["--broker"]}
"""What an option needs to have an effect."""


def commands(
    parser: argparse.ArgumentParser, words: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], list[argparse.Action]]]:
    """Yield each command that runs something, and its arguments."""
    if parser.get_default("run") is not None:
        plain = (argparse._HelpAction, argparse._VersionAction, argparse._SubParsersAction)
        yield words, [action for action in parser._actions if not isinstance(action, plain)]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, child in action.choices.items():
                yield from commands(child, (*words, name))


def name_of(action: argparse.Action) -> str:
    return action.option_strings[-1] if action.option_strings else str(action.metavar)


def takes_value(action: argparse.Action) -> bool:
    return action.nargs != 0 and not isinstance(action, argparse.BooleanOptionalAction)


RIGHT = {
    "MEMBER": "n1", "KEY": "1", "VALUE": "2", "FILE": "old.export", "SHELL": "bash",
    "INDEX|FIRST..[LAST]": "0",
}  # fmt: skip
"""A right value of each argument without an option."""
CASES = [
    pytest.param(words, name_of(wrong), value, id=f"{'-'.join(words)} {name_of(wrong)} {number}")
    for words, actions in commands(cli.parser())
    for wrong in actions
    if takes_value(wrong)
    for number, value in enumerate(WRONG.get(name_of(wrong), []))
]
ACTIONS = dict(commands(cli.parser()))


def command_line(words: tuple[str, ...], wrong: str, value: str) -> list[str]:
    """Return a command line that is right but for one argument."""
    line = [*words]
    for action in ACTIONS[words]:
        name = name_of(action)
        if action.option_strings:
            continue
        if name == wrong:
            line.append(value)
        elif action.nargs not in ("?", "*"):
            line.append(RIGHT[name])
    if wrong.startswith("--"):
        line += [*BESIDE.get(wrong, []), f"{wrong}={value}"]
    if words == ("get",) and wrong not in ("--first", "INDEX|FIRST..[LAST]"):
        line += ["--first", "0"]
    if words == ("append",) and wrong != "FILE":
        line += ["--body", "x"]
    return line


def test_the_table_has_every_argument() -> None:
    found = {
        name_of(action)
        for _, actions in commands(cli.parser())
        for action in actions
        if takes_value(action)
    }

    assert found == WRONG.keys() | ANY_TEXT


@pytest.mark.timeout(60, method="thread")  # a loop of uvloop keeps a signal to itself
@pytest.mark.usefixtures("group_in_environment")
@pytest.mark.parametrize(("words", "wrong", "value"), CASES)
def test_a_wrong_argument_is_refused_and_nothing_is_sent(
    words: tuple[str, ...],
    wrong: str,
    value: str,
    group_in_thread: Group,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("no archive\n")
    old = tmp_path / "old.export"
    head, checksum = pack_head(Head(group="g0", first_index=0))
    old.write_bytes(head + pack_end(0, checksum))
    before = old.read_bytes()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    try:
        code = main(command_line(words, wrong, value))
    except SystemExit as ended:
        code = int(ended.code or 0)
    written = capsys.readouterr()

    assert (code, written.out) == (CODES.get((words, wrong), 2), ""), written.err
    assert written.err.startswith("dledger")
    assert written.err.count("\n") == 1, written.err
    assert "internal error" not in written.err
    assert "set_int_max_str_digits" not in written.err, "these are Python's words"
    assert len(written.err) < 500, written.err
    assert not any(one.metadata_requested.is_set() for one in group_in_thread.members.values())
    assert {path.name for path in tmp_path.iterdir()} <= {"file", "old.export", "state"}
    assert old.read_bytes() == before
