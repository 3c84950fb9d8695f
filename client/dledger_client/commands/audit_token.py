"""`dledger audit-token`: compute a group's audit token from its administration token."""

import argparse

from dledger_client.commands import admin_token, options, printing, profiles
from dledger_client.commands.exits import ExitCode, UsageError


def add_parser(commands: options.Commands) -> None:
    """Define the arguments of `dledger audit-token`."""
    parser = options.new_parser(
        commands,
        "audit-token",
        summary="print the audit token that belongs to an administration token",
        description="Compute the audit token, with which members let auditors read the log, and "
        "print it as a file for `dledger-audit --token-file`. The group is not asked. A file with "
        "several tokens gives as many.",
        examples={
            "dledger audit-token --admin-token-file admin.token": "the token, and its version",
            "(umask 077; dledger audit-token > audit.token)": "a file that only you may read",
        },
        exit_codes="0 printed, 2 usage error.",
    )
    profiles.add_option(parser)
    admin_token.add_option(parser)
    parser.set_defaults(run=run)


async def run(arguments: argparse.Namespace) -> int:
    """Print the file with the audit tokens and return the exit code."""
    tokens = await admin_token.read_all(arguments)
    if tokens is None:
        raise UsageError(
            "the audit token is computed from the administration token, and none is given: name "
            "its file with --admin-token-file"
        )
    for line in tokens.for_audits().to_text().splitlines():
        printing.write_line(line)
    return ExitCode.OK
