"""Where the command line takes the administration token from."""

import argparse
from pathlib import Path

import pytest

from dledger_client.cli import main
from dledger_client.commands import admin_token, profiles
from dledger_client.commands.exits import UsageError
from dledger_formats.admin_tokens import AdminTokens
from dledger_formats.command_line_variables import COMMAND_LINE_VARIABLES

SOURCES = ("option", "profile", "file variable", "variable", "member")
VARIABLES = (admin_token.FILE_VARIABLE, admin_token.VARIABLE, admin_token.MEMBER_FILE_VARIABLE)


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(profiles.CONFIG_VARIABLE, str(tmp_path))
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def token_of(source: str) -> str:
    return source.replace(" ", "-").ljust(40, "x")


def parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    profiles.add_option(parser)
    admin_token.add_option(parser)
    found = parser.parse_args(arguments)
    profiles.resolve(found)
    return found


@pytest.mark.parametrize("first", range(len(SOURCES)))
async def test_of_several_sources_the_first_one_counts(
    first: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given = SOURCES[first:]
    files = {source: tmp_path / source.replace(" ", "-") for source in given}
    for source, file in files.items():
        file.write_text(f"# version 1\n{token_of(source)}\n{token_of('older')}\n")
    arguments = [f"--admin-token-file={files['option']}"] if "option" in given else []
    if "profile" in given:
        (tmp_path / "dledger").mkdir()
        (tmp_path / "dledger" / "config.toml").write_text(
            f'default = "p"\n[profiles.p]\nadmin_token_file = "{files["profile"]}"\n'
        )
    for source, name, value in (
        ("file variable", admin_token.FILE_VARIABLE, str(files.get("file variable"))),
        ("variable", admin_token.VARIABLE, token_of("variable")),
        ("member", admin_token.MEMBER_FILE_VARIABLE, str(files["member"])),
    ):
        if source in given:
            monkeypatch.setenv(name, value)

    assert await admin_token.read(parsed(*arguments)) == token_of(SOURCES[first])


async def test_without_any_source_no_token_is_sent() -> None:
    assert await admin_token.read(parsed()) == ""


async def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nowhere"):
        await admin_token.read(parsed(f"--admin-token-file={tmp_path}/nowhere"))


async def test_a_file_that_no_system_can_have_is_named() -> None:
    """An option has no NUL, but a profile may."""
    with pytest.raises(UsageError, match=r"token in 'a\\x00b': embedded null byte"):
        await admin_token.read(parsed("--admin-token-file=a\0b"))


async def test_a_wrong_token_is_named_by_its_source_and_not_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(admin_token.VARIABLE, "too-short")

    with pytest.raises(UsageError) as caught:
        await admin_token.read(parsed())

    assert admin_token.VARIABLE in str(caught.value)
    assert "too-short" not in str(caught.value)


def test_the_audit_tokens_of_all_tokens_of_a_file_are_computed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokens = AdminTokens(accepted=(token_of("new"), token_of("old")), version="2")
    (tmp_path / "admin.token").write_text(tokens.to_text())

    assert main(["audit-token", f"--admin-token-file={tmp_path}/admin.token"]) == 0

    printed, complaint = capsys.readouterr()
    assert AdminTokens.parse(printed.encode()) == tokens.for_audits()
    assert (printed, complaint) == (tokens.for_audits().to_text(), "")


def test_without_an_administration_token_there_is_no_audit_token(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["audit-token"]) == 2

    printed, complaint = capsys.readouterr()
    assert printed == ""
    assert "--admin-token-file" in complaint


def test_a_node_ignores_the_variables_of_the_command_line() -> None:
    assert {admin_token.FILE_VARIABLE, admin_token.VARIABLE} <= COMMAND_LINE_VARIABLES
