"""The console script `dledger-broker`: help that needs no library, then the program."""

import sys
from collections.abc import Sequence

from dledger_formats import interrupts

FAILED = 1
"""The exit code if a library is missing; a member that cannot run has the same."""
_COLUMNS_MAX = 79
_DESCRIPTION = "Run one member of a DLedger group as a RocketMQ broker, until SIGTERM."
_OTHER_SETTINGS = "settings (environment variables), beside those in `dledger-node --help`:"
_SETTINGS = {
    "DLEDGER_BROKER_ADDRESSES": "Where clients find each member: n0-IP:port;n1-IP:port. (required, "
    "unless the next two are set)",
    "DLEDGER_BROKER_GROUP_ADDRESS": "Where clients reach any member: HOST:port. (default: none)",
    "DLEDGER_BROKER_OWN_ADDRESS": "Where clients find this member, with "
    "DLEDGER_BROKER_GROUP_ADDRESS in place of the addresses of all members: IP:port. (default: "
    "none)",
    "DLEDGER_BROKER_SHARES_PORT": "Whether the members themselves listen on the group's address: "
    "true or false. (default: false)",
    "DLEDGER_BROKER_NAME": "The broker's name. (default: the name of the group)",
    "DLEDGER_BROKER_CLUSTER": "The name of the cluster. (default: DefaultCluster)",
    "DLEDGER_BROKER_AUTO_CREATE_TOPICS": "Whether a message creates its topic: true or false. "
    "(default: true)",
    "DLEDGER_BROKER_NAME_SERVERS": "Where the members register: HOST:port;HOST:port. (default: "
    "none)",
    "DLEDGER_BROKER_REGISTER_MEMBERS": "Whether they also register their own addresses beside that "
    "of the group: true or false. (default: true)",
}
_EXIT_CODES = "Exit codes: 0 stopped by a signal; 1 the member cannot run; 2 a wrong setting."


def main() -> int:
    """Run one member and return the exit code. Print the help even if a library is missing."""
    interrupts.end_the_process()
    from dledger_formats import console

    return console.run("dledger-broker", lambda: _run(sys.argv[1:]), failed=FAILED)


def _run(given: Sequence[str]) -> int:
    if given:
        return _print_help(given)
    try:
        from dledger_broker.main import main as run
    except ModuleNotFoundError as error:
        from dledger_formats import missing_package

        sys.stderr.write(missing_package.advice("dledger-broker", "node", error))
        return FAILED
    interrupts.raise_keyboard_interrupt()
    return run()


def _print_help(arguments: Sequence[str]) -> int:
    import shutil
    from importlib.metadata import version

    from dledger_formats.command_lines import Parser, RawHelpFormatter, wrapped

    columns = min(_COLUMNS_MAX, shutil.get_terminal_size().columns)
    lines = wrapped(_OTHER_SETTINGS, columns)
    for name, text in _SETTINGS.items():
        lines += [f"  {name}", *(f"      {line}" for line in wrapped(text, columns - 6))]
    parser = Parser(
        prog="dledger-broker",
        usage="dledger-broker [--help | --version]",
        description="\n".join(wrapped(_DESCRIPTION, columns)),
        epilog="\n".join([*lines, "", *wrapped(_EXIT_CODES, columns)]),
        formatter_class=RawHelpFormatter,
    )
    shown = f"dledger-broker {version('dledger-operator')}"
    parser.add_argument("--version", action="version", version=shown)
    parser.parse_args(arguments)
    return 0
