"""`dledger group`: who the members are and who leads, as a member says; and a group to try."""

import argparse

from dledger_client.commands import common, group_local
from dledger_client.commands.common import ExitCode


def add_parser(commands: common.Commands) -> None:
    """Say what `dledger group` takes."""
    parser = common.new_parser(
        commands,
        "group",
        what="print the members and the leader, or run a group on this machine",
        description="Ask for METADATA: the members' addresses, and who leads.",
        examples={
            "dledger group": "a table",
            "dledger group -o json": "a line of JSON",
            "dledger group local": "run a group on this machine until Ctrl-C",
        },
        exit_codes="0 answered, 2 usage, 4 refused, 5 group unreachable.",
    )
    common.add_group_options(parser)
    common.add_output_option(parser, "a table, or a line of JSON")
    parser.set_defaults(run=run)
    group_local.add_parser(parser.add_subparsers(title="commands", metavar="COMMAND"))


async def run(arguments: argparse.Namespace) -> int:
    """Ask and print; return the exit code."""
    async with common.open_client(arguments) as client:
        metadata = await client.metadata()
    if arguments.output == "json":
        common.write_json(
            {"group": metadata.group, "leader": metadata.leader_id, "peers": metadata.peers}
        )
        return ExitCode.OK
    rows = [["MEMBER", "ADDRESS", "ROLE"]]
    for peer_id, address in sorted(metadata.peers.items()):
        rows.append([peer_id, address, "leader" if peer_id == metadata.leader_id else ""])
    common.write_table(rows)
    return ExitCode.OK
