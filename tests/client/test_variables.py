"""The variables of `dledger`, which may be exported where a node runs."""

import pytest

from dledger_client import cli
from dledger_client.commands import profiles
from dledger_formats.command_line_variables import COMMAND_LINE_VARIABLES


def test_a_node_ignores_the_variables_of_the_command_line() -> None:
    own = {*profiles.VARIABLES.values(), profiles.PROFILE_VARIABLE, cli.TRACE_VARIABLE}

    assert own <= COMMAND_LINE_VARIABLES


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("DLEDGER_CLIENT_SERVER", "DLEDGER_CLIENT_SERVERS"),
        ("DLEDGER_CLIENT_PROFIL", "DLEDGER_CLIENT_PROFILE"),
        ("DLEDGER_CLIENT_GROUPS", "DLEDGER_CLIENT_GROUP"),
    ],
)
def test_a_misspelled_variable_is_told_instead_of_ignored(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, meant: str
) -> None:
    monkeypatch.setenv(name, "x")

    assert cli.main(["get", "0", "--servers", "127.0.0.1:1", "--group", "g"]) == 2
    err = capsys.readouterr().err
    assert err == f"dledger: there is no variable {name}; did you mean {meant}?\n"


@pytest.mark.usefixtures("group_in_environment")
@pytest.mark.parametrize("name", ["DLEDGER_CLIENT_FOO", "DLEDGER_CLIENT_FRAME_BYTES_MAX"])
def test_variables_of_a_later_release_and_of_members_stop_no_command(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "1")

    assert cli.main(["append", "--body", "x"]) == 0
