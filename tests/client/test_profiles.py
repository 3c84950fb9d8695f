"""Profiles in config.toml, and the completion that uses them."""

import argparse
import errno
import os
from pathlib import Path
from typing import Any

import pytest

from dledger_client.cli import main
from dledger_client.commands import member_names, profiles
from dledger_fake_server.group import Group

VARIABLES = (*profiles.VARIABLES.values(), profiles.PROFILE_VARIABLE)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group_in_thread: Group) -> Path:
    """A file with a profile of the group, and one of a group that is nowhere."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    group_in_thread.log = [b"hello"]
    path = tmp_path / "dledger" / "config.toml"
    path.parent.mkdir()
    path.write_text(
        f"""
        [profiles.ours]
        servers = "{",".join(group_in_thread.servers)}"
        group = "g0"
        [profiles.nowhere]
        servers = "127.0.0.1:1"
        group = "other"
        """
    )
    return path


def be_default(config: Path, name: str) -> None:
    config.write_text(f'default = "{name}"\n' + config.read_text())


@pytest.mark.usefixtures("config")
def test_a_profile_that_is_named_selects_the_group(
    capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DLEDGER_CLIENT_GROUP", "of the environment")
    assert main(["get", "0", "--profile", "ours"]) == 0

    monkeypatch.setenv("DLEDGER_CLIENT_PROFILE", "ours")
    assert main(["get", "0"]) == 0
    assert capfdbinary.readouterr().out == b"hello\n" * 2


def arguments_of(*given: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name in ("servers", "group", "http", "http-port", "profile", "admin-token-file"):
        parser.add_argument(f"--{name}")
    arguments = parser.parse_args(given)
    profiles.resolve(arguments)
    return arguments


@pytest.mark.parametrize("source", ["variables", "profile"])
def test_pages_of_one_group_are_not_asked_for_the_servers_of_another(
    config: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    """Otherwise `dledger status --servers` shows the group whose pages are exported."""
    config.write_text('[profiles.ours]\nservers = "a:1"\ngroup = "g"\nhttp = "a:2"')
    if source == "variables":
        monkeypatch.setenv("DLEDGER_CLIENT_SERVERS", "a:1")
        monkeypatch.setenv("DLEDGER_CLIENT_HTTP", "a:2")
    else:
        monkeypatch.setenv("DLEDGER_CLIENT_PROFILE", "ours")

    assert (arguments_of().servers, arguments_of().http) == ("a:1", "a:2")
    assert (arguments_of("--servers=b:1").servers, arguments_of("--servers=b:1").http) == (
        "b:1",
        None,
    )
    assert arguments_of("--servers=b:1", "--http=b:2").http == "b:2"


def test_the_token_of_a_profile_is_not_sent_to_the_servers_of_another_group(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config.write_text(
        '[profiles.ours]\nservers = "a:1"\ngroup = "g"\nadmin_token_file = "ours.token"'
    )
    monkeypatch.setenv("DLEDGER_CLIENT_PROFILE", "ours")

    assert arguments_of().admin_token_file == "ours.token"
    assert arguments_of("--servers=b:1").admin_token_file is None
    assert arguments_of("--servers=b:1", "--admin-token-file=b").admin_token_file == "b"


def test_the_default_profile_is_used_if_nothing_else_is_said(
    config: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    be_default(config, "ours")

    assert main(["get", "0"]) == 0
    assert main(["get", "0", "--profile", "nowhere", "--deadline", "0.2"]) == 5
    assert capfdbinary.readouterr().out == b"hello\n"


def test_variables_are_not_completed_by_the_default_profile(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    be_default(config, "ours")
    monkeypatch.setenv("DLEDGER_CLIENT_SERVERS", "127.0.0.1:1")

    assert main(["get", "0"]) == 2
    assert "no name of the group given: use --group, set " in capsys.readouterr().err


def test_the_name_of_a_group_alone_is_told_to_lack_servers(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    be_default(config, "ours")

    assert main(["get", "0", "--group", "g0"]) == 2
    assert capsys.readouterr().err == (
        "dledger: no servers given: use --servers, set DLEDGER_CLIENT_SERVERS, or name a --profile "
        "that has them\n"
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "[profiles.a]\nserver = 'x'",
            "is invalid: profile 'a': it has the key 'server', which means nothing; see docs",
        ),
        (
            "[profiles.a]\n[profiles.b]\nservers = 5",
            "profile 'b': servers must be a text in quotes, ",
        ),
        ("[profiles]\na = true", "profile 'a': it must be a table, and is true or false; see"),
        ("profiles = 5", "is invalid: profiles must be a table, and is a number; see docs"),
        ("default = 3", "is invalid: default must be a text in quotes, and is a number; see docs"),
        ("[profiles", "is invalid: "),
        ("[profiles.a]", "has no profile 'ours'; the profiles there are: a"),
        ("#" * (profiles.CONFIG_BYTES_MAX + 1), "has more than"),
        ("a = " + "[" * 5000, "is invalid: it has too many brackets within brackets"),
    ],
)
def test_a_wrong_file_is_a_usage_error(
    config: Path, capsys: pytest.CaptureFixture[str], content: str, message: str
) -> None:
    config.write_text(content)

    assert main(["get", "0", "--profile", "ours"]) == 2
    printed = capsys.readouterr().err
    assert message in printed
    assert str(config) in printed


@pytest.mark.parametrize(
    ("content", "variable", "message"),
    [
        ("default = 'q'", "", "has no profile 'q', its own default; the profiles there are: none"),
        ("", "q", "has no profile 'q', which $DLEDGER_CLIENT_PROFILE names; the profiles there"),
    ],
)
def test_a_profile_that_no_option_names_is_told_with_what_names_it(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    content: str, variable: str, message: str,
) -> None:  # fmt: skip
    config.write_text(content)
    monkeypatch.setenv("DLEDGER_CLIENT_PROFILE", variable)

    assert main(["get", "0"]) == 2
    assert message in capsys.readouterr().err


def test_a_folder_in_place_of_the_file_is_a_usage_error(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.unlink()
    config.mkdir()

    assert main(["get", "0", "--profile", "ours"]) == 2
    assert capsys.readouterr().err == f"dledger: cannot read {config}: Is a directory\n"


def test_a_file_that_may_not_be_read_is_a_usage_error(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened = os.open

    def denied(path: Any, *given: Any, **named: Any) -> int:
        if str(path) == str(config):  # root may read every file
            raise PermissionError(errno.EACCES, "Permission denied")
        return opened(path, *given, **named)

    monkeypatch.setattr(os, "open", denied)

    assert main(["get", "0", "--profile", "ours"]) == 2
    assert capsys.readouterr().err == f"dledger: cannot read {config}: Permission denied\n"


@pytest.mark.usefixtures("config")
def test_a_shell_is_told_the_members_and_the_profiles() -> None:
    arguments = argparse.Namespace(profile="ours", servers=None, group=None)

    assert member_names.members(arguments) == ["n0", "n1", "n2"]
    assert profiles.complete_profiles() == ["nowhere", "ours"]


@pytest.mark.usefixtures("config")
def test_a_shell_is_told_nothing_about_a_group_that_cannot_be_reached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(member_names, "DEADLINE_S", 0.1)
    arguments = argparse.Namespace(profile="nowhere", servers=None, group=None)

    assert member_names.members(arguments) == []


@pytest.mark.usefixtures("config")
def test_a_port_of_the_pages_takes_precedence_over_addresses_that_are_not_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DLEDGER_CLIENT_GROUP", "g0")
    monkeypatch.setenv("DLEDGER_CLIENT_HTTP", "127.0.0.1:1")
    assert arguments_of().http == "127.0.0.1:1"

    found = arguments_of("--http-port", "7777")
    assert (found.group, found.http, found.http_port) == ("g0", None, "7777")


@pytest.mark.parametrize("command", ["status", "health", "wait"])
def test_a_port_and_addresses_of_the_pages_exclude_each_other(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([command, "--http", "127.0.0.1:1", "--http-port", "7777"])
    assert "--http-port: not allowed with argument --http" in capsys.readouterr().err


def test_a_file_of_profiles_that_is_a_named_pipe_is_refused_at_once(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.unlink()
    os.mkfifo(config)

    assert main(["get", "0"]) == 2
    assert capsys.readouterr().err == (
        f"dledger: cannot read {config}: it is a named pipe, and a regular file is needed\n"
    )
