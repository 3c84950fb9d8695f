"""Wrong sizes, times, labels, windows and preferences: fields added to 30Gi of storage."""

from typing import Final

from api_server.objects import Object

WRONG_GROUPS: Final[dict[str, Object]] = {
    "an even number of members": {"replicas": 4},
    "two preferred leaders": {"preferredLeader": {"member": "n0", "zone": "a"}},
    "a preference for nobody": {"preferredLeader": {"stableFor": "5s"}},
    "a preferred leader that the group lacks": {"preferredLeader": {"member": "n3"}},
    "a preferred leader that no group has": {"preferredLeader": {"member": "n7"}},
    "a zone that no label can have": {"preferredLeader": {"zone": "a/b"}},
    "a preference by no label": {"preferredLeader": {"nodeLabels": {}}},
    "a preferred leader that waits for no time": {
        "preferredLeader": {"member": "n0", "stableFor": "0s"}
    },
    "a preferred leader that waits for days": {
        "preferredLeader": {"member": "n0", "stableFor": "25h"}
    },
    "an archive without a volume": {"seed": {"group": "orders"}},
    "an archive out of its volume": {
        "seed": {"persistentVolumeClaim": {"claimName": "archives", "path": "../orders"}}
    },
    "an archive on a claim that cannot exist": {
        "seed": {"persistentVolumeClaim": {"claimName": "My_archives"}}
    },
    "an archive of no group": {
        "seed": {"persistentVolumeClaim": {"claimName": "archives"}, "group": "-"}
    },
    "half a digest of an archive": {
        "seed": {"persistentVolumeClaim": {"claimName": "archives"}, "copySha256": "0123abcd"}
    },
    "an archive for a broker": {
        "seed": {"persistentVolumeClaim": {"claimName": "archives"}},
        "broker": {},
    },
    "a canary without a pause": {"canary": {"interval": "0s"}},
    "a canary that comes once a day": {"canary": {"interval": "24h"}},
    "a canary in milliseconds": {"canary": {"interval": "500ms"}},
    "a volume for less than three segments": {"storage": {"size": "2Gi"}},
    "growth to less than the size": {
        "storage": {"size": "30Gi", "autoGrow": {"step": "1Gi", "maxSize": "29Gi"}}
    },
    "growth by nothing": {
        "storage": {"size": "30Gi", "autoGrow": {"step": "0", "maxSize": "40Gi"}}
    },
    "growth without a bound": {"storage": {"size": "30Gi", "autoGrow": {"step": "1Gi"}}},
    "a cool-down of more than a year": {
        "storage": {
            "size": "30Gi",
            "autoGrow": {
                "step": "1Gi",
                "maxSize": "40Gi",
                "coolDown": "8785h",
            },
        }
    },
    "a segment of no whole mebibytes": {"log": {"segmentSize": "2M"}},
    "a segment that Java cannot count": {"log": {"segmentSize": "2Gi"}},
    "a heartbeat too fast": {"election": {"heartbeatInterval": "19ms"}},
    "an election timeout too long": {"election": {"timeout": "601s"}},
    "an election timeout shorter than two heartbeats": {"election": {"heartbeatInterval": "600ms"}},
    "an update window that never opens": {
        "updatePolicy": "Window",
        "updateWindow": {"from": "02:00", "to": "02:00"},
    },
    "an update window without a day": {
        "updateWindow": {"days": [], "from": "02:00", "to": "04:00"}
    },
    "an update window at no time of day": {"updateWindow": {"from": "24:00", "to": "04:00"}},
    "a window policy without a window": {"updatePolicy": "Window"},
    "one value for both roles": {"roles": {"master": "node", "slave": "node"}},
    "the value for no role": {"roles": {"slave": "none"}},
    "a role label of Kubernetes": {"roles": {"label": "app.kubernetes.io/name"}},
    "a role label of the operator": {"roles": {"label": "dledger.io/group"}},
    "a role label of the StatefulSet controller": {"roles": {"label": "controller-revision-hash"}},
    "pods born with a role": {"podLabels": {"dledger.io/role": "master"}},
    "pods born with a role of another name": {
        "roles": {"label": "duty"},
        "podLabels": {"duty": "master"},
    },
    "an annotation of the operator": {"podAnnotations": {"dledger.io/term": "9"}},
    "a request above its limit": {
        "resources": {"requests": {"memory": "2Gi"}, "limits": {"memory": "1Gi"}}
    },
    "too little memory to run": {"resources": {"limits": {"memory": "10Mi"}}},
    "a time without a unit": {"election": {"timeout": "1"}},
    "a word for a size": {"storage": {"size": "large"}},
    "no size at all": {"storage": {}},
    "an unknown field": {"replica": 3},
    "an unknown flush type": {"log": {"flushDiskType": "Sync"}},
    "a fraction of a byte": {"storage": {"size": "0.0001Gi"}},
    "a size with a decimal comma": {"storage": {"size": "10,5Gi"}},
    "a negative size": {"storage": {"size": "-10Gi"}},
    "gigabytes by another name": {"storage": {"size": "30GB"}},
    "a segment of a fraction": {"log": {"segmentSize": "1.5Gi"}},
    "a segment of no bytes": {"log": {"segmentSize": 0}},
    "a step in words": {
        "storage": {"size": "30Gi", "autoGrow": {"step": "some", "maxSize": "40Gi"}}
    },
    "a bound in words": {
        "storage": {"size": "30Gi", "autoGrow": {"step": "1Gi", "maxSize": "much"}}
    },
    "a cool-down without a unit": {
        "storage": {
            "size": "30Gi",
            "autoGrow": {"step": "1Gi", "maxSize": "40Gi", "coolDown": "90"},
        }
    },
    "a storage class with a space": {"storage": {"size": "30Gi", "storageClassName": "very fast"}},
    "a heartbeat in minutes": {"election": {"heartbeatInterval": "1m"}},
    "a time that is a number": {"election": {"timeout": 1000}},
    "members in words": {"replicas": "three"},
    "more members than seven": {"replicas": 9},
    "no members": {"replicas": 0},
    "a role label with a space": {"roles": {"label": "my role"}},
    "a role value with a slash": {"roles": {"master": "a/b"}},
    "a role value that ends in a dash": {"roles": {"slave": "slave-"}},
    "a label key with a space": {"podLabels": {"my team": "air"}},
    "a label value with a space": {"podLabels": {"team": "air traffic"}},
    "an annotation key with a space": {"podAnnotations": {"my team": "air"}},
    "a preference by a wrong label key": {"preferredLeader": {"nodeLabels": {"a b": "c"}}},
    "a preference by a wrong label value": {"preferredLeader": {"nodeLabels": {"a": "b c"}}},
    "a stable time without a unit": {"preferredLeader": {"member": "n0", "stableFor": "5"}},
    "an update policy of another operator": {"updatePolicy": "RollingUpdate"},
    "a day that no week has": {
        "updateWindow": {"days": ["Monday"], "from": "02:00", "to": "04:00"}
    },
    "a day that is named twice": {
        "updateWindow": {"days": ["Mon", "Mon"], "from": "02:00", "to": "04:00"}
    },
    "a window that closes at no time of day": {"updateWindow": {"from": "22:00", "to": "4:00"}},
    "a restart at no time": {"restartedAt": "now"},
    "a token that is replaced all the time": {"adminToken": {"rotateAfterDays": 0}},
    "a token for a century": {"adminToken": {"rotateAfterDays": 36500}},
    "a namespace in capitals": {"networkPolicy": {"clientNamespaces": ["Shop"]}},
    "a namespace of Prometheus with a dot": {
        "networkPolicy": {"monitoringNamespaces": ["monitoring.io"]}
    },
    "clients nobody knows": {"networkPolicy": {"clients": "Everybody"}},
    "a word for hibernation": {"hibernate": "yes"},
    "a volume kept forever": {"storage": {"size": "30Gi", "retain": {"whenDeleted": "Keep"}}},
}
