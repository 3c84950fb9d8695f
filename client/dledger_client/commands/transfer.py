"""`dledger transfer`: transfer leadership to another member."""

import argparse

from dledger_client.commands import admin_token, group_client, member_names, options, printing
from dledger_client.commands.exits import ExitCode


def add_parser(commands: options.Commands) -> None:
    """Define the arguments of `dledger transfer`."""
    parser = options.new_parser(
        commands,
        "transfer",
        summary="transfer leadership to another member",
        description="Ask the leader to transfer its leadership to MEMBER, and wait until it has.",
        examples={
            "dledger transfer n2": "make n2 the leader",
            "dledger transfer n2 --term 7": "the same in a group of Java servers",
        },
        exit_codes="0 MEMBER is the leader, 2 usage error, 3 outcome unknown, 4 refused (no such "
        "member, down or too far behind, it did not take over, or no valid token), 5 group "
        "unreachable.",
    )
    member_names.add_argument(parser, "member id, such as n2")
    parser.add_argument(
        "--term",
        metavar="N",
        type=options.index,
        help="the leader's current term; required for Java servers, which do not report it "
        "(default: the term that the group reports)",
    )
    options.add_group_options(parser)
    admin_token.add_option(parser)
    options.add_output_option(parser, "text: a sentence; json: one line")
    parser.set_defaults(run=run)


async def run(arguments: argparse.Namespace) -> int:
    """Transfer leadership, print the new leader and return the exit code."""
    async with group_client.open_client(
        arguments, admin_token=await admin_token.read(arguments)
    ) as client:
        after = await client.transfer(arguments.member, term=arguments.term)
    if arguments.output == "json":
        printing.write_json({"group": after.group, "leader": after.leader_id, "term": after.term})
    else:
        term = f" of term {after.term}" if after.term >= 0 else ""
        printing.write_line(f"{after.leader_id} is the leader{term}")
    return ExitCode.OK
