"""`dledger register`: read and set the register, where a group keeps one."""

import argparse

from dledger_client.commands import common
from dledger_client.commands.common import ExitCode
from dledger_formats.protocol.register import NUMBER_MAX, NUMBER_MIN


def add_parser(commands: common.Commands) -> None:
    """Say what `dledger register` takes."""
    parser = common.new_parser(
        commands,
        "register",
        what="read and set the register of a group that keeps one",
        description="A register is DLedger's example of a state machine: a map from numbers to "
        "numbers. The members must run with DLEDGER_STATE_MACHINE=register.",
        examples={
            "dledger register set 13 31": "append an entry that sets 13 to 31",
            "dledger register get 13": "print 31; nothing that was acknowledged is missed",
        },
        exit_codes="0 done; 1 never set; 2 usage; 3 not known whether it was set; 4 refused: this "
        "group keeps no register; 5 group unreachable.",
    )
    actions = parser.add_subparsers(title="commands", required=True, metavar="get|set")
    for name, what, run in (("get", "print a value", run_get), ("set", "set a value", run_set)):
        action = actions.add_parser(name, help=what)
        action.add_argument("key", metavar="KEY", type=number)
        if name == "set":
            action.add_argument("value", metavar="VALUE", type=number)
        common.add_group_options(action)
        common.add_output_option(action, "a number, or a line of JSON")
        action.set_defaults(run=run)


async def run_get(arguments: argparse.Namespace) -> int:
    """Read and print; return the exit code."""
    async with common.open_client(arguments) as client:
        value = await client.read_register(arguments.key)
    if arguments.output == "json":
        common.write_json({"key": arguments.key, "value": value})
    elif value is not None:
        common.write_line(str(value))
    return ExitCode.FAILED if value is None else ExitCode.OK


async def run_set(arguments: argparse.Namespace) -> int:
    """Append and print where; return the exit code."""
    async with common.open_client(arguments) as client:
        appended = await client.set_register(arguments.key, arguments.value)
    if arguments.output == "json":
        written = {"key": arguments.key, "value": arguments.value, "index": appended.index}
        common.write_json(written)
    else:
        common.write_line(f"{arguments.key} is {arguments.value} from entry {appended.index} on")
    return ExitCode.OK


def number(text: str) -> int:
    """Read a signed 32-bit number, for argparse."""
    value = int(text)
    if not NUMBER_MIN <= value <= NUMBER_MAX:
        raise ValueError(text)
    return value
