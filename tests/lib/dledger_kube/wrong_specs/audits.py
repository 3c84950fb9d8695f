"""Wrong settings of the audits that a group asks for: fields added to 30Gi of storage."""

from typing import Final

from api_server.objects import Object

WRONG_AUDITS: Final[dict[str, Object]] = {
    "audits at no time": {"audit": {}},
    "only a number of audits": {"audit": {"keep": 3}},
    "a schedule of four fields": {"audit": {"schedule": "0 3 * *"}},
    "a schedule in words": {"audit": {"schedule": "every night"}},
    "a schedule with its time zone inside": {"audit": {"schedule": "TZ=UTC 0 3 * * *"}},
    "a schedule of no length": {"audit": {"schedule": ""}},
    "a time zone with a space": {"audit": {"schedule": "@daily", "timeZone": "Europe/New York"}},
    "a time zone that is a path": {"audit": {"schedule": "@daily", "timeZone": "../etc/passwd"}},
    "a time zone for no schedule": {"audit": {"afterFailover": True, "timeZone": "UTC"}},
    "no audit to keep": {"audit": {"schedule": "@daily", "keep": 0}},
    "a thousand audits to keep": {"audit": {"schedule": "@daily", "keep": 1000}},
    "an audit that finds keys in no way": {"audit": {"schedule": "@daily", "decoder": "keys"}},
    "an audit that reads in words": {"audit": {"schedule": "@daily", "readRate": "fast"}},
    "an audit that reads for years": {"audit": {"schedule": "@daily", "readRate": "1k"}},
    "an audit that asks for more than its limit": {
        "audit": {
            "schedule": "@daily",
            "resources": {"requests": {"memory": "3Gi"}, "limits": {"memory": "2Gi"}},
        }
    },
    "an audit with memory in words": {
        "audit": {"schedule": "@daily", "resources": {"limits": {"memory": "much"}}}
    },
    "an audit with code of its own in executors": {
        "audit": {"schedule": "@daily", "decoder": "os:system", "executors": {"max": 2}}
    },
    "an audit with executors that request too little": {
        "audit": {
            "schedule": "@daily",
            "executors": {"max": 2, "resources": {"requests": {"memory": "1Gi"}}},
        }
    },
    "an audit with executors of too little memory": {
        "audit": {
            "schedule": "@daily",
            "executors": {"max": 2, "resources": {"limits": {"memory": "1Gi"}}},
        }
    },
    "an audit with executors that have no time to start": {
        "audit": {"schedule": "@daily", "executors": {"max": 2, "startWithin": "9s"}}
    },
    "a history that is kept nowhere": {"audit": {"schedule": "@daily", "history": {}}},
    "a history that is kept twice": {
        "audit": {
            "schedule": "@daily",
            "history": {
                "persistentVolumeClaim": {"claimName": "audits"},
                "uri": "hdfs://namenode/audits",
            },
        }
    },
    "a history among a member's files": {
        "audit": {
            "schedule": "@daily",
            "history": {"persistentVolumeClaim": {"claimName": "data-orders-0"}},
        }
    },
    "a history above its volume": {
        "audit": {
            "schedule": "@daily",
            "history": {"persistentVolumeClaim": {"claimName": "audits", "path": "../orders"}},
        }
    },
    "a history in a pod's own files": {
        "audit": {"schedule": "@daily", "history": {"uri": "file:///audits"}}
    },
    "a history in a claim that has no name": {
        "audit": {"schedule": "@daily", "history": {"persistentVolumeClaim": {"path": "orders"}}}
    },
}
