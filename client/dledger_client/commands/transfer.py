"""`dledger transfer`: hand the leadership to another member."""

import argparse

from dledger_client.commands import common
from dledger_client.commands.common import ExitCode


def add_parser(commands: common.Commands) -> None:
    """Say what `dledger transfer` takes."""
    parser = common.new_parser(
        commands,
        "transfer",
        what="hand the leadership to another member",
        description="Ask the leader to let MEMBER lead in its place, and wait until it does.",
        examples={
            "dledger transfer n2": "let n2 lead",
            "dledger transfer n2 --term 7": "the same at Java's servers, which tell no term",
        },
        exit_codes="0 it leads, 2 usage, 3 not known yet, 4 refused: no such member, too far "
        "behind, or it did not take over, 5 group unreachable.",
    )
    parser.add_argument("member", metavar="MEMBER", help="its id, such as n2")
    parser.add_argument("--term", metavar="N", type=common.index, help="the leader's term")
    common.add_group_options(parser)
    common.add_output_option(parser, "a sentence, or a line of JSON")
    parser.set_defaults(run=run)


async def run(arguments: argparse.Namespace) -> int:
    """Ask and print; return the exit code."""
    async with common.open_client(arguments) as client:
        after = await client.transfer(arguments.member, term=arguments.term)
    if arguments.output == "json":
        common.write_json({"group": after.group, "leader": after.leader_id, "term": after.term})
    else:
        term = f" term {after.term}" if after.term >= 0 else ""
        common.write_line(f"{after.leader_id or 'nobody'} leads{term}")
    return ExitCode.OK
