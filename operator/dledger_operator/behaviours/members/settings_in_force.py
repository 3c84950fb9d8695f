"""Compares the live settings that a member has in force with those of the spec. Pure."""

from dledger_formats import live_settings
from dledger_formats.http.status import NodeStatus
from dledger_operator.resources.config_map import live_values
from dledger_operator.spec.group import Group
from dledger_operator.spec.shape import Shape


def lacking_settings(group: Group, status: NodeStatus) -> str:
    """Return what a member lacks, as text; empty if it has all in force.

    A member that refuses the file says why. A setting that the spec does not set must have the
    default, since a key that was removed from the spec must not stay in force.
    """
    if not status.settings and not status.ready:
        return ""  # a member that is out of service tells nothing
    shape = Shape.of_new(group.replicas)
    chosen = live_values(group, shape)
    wanted = live_settings.in_force(group.node_settings(shape))
    lacking = [
        f"{name} is {status.settings.get(name, 'not known')} instead of {value}"
        for name, value in wanted.items()
        if status.settings.get(name) != value and (name in chosen or name in status.settings)
    ]
    if not lacking:
        return ""
    return "; ".join([*lacking, *filter(None, [status.settings_problem])])
