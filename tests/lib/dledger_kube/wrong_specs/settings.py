"""Wrong settings of members."""

from typing import Final

from api_server.objects import Object


def retention(**given: object) -> Object:
    return {"log": {"retention": given}}


WRONG_SETTINGS: Final[dict[str, Object]] = {
    "less than two segments": retention(maxBytes="2047Mi"),
    "more than the volume": retention(maxBytes="30Gi"),
    "a retention that removes nothing": retention(disk={"forceCleanPercent": 90}),
    "an age of no whole hours": retention(maxAge="90m"),
    "an age of a century and a day": retention(maxAge="878401h"),
    "an hour that no day has": retention(maxAge="1h", deleteHours=[24]),
    "appends refused before anything expires": retention(maxAge="1h", disk={"fullPercent": 60}),
    "force after appends are refused": retention(
        maxAge="1h", disk={"forceCleanPercent": 95, "fullPercent": 90}
    ),
    "force before anything expires": retention(maxAge="1h", disk={"forceCleanPercent": 60}),
    "a scrub that takes over a year": {"log": {"scrubInterval": "8785h"}},
    "an unknown reaction to damage": {"log": {"onDamage": "Panic"}},
    "no connection at all": {"limits": {"connections": 0}},
    "a frame too small": {"limits": {"frameBytes": "63Ki"}},
    "more bytes than a disk writes": {"limits": {"bytesPerSecondPerAddress": "1025Ti"}},
    "an unknown state machine": {"stateMachine": {"type": "Counter"}},
    "no snapshot": {"stateMachine": {"snapshotsReserved": 0}},
    "an unknown word for appends": {"appendsToFollowers": "Yes"},
    "an unknown log level": {"logLevel": "debug"},
    "a retention in words": retention(maxBytes="all"),
    "an hour that is named twice": retention(maxAge="1h", deleteHours=[4, 4]),
    "more than a full disk": retention(maxAge="1h", disk={"fullPercent": 101}),
    "a scrub at no interval": {"log": {"scrubInterval": "weekly"}},
    "a frame in words": {"limits": {"frameBytes": "big"}},
    "a frame too large": {"limits": {"frameBytes": "17Mi"}},
    "bytes a second with a unit of time": {"limits": {"bytesPerSecondPerAddress": "10Mi/s"}},
    "a negative limit": {"limits": {"pendingAppends": -1}},
    "a snapshot after every nothing": {"stateMachine": {"snapshotThreshold": 0}},
}
