"""Profiles: named groups in `~/.config/dledger/config.toml`.

    default = "orders"    # optional: used if nothing else selects a group

    [profiles.orders]
    servers = "orders-nodes:40911"
    group = "orders"
    http = "orders-0:40912,orders-1:40912"    # optional
    admin_token_file = "/run/secrets/orders.token"    # optional

All that selects a group comes from one place: from options first, then from a profile that is
named, then from the variables, and from the default profile last. Variables do not complete a named
profile, and the default profile is used only if no option and no variable selects anything, so that
the servers of one group are never combined with the name of another. With `--servers`, only
`--http` says where the pages are, and the token of a profile is not used: it would be sent to
servers that are not the profile's.
"""

import argparse
import dataclasses
import os
import re
import tomllib
from pathlib import Path
from typing import Final

import msgspec

from dledger_formats.command_line_variables import misspelled
from dledger_formats.plain_files import read_start
from dledger_formats.settings import NodeSettings, variable_name

SERVERS_VARIABLE: Final = "DLEDGER_CLIENT_SERVERS"
GROUP_VARIABLE: Final = "DLEDGER_CLIENT_GROUP"
HTTP_VARIABLE: Final = "DLEDGER_CLIENT_HTTP"
PROFILE_VARIABLE: Final = "DLEDGER_CLIENT_PROFILE"
VARIABLES: Final = {
    "servers": SERVERS_VARIABLE,
    "group": GROUP_VARIABLE,
    "http": HTTP_VARIABLE,
}
"""The variable of each option that selects a group."""
CONFIG_VARIABLE: Final = "XDG_CONFIG_HOME"
CONFIG_BYTES_MAX: Final = 1 << 20
NAME_SHOWN_MAX: Final = 40
"""Length to which the name of a missing profile is cut in a message."""


_KINDS: Final = {
    "int": "a number", "float": "a number", "bool": "true or false", "str": "a text",
    "array": "a list", "object": "a table",
}  # fmt: skip
"""The names of TOML for the kinds of values that msgspec names."""


