"""Generate docs/reference-crd.md from the CRDs: `python -m tools.crd_reference`.

The descriptions in the CRDs are the documentation. The page lists them with the types, the defaults
and the rules that the API server checks.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

import yaml

ROOT = Path(__file__).resolve().parent.parent
CRDS = ROOT / "crds"
PAGE = ROOT / "docs" / "reference-crd.md"
ORDER = ("DLedgerGroup", "DLedgerAudit", "DLedgerSwitchover", "DLedgerReplace")

INTRODUCTION = """\
# Reference of the custom resources

<!-- Generated from crds/ by `python -m tools.crd_reference`; edit the descriptions there. -->

`kubectl explain dledgergroups.spec` shows the same descriptions in a terminal. The API
server refuses fields that are not listed here.
"""

Schema: TypeAlias = dict[str, Any]

_LITERAL: Final = re.compile("'[^']*'|" + '"[^"]*"')
_TOKEN: Final = re.compile(_LITERAL.pattern + "|.", re.DOTALL)


def main() -> int:
    """Write the page; return the exit code 0."""
    PAGE.write_text(render(load(CRDS)))
    print(f"wrote {PAGE.relative_to(ROOT)}", file=sys.stderr)
    return 0


def load(folder: Path) -> list[Schema]:
    """Return the CRDs of a folder, in the order of the page."""
    found = [yaml.safe_load(path.read_text()) for path in folder.glob("*.yaml")]
    return sorted(found, key=lambda crd: ORDER.index(crd["spec"]["names"]["kind"]))


def render(crds: list[Schema]) -> str:
    """Return the page as Markdown."""
    return "\n".join([INTRODUCTION, *(line for crd in crds for line in _kind(crd))])


def _kind(crd: Schema) -> Iterator[str]:
    names = crd["spec"]["names"]
    version = crd["spec"]["versions"][0]
    root = version["schema"]["openAPIV3Schema"]
    yield f"## {names['kind']}\n"
    yield f"{root['description']}\n"
    yield (
        f"API version `{crd['spec']['group']}/{version['name']}`, short name "
        f"`{names['shortNames'][0]}`, category `{names['categories'][0]}`.\n"
    )
    for part in ("spec", "status"):
        yield f"### {names['kind']} {part}\n"
        yield "| Field | Type | Default | Meaning |"
        yield "| --- | --- | --- | --- |"
        for path, schema, required in fields(root["properties"][part], part):
            yield _row(path, schema, required)
        yield ""
    yield f"### {names['kind']} rules\n"
    yield "The API server refuses an object with one of these messages. `...` stands for a value.\n"
    yield from (f"- `{path}`: {text}" for path, text in rules(root, ""))
    yield ""
    yield f"### {names['kind']} columns\n"
    yield "`kubectl get` shows these columns; those in parentheses only with `--output=wide`.\n"
    yield from (_column(column) for column in version["additionalPrinterColumns"])
    yield ""


def fields(schema: Schema, path: str) -> Iterator[tuple[str, Schema, bool]]:
    """Yield path, schema and whether it is required for every field of a schema, depth first."""
    required = schema.get("required", [])
    for name, child in schema.get("properties", {}).items():
        inner = child.get("items", child)
        suffix = "[]" if "items" in child else ""
        yield f"{path}.{name}{suffix}", child, name in required
        yield from fields(inner, f"{path}.{name}{suffix}")


def _row(path: str, schema: Schema, required: bool) -> str:
    default = schema.get("default")
    if required:
        shown = "*required*"
    elif default in (None, {}):
        shown = ""
    else:
        shown = f"`{json.dumps(default)}`" if isinstance(default, dict) else f"`{plain(default)}`"
    return f"| `{path}` | {_type(schema)} | {shown} | {_cell(schema['description'])} |"


def _type(schema: Schema) -> str:
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    if schema.get("x-kubernetes-int-or-string"):
        return "quantity"
    if "items" in schema:
        return f"list of {_type(schema['items'])}s"
    if "additionalProperties" in schema:
        return f"map of {_type(schema['additionalProperties'])}s".replace("quantitys", "quantities")
    return str(schema.get("format", schema["type"]))


def rules(schema: Schema, path: str) -> Iterator[tuple[str, str]]:
    """Yield every CEL rule below a schema: the path to which it applies, and its message."""
    for rule in schema.get("x-kubernetes-validations", ()):
        where = (path + rule.get("fieldPath", "")).lstrip(".")
        text = rule["message"] if "message" in rule else _expression(rule["messageExpression"])
        yield where, text
    for name, child in schema.get("properties", {}).items():
        yield from rules(child, f"{path}.{name}")
    if "items" in schema:
        yield from rules(schema["items"], f"{path}[]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from rules(schema["additionalProperties"], f"{path}.*")


def _expression(expression: str) -> str:
    """Return a message expression's literals as a sentence, with `...` for each value."""
    return "".join(
        operand[1:-1] if _LITERAL.fullmatch(operand) else "..." for operand in _operands(expression)
    )


def _operands(expression: str) -> list[str]:
    """Split a sum at the plus signs outside of literals and parentheses."""
    operands, depth, begin = [], 0, 0
    for token in _TOKEN.finditer(expression):
        text = token.group()
        depth += (text in "([") - (text in ")]")
        if text == "+" and not depth:
            operands.append(expression[begin : token.start()].strip())
            begin = token.end()
    return [*operands, expression[begin:].strip()]


def _column(column: Schema) -> str:
    name = f"({column['name']})" if column.get("priority") else column["name"]
    return f"- {name}: {column.get('description', 'Time since the object was created.')}"


def plain(value: object) -> str:
    """Return a scalar in YAML syntax."""
    return value if isinstance(value, str) else json.dumps(value)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    raise SystemExit(main())
