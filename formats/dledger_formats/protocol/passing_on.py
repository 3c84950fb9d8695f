"""Appends that a follower passes on to its leader, an extension of this project.

A client marks its requests with a flag of the frame. The follower sends a plain append on with
another flag, and with the identity of its group in the frame's ext fields.
"""

from typing import Final

PASS_ON_FLAG: Final = 1 << 16
"""In a client's request: a member that does not lead may pass an append on to its leader. Java has
the flags 1 and 2, and ignores others.
"""
PASSED_ON_FLAG: Final = 1 << 17
"""In an append that a member has passed on: it is not passed on again."""
GROUP_IDENTITY_FIELD: Final = "groupIdentity"
"""The ext field of an append that was passed on: the identity of the group it is meant for."""
