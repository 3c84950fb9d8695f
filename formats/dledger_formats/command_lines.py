"""The parser of every program's command line: errors in one line, and no abbreviated options."""

import argparse
from typing import Any, Final, NoReturn

USAGE: Final = 2
"""The exit code for a wrong command line, of every program."""
MESSAGE_MAX: Final = 400
"""Length to which a message is cut, which may quote a value of any length."""
_CHOSEN: Final = "parser_of_the_command"


class Parser(argparse.ArgumentParser):
    """An argument parser that reports errors in one line, and does not accept abbreviated options:
    `--form 0`, a typing error for `--from 0`, would otherwise mean `--format 0`.
    """

    def __init__(self, **given: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **given})
        self.set_defaults(**{_CHOSEN: self})

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse a command line. Exits for an unknown option, with the help of its command."""
        found, unknown = self.parse_known_args(args, namespace)
        chosen: Parser = getattr(found, _CHOSEN)
        delattr(found, _CHOSEN)
        if unknown:
            chosen.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found

    def error(self, message: str) -> NoReturn:
        """Print the error and a pointer to the help, and exit."""
        shown = message if len(message) <= MESSAGE_MAX else f"{message[:MESSAGE_MAX]}…"
        self.exit(USAGE, f"{self.prog}: {shown}; see {self.prog} --help\n")
