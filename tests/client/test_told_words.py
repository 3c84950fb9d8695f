"""How messages show the words of a command line that they quote."""

import contextlib

import pytest

from dledger_client import cli
from tests.client.terminals import run

NOWHERE = {"DLEDGER_CLIENT_SERVERS": "127.0.0.1:1", "DLEDGER_CLIENT_GROUP": "g"}


@pytest.mark.parametrize(
    ("arguments", "how"),
    [
        (["append", "--body", "-x"], "--body=-x"),
        (["append", "-o", "-x"], "-o=-x"),
    ],
)
def test_a_value_that_begins_with_a_dash_is_told_how_it_is_given(
    arguments: list[str], how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        cli.main(arguments)

    err = capsys.readouterr().err
    assert f"expected one argument; if its value begins with a dash, write {how}; see" in err


@pytest.mark.parametrize("arguments", [["append", "--deadline", "\udcff"], ["get", "\udcff"]])
def test_a_byte_that_is_no_utf_8_is_shown_as_the_shell_writes_it(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with contextlib.suppress(SystemExit):
        cli.main(arguments)

    assert "'\\xff' is " in capsys.readouterr().err


def test_a_file_whose_name_is_no_utf_8_is_shown_as_the_shell_writes_it() -> None:
    done = run(["append", "x\udcff\udcfe"], NOWHERE)

    assert done.stderr.startswith("dledger: cannot read x\\xff\\xfe: No such file")
