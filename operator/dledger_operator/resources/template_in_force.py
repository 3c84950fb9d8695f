"""What the existing pod template of a StatefulSet, perhaps of an earlier release, sets for pods."""

from typing import Final

from dledger_formats.live_settings import LIVE
from dledger_formats.settings import variable_name
from dledger_operator import names
from dledger_operator.api_objects import Manifest

_LIVE_VARIABLES: Final = frozenset(map(variable_name, LIVE))


def reads_live_settings(template: Manifest) -> bool:
    """Return whether the pods read the file with live settings."""
    return variable_name("live_settings_file") in _environment(template)


def live_in_environment(template: Manifest) -> dict[str, str]:
    """Return the live settings that the pods have in their environment.

    They were not live settings in the release that built the template. Members of that release
    refuse a file that has one.
    """
    environment = _environment(template)
    return {name: value for name, value in environment.items() if name in _LIVE_VARIABLES}


def member_containers(template: Manifest) -> list[Manifest]:
    """Return the member's container, in a list; empty if the template has none."""
    containers = template.get("spec", {}).get("containers", [])
    return [each for each in containers if each.get("name") == names.NODE_CONTAINER]


def _environment(template: Manifest) -> dict[str, str]:
    return {
        each["name"]: each.get("value") or ""
        for container in member_containers(template)
        for each in container.get("env") or []
    }
