"""`dledger group`: print the members and the leader; `dledger group local`: run a local group."""

import argparse

from dledger_client.commands import group_client, group_local, options, printing
from dledger_client.commands.exits import ExitCode


def add_parser(commands: options.Commands) -> None:
    """Define the arguments of `dledger group`."""
    parser = options.new_parser(
        commands,
        "group",
        summary="print the members and the leader, or run a local group",
        description="Ask a member for METADATA and print the members, their addresses and the "
        "leader.",
        examples={
            "dledger group": "print a table",
            "dledger group -o json": "print one line of JSON",
            "dledger group local": "run a group on this machine until Ctrl-C",
        },
        exit_codes="0 a member answered, 2 usage error, 4 refused, 5 group unreachable.",
    )
    options.add_group_options(parser)
    options.add_output_option(parser, "text: a table; json: one line")
    parser.set_defaults(run=run)
    group_local.add_parser(parser.add_subparsers(title="commands", metavar="COMMAND"))


async def run(arguments: argparse.Namespace) -> int:
    """Print the members and return the exit code."""
    async with group_client.open_client(arguments) as client:
        metadata = await client.metadata()
    if arguments.output == "json":
        printing.write_json(
            {"group": metadata.group, "leader": metadata.leader_id, "peers": metadata.peers}
        )
        return ExitCode.OK
    rows = [["MEMBER", "ADDRESS", "ROLE"]]
    for peer_id, address in sorted(metadata.peers.items()):
        rows.append([peer_id, address, "leader" if peer_id == metadata.leader_id else ""])
    printing.write_table(rows)
    return ExitCode.OK
