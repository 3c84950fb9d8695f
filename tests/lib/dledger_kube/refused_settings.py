"""Settings of members that the schema refuses, with the server's answer."""

from api_server.objects import Object

IMMUTABLE_STATE = "stateMachine.type cannot change from Register to None"


def retention(**given: object) -> Object:
    return {"log": {"retention": given}}


REFUSED_SETTINGS: dict[str, tuple[Object, str]] = {
    "less than two segments": (
        retention(maxBytes="2047Mi"),
        "log.retention.maxBytes is 2047Mi, log.segmentSize is 1Gi and storage.size is 30Gi: ",
    ),
    "more than the volume": (retention(maxBytes="30Gi"), "and less than the volume"),
    "a retention that removes nothing": (
        retention(disk={"forceCleanPercent": 90}),
        "retention removes nothing without maxAge or maxBytes: set one of them",
    ),
    "an age of no whole hours": (retention(maxAge="90m"), "spec.log.retention.maxAge in body"),
    "an age of a century and a day": (
        retention(maxAge="878401h"),
        "maxAge must not exceed 878400h, but is 878401h",
    ),
    "an hour that no day has": (
        retention(maxAge="1h", deleteHours=[24]),
        "spec.log.retention.deleteHours[0] in body should be less than or equal to 23",
    ),
    "appends refused before anything expires": (
        retention(maxAge="1h", disk={"fullPercent": 60}),
        "checkExpiredPercent must not exceed fullPercent: a leader would refuse appends before",
    ),
    "force after appends are refused": (
        retention(maxAge="1h", disk={"forceCleanPercent": 95, "fullPercent": 90}),
        "forceCleanPercent must lie between checkExpiredPercent and fullPercent, or be 100",
    ),
    "force before anything expires": (
        retention(maxAge="1h", disk={"forceCleanPercent": 60}),
        "forceCleanPercent must lie between checkExpiredPercent and fullPercent, or be 100",
    ),
    "a scrub that takes over a year": (
        {"log": {"scrubInterval": "8785h"}},
        "scrubInterval must be between 1s and 8784h, but is 8785h",
    ),
    "an unknown reaction to damage": ({"log": {"onDamage": "Panic"}}, '"Heal", "StayOut"'),
    "no connection at all": (
        {"limits": {"connections": 0}},
        "spec.limits.connections in body should be greater than or equal to 1",
    ),
    "a frame too small": (
        {"limits": {"frameBytes": "63Ki"}},
        "frameBytes must be between 64Ki and 16Mi, but is 63Ki",
    ),
    "more bytes than a disk writes": (
        {"limits": {"bytesPerSecondPerAddress": "1025Ti"}},
        "bytesPerSecondPerAddress must not exceed 1Pi, but is 1025Ti",
    ),
    "an unknown state machine": ({"stateMachine": {"type": "Counter"}}, '"None", "Register"'),
    "no snapshot": (
        {"stateMachine": {"snapshotsReserved": 0}},
        "spec.stateMachine.snapshotsReserved in body should be greater than or equal to 1",
    ),
    "an unknown word for appends": ({"appendsToFollowers": "Yes"}, '"PassOn", "Refuse"'),
    "an unknown log level": ({"logLevel": "debug"}, 'supported values: "Debug", "Info"'),
}
