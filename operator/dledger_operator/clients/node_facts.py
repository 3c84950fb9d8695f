"""The fields of Nodes that the operator reads from a LIST.

The rest of a Node, which is nearly all of it, is skipped: that is much cheaper than decoding it.
"""

from typing import Final

import msgspec
from lightkube.core.resource import ApiInfo, GlobalResource, api_info
from lightkube.resources.core_v1 import Node


class _Metadata(msgspec.Struct, omit_defaults=True):
    name: str
    resourceVersion: str  # noqa: N815 - the API's name
    labels: dict[str, str] | None = None


class _Taint(msgspec.Struct, omit_defaults=True):
    key: str
    effect: str
    value: str | None = None


class _Spec(msgspec.Struct, omit_defaults=True):
    unschedulable: bool = False
    taints: list[_Taint] | None = None


class _Condition(msgspec.Struct):
    type: str
    status: str


class _Status(msgspec.Struct, omit_defaults=True):
    conditions: list[_Condition] | None = None


class NodeFacts(GlobalResource, msgspec.Struct, omit_defaults=True):
    """A part of a Node, with the API's names."""

    metadata: _Metadata
    spec: _Spec | None = None
    status: _Status | None = None


NODE: Final[ApiInfo] = api_info(Node)
NodeFacts._api_info = NODE
