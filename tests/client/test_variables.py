"""The variables of `dledger`, which may be exported where a node runs."""

from dledger_client import cli
from dledger_client.commands import profiles
from dledger_formats.settings import COMMAND_LINE_VARIABLES


def test_a_node_ignores_the_variables_of_the_command_line() -> None:
    own = {*profiles.VARIABLES.values(), profiles.PROFILE_VARIABLE, cli.TRACE_VARIABLE}

    assert own <= COMMAND_LINE_VARIABLES