class ProfileError(Exception):
    """The profiles cannot be read, or there is no such profile."""


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options that select a group."""

    servers: str | None = None
    group: str | None = None
    http: str | None = None
    admin_token_file: str | None = None
    """The file with the group's administration token."""


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of the file."""

    default: str | None = None
    profiles: dict[str, Profile] = {}


def add_option(parser: argparse.ArgumentParser) -> None:
    """Add `--profile`."""
    option = parser.add_argument(
        "--profile",
        metavar="NAME",
        help="take the servers and the name of the group from this profile in "
        f"~/.config/dledger/config.toml (default: ${PROFILE_VARIABLE}, then the default profile "
        "of the file)",
    )
    option.completer = lambda **_: complete_profiles()  # type: ignore[attr-defined]


def resolve(arguments: argparse.Namespace) -> None:
    """Fill in what the options leave open about the group. Raises ProfileError.

    Commands without such options are left alone.
    """
    if not hasattr(arguments, "profile"):
        return
    _refuse_misspelled()
    is_led_elsewhere = getattr(arguments, "servers", None) is not None
    wanted = _open_options(arguments, is_led_elsewhere=is_led_elsewhere)
    named = arguments.profile or os.environ.get(PROFILE_VARIABLE)
    if not named:
        for name in wanted:
            if getattr(arguments, name) is None:
                setattr(arguments, name, os.environ.get(VARIABLES[name]) or None)
        if any(getattr(arguments, name) is not None for name in wanted):
            return
        if getattr(arguments, "folder", None) is not None:
            return  # a folder does not name its group, which may not be the default one
    config = load()
    name_used = named or config.default
    if not name_used:
        return
    named_by = ""
    if not arguments.profile:
        named_by = f", which ${PROFILE_VARIABLE} names" if named else ", its own default"
    profile = _profile(config, name_used, named_by)
    for name in wanted:
        if getattr(arguments, name) is None:
            setattr(arguments, name, getattr(profile, name))
    if getattr(arguments, "admin_token_file", "") is None and not is_led_elsewhere:
        arguments.admin_token_file = profile.admin_token_file


def _refuse_misspelled() -> None:
    """Raise ProfileError for a misspelled variable: another group would be used without it."""
    settings_of_members = {variable_name(item.name) for item in dataclasses.fields(NodeSettings)}
    if found := misspelled(os.environ.keys() - settings_of_members):
        raise ProfileError(f"there is no variable {found[0]}; did you mean {found[1]}?")


def _profile(config: Config, name: str, named_by: str) -> Profile:
    """Return a profile. Raises ProfileError if there is none, with what names it."""
    if name not in config.profiles:
        known = ", ".join(sorted(config.profiles)) or "none"
        raise ProfileError(
            f"{config_path()} has no profile {name[:NAME_SHOWN_MAX]!a}{named_by}; the profiles "
            f"there are: {known}"
        )
    return config.profiles[name]


def _open_options(arguments: argparse.Namespace, *, is_led_elsewhere: bool) -> list[str]:
    """Return the options of a command that variables and profiles may fill in."""
    # Variables and profiles may name the pages of another group than that of --servers.
    has_port = getattr(arguments, "http_port", None) is not None
    names = [name for name in VARIABLES if hasattr(arguments, name)]
    return [name for name in names if name != "http" or not (is_led_elsewhere or has_port)]


def load() -> Config:
    """Read the profiles; a missing file has none. Raises ProfileError."""
    path = config_path()
    try:
        raw = read_start(path, CONFIG_BYTES_MAX + 1)
        if len(raw) > CONFIG_BYTES_MAX:
            raise ProfileError(f"{path} has more than {CONFIG_BYTES_MAX} bytes")
        return _convert(tomllib.loads(raw.decode()))
    except FileNotFoundError:
        return Config()
    except OSError as error:
        raise ProfileError(f"cannot read {path}: {error.strerror}") from error
    except RecursionError as error:  # of the TOML parser
        nested = "it has too many brackets within brackets"
        raise ProfileError(f"{path} is invalid: {nested}; see docs/client.md") from error
    except ValueError as error:  # of the TOML, of its text, or of what it holds
        raise ProfileError(f"{path} is invalid: {error}; see docs/client.md") from error


def _convert(content: dict[str, object]) -> Config:
    """Return the profiles of a file. Raises ValueError, which names the profile that is wrong."""
    try:
        return msgspec.convert(content, Config)
    except msgspec.ValidationError as error_of_file:
        found = content.get("profiles")
        for name, profile in found.items() if isinstance(found, dict) else ():
            try:
                msgspec.convert(profile, Profile)
            except msgspec.ValidationError as error:
                raise ValueError(f"profile {name!a}: {_in_words(error)}") from error
        raise ValueError(_in_words(error_of_file)) from error_of_file


def _in_words(error: msgspec.ValidationError) -> str:
    """Return what is wrong with a value or a key, in the words of TOML."""
    text = str(error)
    if found := re.fullmatch(r"Object contains unknown field `(.*?)`(?: - at `.*`)?", text):
        return f"it has the key {found[1]!a}, which means nothing"
    if found := re.fullmatch(r"Expected `(.*)`, got `(.*?)`(?: - at `\$\.(.*)`)?", text):
        wanted = "a table" if found[1].startswith("object") else "a text in quotes"
        return f"{found[3] or 'it'} must be {wanted}, and is {_KINDS.get(found[2], found[2])}"
    return text


def config_path() -> Path:
    """Return where the profiles are. Raises ProfileError if the user has no home folder."""
    if folder := os.environ.get(CONFIG_VARIABLE):
        return Path(folder) / "dledger" / "config.toml"
    try:
        return Path.home() / ".config" / "dledger" / "config.toml"
    except RuntimeError as error:
        raise ProfileError(
            f"cannot find the profiles: this user has no home folder; set HOME or {CONFIG_VARIABLE}"
        ) from error


def complete_profiles() -> list[str]:
    """Return the names of the profiles, for a shell that completes `--profile`."""
    try:
        return sorted(load().profiles)
    except ProfileError:
        return []
