"""The code in README and docs makes up no command, option, file or field: every block is looked at.

Each block of shell commands is run by a test, as the comment above it says, or is exempt for a
reason (`documented_blocks.py`).
"""

import argparse
import ast
import importlib.util
import json
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from dledger_audit import arguments as audit_arguments
from dledger_client import cli
from dledger_client.commands import profiles
from dledger_node.store_command import command as store_command
from dledger_operator import conditions
from dledger_operator.behaviors.one_off.status import COMPLETE
from dledger_store_faults import __main__ as store_faults
from tests.client.documented_blocks import EXEMPT, ROOT, RUN, Block, blocks

TARGETS = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CRDS = [yaml.safe_load(path.read_text()) for path in sorted((ROOT / "crds").glob("*.yaml"))]
OURS = {
    name
    for crd in CRDS
    for name in (crd["spec"]["names"]["plural"], *crd["spec"]["names"]["shortNames"])
}
"""What kubectl calls this project's resources."""
STAGES = set(re.findall(r" AS ([a-z-]+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE))
CHART = yaml.safe_load((ROOT / "helm/dledger-operator/Chart.yaml").read_text())
BUILTIN = {"job", "pods", "lease", "secret", "statefulset", "events"}
CONDITIONS = {COMPLETE} | {
    text
    for path in Path(str(conditions.__file__)).parent.glob("*.py")
    for text in re.findall(r'^TYPE = "(\w+)"', path.read_text(), re.MULTILINE)
}
VERBS = {
    "annotate", "apply", "describe", "drain", "exec", "get", "logs", "patch", "port-forward",
    "scale", "wait",
}  # fmt: skip
SHELL_PROGRAMS = {"base64", "curl", "echo", "export", "grep", "sed", "unshare"}
STORE_FAULTS = "$F"
"""What `docs/storage-faults.md` calls `python -m dledger_store_faults`."""
MQADMIN = {"deleteTopic", "topicList", "topicRoute", "updateTopic"}
"""Commands of RocketMQ's own tool that a broker answers."""
LANGUAGES = {"", "java", "python", "sh", "toml", "yaml"}


def commands(script: str) -> Iterator[list[str]]:
    """Yield the words of each simple command of a script, without variables that precede it."""
    for line in script.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=";|&")
        lexer.whitespace_split = True
        words: list[str] = []
        for word in (*lexer, ";"):
            if word and set(word) <= set(";|&"):
                while words and re.fullmatch(r"[A-Za-z_]+=.*", words[0], re.DOTALL):
                    words.pop(0)
                if words:
                    yield words
                words = []
            else:
                words.append(word)


COMMANDS = [(block.page, words) for block in blocks("sh") for words in commands(block.text)]


def parse(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Fail unless a program takes these arguments."""
    parser.parse_args(words)


def check_make(words: Sequence[str]) -> None:
    targets = [word for word in words if not re.fullmatch(r"[A-Z_]+=.*", word)]
    assert set(targets) <= TARGETS


def check_python(words: Sequence[str]) -> None:
    assert words[0] == "-m"
    name = words[1]
    if name == "venv":
        return
    assert importlib.util.find_spec(name) is not None
    if name == "pytest":
        assert all((ROOT / word).exists() for word in words if word.startswith("tests/"))


def check_pip(words: Sequence[str]) -> None:
    assert words[0] == "install"
    extras = re.fullmatch(r"(?:\.|dledger-operator)\[(.+)\]", words[1])
    assert extras
    assert set(extras[1].split(",")) <= set(PROJECT["optional-dependencies"])


def check_node(words: Sequence[str]) -> None:
    assert words[0] == "store"
    parse(store_command.parser(), words[1:])


def check_audit(words: Sequence[str]) -> None:
    audit_arguments.parse(list(words))


def check_docker(words: Sequence[str]) -> None:
    """Fail unless the build makes an image that the chart pulls by default."""
    assert words[0] == "build"
    target, tag = (words[words.index(option) + 1] for option in ("--target", "--tag"))
    assert target in STAGES
    assert tag.endswith(f"/dledger-{target}:{CHART['appVersion']}")


def check_helm(words: Sequence[str]) -> None:
    assert words[0] == "install"
    assert (ROOT / words[2] / "Chart.yaml").exists()


def check_kubectl(words: Sequence[str]) -> None:
    words = list(words)
    if words[0] == "--namespace":
        del words[:2]
    verb, *rest = words
    assert verb in VERBS
    if verb == "apply":
        assert (ROOT / rest[rest.index("-f") + 1]).exists()
    elif verb == "exec":
        check(rest[rest.index("--") + 1 :])
    elif verb != "drain":
        what = next(word for word in rest if not word.startswith("--"))
        assert what.split("/")[0] in OURS | BUILTIN
    if verb == "patch":
        check_group(json.loads(rest[rest.index("-p") + 1]))
    for word in rest:
        if condition := re.fullmatch(r"--for=condition=(\w+)(=\w+)?", word):
            assert condition[1] in CONDITIONS


def check_mqadmin(words: Sequence[str]) -> None:
    assert words[0] in MQADMIN


def check_group(manifest: dict[str, Any]) -> None:
    """Fail for a field that a DLedgerGroup does not have."""
    [crd] = [crd for crd in CRDS if crd["spec"]["names"]["kind"] == "DLedgerGroup"]
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert not list(unknown_fields(schema, manifest))


def unknown_fields(schema: dict[str, Any], value: object, path: str = "") -> Iterator[str]:
    """Yield the path of each field that a schema does not have."""
    if not isinstance(value, dict) or "properties" not in schema:
        return
    for name, inner in value.items():
        if name in schema["properties"]:
            yield from unknown_fields(schema["properties"][name], inner, f"{path}.{name}")
        else:
            yield f"{path}.{name}"


CHECKS: dict[str, Callable[[Sequence[str]], None]] = {
    "dledger": lambda words: parse(cli.parser(), words),
    "dledger-audit": check_audit,
    "dledger-node": check_node,
    "docker": check_docker,
    "helm": check_helm,
    "kubectl": check_kubectl,
    "make": check_make,
    "mqadmin": check_mqadmin,
    "pip": check_pip,
    "python": check_python,
    "python3": check_python,
}


def check(words: Sequence[str]) -> None:
    """Fail unless there is such a command, with such arguments."""
    name = words[0].removeprefix(".venv/bin/")
    if STORE_FAULTS in words:
        parse(store_faults.parser(), words[words.index(STORE_FAULTS) + 1 :])
    elif name not in SHELL_PROGRAMS:
        CHECKS[name](words[1:])


@pytest.mark.parametrize(("page", "words"), COMMANDS, ids=[words[0] for _, words in COMMANDS])
def test_a_documented_command_exists_with_its_arguments(page: str, words: list[str]) -> None:
    check(words)


@pytest.mark.parametrize("wrong", [
    "dledger append --bodies x", "dledger-node store dumb /data", "make no-such-target",
    "python -m tools.nothing", "pip install '.[nothing]'", "kubectl apply -f examples/nothing.yaml",
    "kubectl get nothings", "helm install a ./helm/nothing", "nothing",
    'kubectl patch dlg f --type merge -p \'{"spec": {"nothing": 1}}\'',
    "docker build --target nothing --tag r/dledger-nothing:0.1.0 .",
    "docker build --target node --tag r/dledger-node:nothing .",
    "dledger-audit --nothing", "$F nothing", "unshare --mount $F kills --nothing",
    "mqadmin nothing", "kubectl wait dlg/f --for=condition=Nothing",
])  # fmt: skip
def test_a_command_that_is_made_up_is_found(wrong: str) -> None:
    [words] = commands(wrong)

    with pytest.raises((AssertionError, KeyError, SystemExit, ModuleNotFoundError)):
        check(words)


@pytest.mark.parametrize("block", [*blocks("yaml")], ids=lambda block: block.page)
def test_a_documented_manifest_has_only_fields_that_exist(block: Block) -> None:
    check_group(yaml.safe_load(block.text))


@pytest.mark.parametrize("block", [*blocks("toml")], ids=lambda block: block.page)
def test_a_documented_file_of_profiles_is_read(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    path = profiles.config_path()
    path.parent.mkdir()
    path.write_text(block.text)

    assert profiles.load().profiles


@pytest.mark.parametrize("block", [*blocks("python")], ids=lambda block: block.page)
def test_documented_python_is_python(block: Block) -> None:
    compile(block.text, block.page, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST)


def exempt(block: Block) -> list[str]:
    """Return the reasons for which a block is not run."""
    return [
        reason
        for reason, pages in EXEMPT.items()
        for begin in pages.get(block.page, ())
        if block.first_line.startswith(begin)
    ]


@pytest.mark.parametrize(
    "block", [*blocks("sh")], ids=lambda block: f"{block.page} {block.first_line[:30]}"
)
def test_a_block_of_commands_is_run_by_a_test_or_exempt_for_one_reason(block: Block) -> None:
    if block.where:
        assert block.where in RUN
        assert exempt(block) == []
    else:
        assert len(exempt(block)) == 1


def test_every_exempt_block_exists() -> None:
    first_lines: dict[str, list[str]] = {}
    for block in blocks("sh"):
        first_lines.setdefault(block.page, []).append(block.first_line)
    listed = [(page, begin) for pages in EXEMPT.values() for page in pages for begin in pages[page]]

    assert [
        (page, begin)
        for page, begin in listed
        if len([line for line in first_lines.get(page, ()) if line.startswith(begin)]) != 1
    ] == []


def test_every_block_of_code_has_a_language_that_is_looked_at() -> None:
    assert {block.language for block in blocks()} <= LANGUAGES
    assert len(COMMANDS) > 80
