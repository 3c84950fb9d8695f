"""`dledger completion`: what a shell needs to complete the command line."""

import argparse

from argcomplete.shell_integration import shellcode

from dledger_client.commands import common
from dledger_client.commands.common import ExitCode


def add_parser(commands: common.Commands) -> None:
    """Say what `dledger completion` takes."""
    parser = common.new_parser(
        commands,
        "completion",
        what="print what a shell needs to complete this command line",
        description="Print a script for bash, zsh or fish.",
        examples={
            'eval "$(dledger completion bash)"': "in ~/.bashrc",
            'eval "$(dledger completion zsh)"': "in ~/.zshrc, behind compinit",
            "dledger completion fish | source": "in ~/.config/fish/config.fish",
        },
        exit_codes="0 printed, 2 usage.",
    )
    parser.add_argument("shell", choices=["bash", "zsh", "fish"])
    parser.set_defaults(run=run)


async def run(arguments: argparse.Namespace) -> int:
    """Print the script; return the exit code."""
    common.write_line(shellcode(["dledger"], shell=arguments.shell))
    return ExitCode.OK
