"""`dledger register`: read and set registers in a group that runs the register state machine."""

import argparse
from typing import Final

from dledger_client.commands import group_client, options, printing
from dledger_client.commands.exits import ExitCode
from dledger_formats.protocol.register import NUMBER_MAX, NUMBER_MIN

REFUSED: Final = "4 refused: the group does not run the register state machine"
EXIT_CODES: Final = (
    "0 done; 1 the register to get was never set; 2 usage error; 3 it is unknown whether the "
    f"register was set; {REFUSED}; 5 group unreachable."
)
GET_CODES: Final = (
    f"0 done; 1 the register was never set; 2 usage error; {REFUSED}; 5 group unreachable."
)
SET_CODES: Final = (
    "0 done; 2 usage error; 3 it is unknown whether the register was set; "
    f"{REFUSED}; 5 group unreachable."
)


def add_parser(commands: options.Commands) -> None:
    """Define the arguments of `dledger register`."""
    parser = options.new_parser(
        commands,
        "register",
        summary="read and set registers",
        description="Read and set registers. The register state machine is DLedger's example of a "
        "state machine: a map from integers to integers. The members must run with "
        "DLEDGER_STATE_MACHINE=register.",
        examples={
            "dledger register set 13 31": "append an entry that sets register 13 to 31",
            "dledger register get 13": "print the latest acknowledged value, 31",
        },
        exit_codes=EXIT_CODES,
    )
    actions = parser.add_subparsers(title="commands", required=True, metavar="get|set")
    for name, summary, example, codes, run in (
        ("get", "print the value of a register", "the value of register 13", GET_CODES, run_get),
        ("set", "set a register", "set register 13 to 31", SET_CODES, run_set),
    ):
        action = options.new_parser(
            actions,
            name,
            summary=summary,
            description=f"{summary.capitalize()}.",
            examples={f"dledger register {name} 13{' 31' * (name == 'set')}": example},
            exit_codes=codes,
        )
        action.add_argument("key", metavar="KEY", type=number, help="signed 32-bit integer")
        if name == "set":
            action.add_argument("value", metavar="VALUE", type=number, help="signed 32-bit integer")
            options.add_output_option(action, "text: a sentence; json: one line")
        else:
            options.add_output_option(action, "text: the value; json: one line")
        options.add_group_options(action)
        action.set_defaults(run=run)


async def run_get(arguments: argparse.Namespace) -> int:
    """Print the value of a register and return the exit code."""
    async with group_client.open_client(arguments) as client:
        value = await client.read_register(arguments.key)
    if arguments.output == "json":
        printing.write_json({"key": arguments.key, "value": value})
    elif value is None:
        printing.complain(f"dledger: register {arguments.key} was never set")
    else:
        printing.write_line(str(value))
    return ExitCode.FAILED if value is None else ExitCode.OK


async def run_set(arguments: argparse.Namespace) -> int:
    """Set a register, print the index of its entry and return the exit code."""
    async with group_client.open_client(arguments) as client:
        appended = await client.set_register(arguments.key, arguments.value)
    if arguments.output == "json":
        written = {"key": arguments.key, "value": arguments.value, "index": appended.index}
        printing.write_json(written)
    else:
        printing.write_line(
            f"register {arguments.key} set to {arguments.value} by entry {appended.index}"
        )
    return ExitCode.OK


def number(text: str) -> int:
    """Parse a signed 32-bit integer, for argparse."""
    return options.whole_number(text, NUMBER_MIN, NUMBER_MAX)
