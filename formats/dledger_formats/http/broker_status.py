"""What a member reports about its RocketMQ broker, as a part of `/status`."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class NameServerStatus:
    """Whether a member is registered at one name server."""

    address: str
    """Host and port of the name server, as in the settings."""
    registered: bool
    problem: str = ""
    """Human-readable reason why the last registration failed; empty while it is registered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerStatus:
    """One member's view of its broker."""

    name: str
    """The broker's name in routes."""
    cluster: str
    address: str
    """IP and port that this member announces to clients."""
    serving: bool
    """Whether the member accepts clients of the broker."""
    reason: str
    """Human-readable reason why the member does not; empty if it does."""
    topics: int = 0
    """Number of topics, including those of the system and of retries."""
    consumer_groups: int = 0
    unbuilt_entries: int = 0
    """Entries that are applied, and whose messages are in no consume queue yet."""
    name_servers: list[NameServerStatus] = field(default_factory=list)
