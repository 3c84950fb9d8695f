"""The help of `dledger-node`: its commands, and its settings with their defaults."""

import ast
import dataclasses
import inspect
import shutil
from collections.abc import Sequence
from importlib.metadata import version

from dledger_formats import settings
from dledger_formats.command_lines import Parser, RawHelpFormatter, wrapped
from dledger_formats.settings import NodeSettings, variable_name

COLUMNS_MAX = 79


def main(arguments: Sequence[str]) -> int:
    """Print the help or the version; refuse any other argument. Return the exit code."""
    description = (
        "Run one member of a DLedger group, until SIGTERM. `dledger-node store` inspects the files "
        "of a member that is not running; `dledger-node seed` begins the folder of a new group's "
        "member with the log of an archive. See their --help."
    )
    columns = min(COLUMNS_MAX, shutil.get_terminal_size().columns)
    parser = Parser(
        prog="dledger-node",
        usage="dledger-node [--help | --version]\n       dledger-node store COMMAND FOLDER\n"
        "       dledger-node seed ARCHIVE",
        description="\n".join(wrapped(description, columns)),
        epilog=_epilog(columns),
        formatter_class=RawHelpFormatter,
    )
    shown = f"dledger-node {version('dledger-operator')}"
    parser.add_argument("--version", action="version", version=shown)
    if arguments and not arguments[0].startswith("-"):
        parser.error(
            f"{arguments[0]!a} is no command: there are `dledger-node store` and `dledger-node "
            "seed`, and a member takes no arguments"
        )
    parser.parse_args(arguments)
    return 0


def _epilog(columns: int) -> str:
    texts = _docstrings()
    lines = ["settings (environment variables):"]
    for item in dataclasses.fields(NodeSettings):
        text = f"{texts.get(item.name, '')} ({_default(item)})".strip()
        lines.append(f"  {variable_name(item.name)}")
        lines += [f"      {line}" for line in wrapped(text, columns - 6)]
    codes = "Exit codes: 0 stopped by a signal; 1 the member cannot run; 2 a wrong setting."
    lines += ["", *wrapped(codes, columns)]
    return "\n".join(lines)


def _default(item: "dataclasses.Field[object]") -> str:
    if item.default is dataclasses.MISSING:
        return "required" if item.default_factory is dataclasses.MISSING else "default: empty"
    return f"default: {item.default}" if str(item.default) else "default: empty"


def _docstrings() -> dict[str, str]:
    """Return the texts below the fields of NodeSettings, which Python itself does not keep."""
    [tree] = ast.parse(inspect.getsource(settings.NodeSettings)).body
    assert isinstance(tree, ast.ClassDef)
    texts = {}
    for field, text in zip(tree.body, tree.body[1:], strict=False):
        match field, text:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(found))),
            ):
                texts[name] = " ".join(found.split())
    return texts
