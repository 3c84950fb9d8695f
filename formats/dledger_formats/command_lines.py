"""The parser of every program's command line: errors in one line, and no abbreviated options.

The help fits narrow terminals, and divides no word.
"""

import argparse
import itertools
import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import Any, Final, NoReturn

from dledger_formats.console import readable

USAGE: Final = 2
"""The exit code for a wrong command line, of every program."""
MESSAGE_MAX: Final = 400
"""Length to which a message is cut, which may quote a value of any length."""
NARROW_COLUMNS: Final = 60
"""On a terminal with fewer columns, the text about an option stands below the option."""
NARROW_HELP_POSITION: Final = 6
_USAGE_INDENT: Final = " " * 4
_IN_BRACKETS: Final = re.compile(r"\[(?:[^][]|\[[^][]*\])*\]")
_NO_BREAK: Final = "\0"
_LACKS_VALUE: Final = re.compile("argument (.*): expected (?:one|at least one) argument")
_CHOSEN: Final = "parser_of_the_command"


def wrapped(text: str, columns: int, further_indent: str = "") -> list[str]:
    """Divide a text into lines between words, of which none is divided, not even at a hyphen.

    So a line with a long word may have more columns.
    """
    return textwrap.wrap(
        text,
        columns,
        subsequent_indent=further_indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


class HelpFormatter(argparse.HelpFormatter):
    """Formats a help that stays readable on a terminal of 40 columns."""

    def __init__(self, prog: str, **given: Any) -> None:
        if shutil.get_terminal_size().columns < NARROW_COLUMNS:
            given = {"max_help_position": NARROW_HELP_POSITION, **given}
        super().__init__(prog, **given)

    def _split_lines(self, text: str, width: int) -> list[str]:
        return wrapped(" ".join(text.split()), width)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines = wrapped(" ".join(text.split()), width - len(indent))
        return "\n".join(indent + line for line in lines)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        """Return the names of an option and, once, what they take; argparse repeats it."""
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        taken = self._format_args(action, self._get_default_metavar_for_optional(action))
        return f"{', '.join(action.option_strings)} {taken}"

    def _format_usage(self, *given: Any) -> str:
        """Return the usage; argparse divides no group of options, however long it is."""
        usage = super()._format_usage(*given)
        if max(map(len, usage.splitlines())) <= self._width:
            return usage
        room = self._width - len(_USAGE_INDENT)
        whole = _IN_BRACKETS.sub(
            lambda found: found[0].replace(" ", _NO_BREAK) if len(found[0]) <= room else found[0],
            " ".join(usage.split()),
        )
        lines = wrapped(whole, self._width, _USAGE_INDENT)
        return "\n".join(lines).replace(_NO_BREAK, " ") + "\n\n"


class RawHelpFormatter(argparse.RawDescriptionHelpFormatter, HelpFormatter):
    """Likewise, and keeps the lines of the description and the epilog."""


class Parser(argparse.ArgumentParser):
    """An argument parser that reports errors in one line, and does not accept abbreviated options:
    `--form 0`, a typing error for `--from 0`, would otherwise mean `--format 0`.
    """

    def __init__(self, **given: Any) -> None:
        super().__init__(**{"allow_abbrev": False, "formatter_class": HelpFormatter, **given})
        self.set_defaults(**{_CHOSEN: self})
        self._words: Sequence[str] = ()
        """The command line that is parsed; an error may have to explain it."""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse a command line. Exits for an unknown option, with the help of its command."""
        found, unknown = self.parse_known_args(args, namespace)
        chosen: Parser = getattr(found, _CHOSEN)
        delattr(found, _CHOSEN)
        if unknown:
            chosen.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse a command line, and keep its words for errors."""
        self._words = sys.argv[1:] if args is None else list(args)
        return super().parse_known_args(self._words, namespace)

    def error(self, message: str) -> NoReturn:
        """Print the error and a pointer to the help, and exit."""
        message = readable(message + self._how_to_give_a_dash(message))
        shown = message if len(message) <= MESSAGE_MAX else f"{message[:MESSAGE_MAX]}…"
        self.exit(USAGE, f"{self.prog}: {shown}; see {self.prog} --help\n")

    def _how_to_give_a_dash(self, message: str) -> str:
        """Return how to give an option the value that argparse took for another option."""
        found = _LACKS_VALUE.fullmatch(message)
        names = found[1].split("/") if found else []
        for name, following in itertools.pairwise(self._words):
            if name in names and following.startswith("-"):
                given = shlex.quote(f"{name}={following}")
                return f"; if its value begins with a dash, write {given}"
        return ""
