"""`dledger completion`: print a shell completion script."""

import argparse
from typing import Final

from argcomplete.shell_integration import shellcode

from dledger_client.commands import options, printing
from dledger_client.commands.exits import ExitCode

ZSH_MARK: Final = "#compdef dledger\n"


def add_parser(commands: options.Commands) -> None:
    """Define the arguments of `dledger completion`."""
    parser = options.new_parser(
        commands,
        "completion",
        summary="print a shell completion script",
        description="Print the completion script for bash, zsh or fish.",
        examples={
            'eval "$(dledger completion bash)"': "in ~/.bashrc",
            'eval "$(dledger completion zsh)"': "in ~/.zshrc, after compinit",
            "dledger completion fish | source": "in ~/.config/fish/config.fish",
        },
        exit_codes="0 printed, 2 usage error.",
    )
    parser.add_argument(
        "shell", metavar="SHELL", choices=["bash", "zsh", "fish"], help="bash, zsh or fish"
    )
    parser.set_defaults(run=run)


async def run(arguments: argparse.Namespace) -> int:
    """Print the script and return the exit code."""
    script = shellcode(["dledger"], shell=arguments.shell)
    # The library has one script for bash and zsh; its first line marks it as zsh's.
    printing.write_line(script.removeprefix(ZSH_MARK) if arguments.shell == "bash" else script)
    return ExitCode.OK
