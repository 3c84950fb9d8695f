"""The machine's pip settings, made available to an image build without a trace in the image.

A build runs pip inside a container, which has neither the machine's configuration files nor its
environment. They are merged into one file, which is mounted during the build together with the
files and folders that it names.
"""

from __future__ import annotations

import configparser
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

# PIP_ variables that are not options of pip, or that would change the result of a build.
_NOT_OPTIONS = {"config-file", "user", "target", "prefix", "root", "require-virtualenv"}
CONFIG_IN_BUILD = "/etc/pip.conf"


def configuration_files(environment: Mapping[str, str], home: Path) -> list[Path]:
    """Return pip's configuration files in the order in which pip reads them; later ones win."""
    base = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
    files = [Path("/etc/pip.conf"), home / ".pip" / "pip.conf", base / "pip" / "pip.conf"]
    own = environment.get("PIP_CONFIG_FILE")
    if own == os.devnull:
        return []
    return [*files, Path(own)] if own else files


def merge(environment: Mapping[str, str], files: Iterable[Path]) -> dict[str, str]:
    """Return the options of `pip install`; the environment wins over files, as in pip."""
    options: dict[str, str] = {}
    for section in ("global", "install"):
        for file in files:
            parser = configparser.RawConfigParser()
            parser.read(file)
            if parser.has_section(section):
                options.update(parser.items(section))
    for name, value in environment.items():
        if name.startswith("PIP_") and value:
            options[name.removeprefix("PIP_").lower().replace("_", "-")] = value
    return {name: value for name, value in sorted(options.items()) if name not in _NOT_OPTIONS}


def text(options: Mapping[str, str]) -> str:
    """Return the options as the text of a configuration file."""
    lines = ["[global]"]
    for name, value in options.items():
        # An indented line continues a list of values.
        lines.append(f"{name} = " + "\n    ".join(value.split("\n")))
    return "\n".join(lines) + "\n"


def named_paths(options: Mapping[str, str]) -> list[Path]:
    """Return the files and folders of this machine that the options name."""
    words = {word.removeprefix("file://") for value in options.values() for word in value.split()}
    return sorted(Path(word) for word in words if word.startswith("/") and Path(word).exists())
