"""Compares the live settings that a member has in force with those of the spec. Pure."""

from dledger_formats import live_settings
from dledger_formats.http.status import NodeStatus
from dledger_operator.resources.config_map import live_values
from dledger_operator.spec.group import Group
from dledger_operator.spec.shape import Shape


class WantedSettings:
    """The live settings that the members of a group should have in force."""

    def __init__(self, group: Group, not_live: frozenset[str] = frozenset()) -> None:
        """Compute the settings from the spec; this costs more than the comparison with a member.

        `not_live` names those that only a roll brings, which is planned and reported separately.
        """
        shape = Shape.of_new(group.replicas)
        self._chosen = live_values(group, shape)
        wanted = live_settings.in_force(group.node_settings(shape))
        self._wanted = {name: value for name, value in wanted.items() if name not in not_live}

    def lacking(self, status: NodeStatus) -> str:
        """Return what a member lacks, as text; empty if it has all in force.

        A member that refuses the file says why. A setting that the spec does not set must have the
        default, since a key that was removed from the spec must not stay in force.
        """
        reported = status.settings
        if not reported and not status.ready:
            return ""  # a member that is out of service reports nothing
        lacking = [
            f"{name} is {reported.get(name, 'not known')} instead of {value}"
            for name, value in self._wanted.items()
            if reported.get(name) != value and (name in self._chosen or name in reported)
        ]
        if not lacking:
            return ""
        return "; ".join([*lacking, *filter(None, [status.settings_problem])])
