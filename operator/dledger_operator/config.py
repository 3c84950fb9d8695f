"""The operator's own settings: flags win over `DLEDGER_OPERATOR_*` variables, unknown ones are
refused.
"""

import argparse
import dataclasses
import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dledger_operator.spec.group import IMAGE_PULL_POLICIES, ImageDefaults

PREFIX: Final = "DLEDGER_OPERATOR_"
LOG_FORMATS: Final = ("text", "json")
LOG_LEVELS: Final = ("debug", "info", "warning", "error")


class SettingsError(ValueError):
    """A setting is missing, unknown or out of range; the message names it and what is allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSettings:
    """What an installation chooses; `_HELP` tells what each means."""

    node_image: str
    audit_image: str
    image_pull_policy: str = IMAGE_PULL_POLICIES[0]
    watch_namespaces: tuple[str, ...] = ()
    metrics_port: int = 8080
    health_port: int = 8081
    log_format: str = LOG_FORMATS[0]
    log_level: str = "info"

    def image_defaults(self, reference: str) -> ImageDefaults:
        """One of the two images, with the policy that goes with it."""
        return ImageDefaults(reference=reference, pull_policy=self.image_pull_policy)


_HELP: Final = {
    "node_image": "image of members whose spec names none (required)",
    "audit_image": "image of audit Jobs (required)",
    "image_pull_policy": "when nodes pull these two images",
    "watch_namespaces": "comma-separated namespaces to watch; empty for all",
    "metrics_port": "port of /metrics",
    "health_port": "port of /healthz",
    "log_format": "text for people, json for collectors",
    "log_level": "what is logged",
}
_CHOICES: Final = {
    "image_pull_policy": IMAGE_PULL_POLICIES,
    "log_format": LOG_FORMATS,
    "log_level": LOG_LEVELS,
}


def read(arguments: Sequence[str], environment: Mapping[str, str]) -> OperatorSettings:
    """Read flags and variables; SettingsError names the first one that is wrong."""
    _refuse_unknown(environment)
    parser = argparse.ArgumentParser(
        prog="dledger-operator",
        description="Runs DLedger groups on Kubernetes.",
        epilog=f"Each flag has a variable: --node-image is {PREFIX}NODE_IMAGE.",
    )
    for item in dataclasses.fields(OperatorSettings):
        parser.add_argument(
            "--" + item.name.replace("_", "-"),
            default=environment.get(_variable(item.name)),
            help=_HELP[item.name],
        )
    given = {name: text for name, text in vars(parser.parse_args(arguments)).items() if text}
    values: dict[str, Any] = {name: _parse(name, text) for name, text in given.items()}
    for item in dataclasses.fields(OperatorSettings):
        if item.default is dataclasses.MISSING and item.name not in values:
            raise SettingsError(f"{_variable(item.name)} is not set: {_HELP[item.name]}")
    return OperatorSettings(**values)


def _variable(field_name: str) -> str:
    return PREFIX + field_name.upper()


def _refuse_unknown(environment: Mapping[str, str]) -> None:
    known = [item.name.upper() for item in dataclasses.fields(OperatorSettings)]
    for name in sorted(environment):
        rest = name.removeprefix(PREFIX)
        if rest != name and rest not in known:
            near = difflib.get_close_matches(rest, known, n=1)
            listed = ", ".join(PREFIX + each for each in near or known)
            hint = f"did you mean {listed}?" if near else f"known are {listed}"
            raise SettingsError(f"unknown setting {name}; {hint}")


def _parse(name: str, text: str) -> object:
    if name == "watch_namespaces":
        return tuple(part.strip() for part in text.split(",") if part.strip())
    if name.endswith("_port"):
        if not text.isdigit() or not 0 < int(text) < 65536:
            raise SettingsError(f"{_variable(name)} is {text!r}; a port is expected")
        return int(text)
    if name in _CHOICES and text not in _CHOICES[name]:
        raise SettingsError(
            f"{_variable(name)} is {text!r}; it must be {' or '.join(_CHOICES[name])}"
        )
    return text
