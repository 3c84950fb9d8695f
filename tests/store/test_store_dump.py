"""`dledger-node store dump` of entries that the log does not have, and wrong options."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from dledger_node.store.log.log_store import LogStore
from dledger_node.store_command import command
from dledger_node.store_command.command import ExitCode
from dledger_store_files.upkeep import remove_front

OpenStore = Callable[..., LogStore]


@pytest.mark.parametrize(
    "options", [["--first", "40"], ["--first", "999999999", "--last", "1000000000"]]
)
def test_a_dump_behind_the_end_prints_no_table_and_says_where_the_log_ends(
    written: Path, options: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    code = command.main(["dump", *options, str(written)])

    assert code == ExitCode.FAILED
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        f"dledger-node: the log has no entry {options[1]}: it ends with entry 39\n"
    )


def test_a_dump_before_the_begin_says_where_the_log_begins(
    open_store: OpenStore, written: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = open_store()
    begin = remove_front(store, 1)
    store.close()

    code = command.main(["dump", "--last", str(begin - 1), str(written)])

    assert begin > 0
    assert (code, capsys.readouterr()) == (
        ExitCode.FAILED,
        ("", f"dledger-node: the log has no entry {begin - 1}: it begins with entry {begin}\n"),
    )


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        ([], ExitCode.OK, ""),
        (["--first", "3"], ExitCode.FAILED, "dledger-node: the log has no entry 3: it is empty\n"),
    ],
)
def test_a_dump_of_an_empty_log_fails_only_if_an_entry_was_asked_for(
    open_store: OpenStore,
    folder: Path,
    options: Sequence[str],
    code: ExitCode,
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    open_store().close()

    assert command.main(["dump", *options, str(folder)]) == code
    assert capsys.readouterr().err == said


def test_a_dump_up_to_an_entry_behind_the_end_prints_all_that_there_is(
    written: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["dump", "--first", "39", "--last", "99", str(written)]) == ExitCode.OK
    title, entry = capsys.readouterr().out.splitlines()
    assert (title.split()[0], entry.split()[0]) == ("INDEX", "39")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["dump", "--first", "-1"], "argument --first: '-1' is no index"),
        (["dump", "--last", "x"], "argument --last: 'x' is no index"),
        (["adopt", "--peers", "foo"], "argument --peers: 'foo' is not a member; the form is ID-"),
    ],
)
def test_a_wrong_option_is_told_in_words_of_its_user(
    written: Path, arguments: Sequence[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        command.main([*arguments, str(written)])

    assert stopped.value.code == ExitCode.USAGE
    assert said in capsys.readouterr().err
