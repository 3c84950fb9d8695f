"""Following the leader: which member leads, and that the master Service selects its pod.

From the members' answers to the labels
    leader_polls     a long poll for each pod, which reports at once when its leader changes
    pod_list         the pods with the group's label, in one LIST
    member_pods      which of them are the pods of the group's members
    leadership       who leads, by the members' answers
    role_decision    which labels the pods get next: fences first, then a promotion
    role_labeler     applies these decisions until the labels are right
    following        the runs of `role_labeler`, and what is reported while they fail
    foreign_roles    takes the role from pods that only carry the group's label
What follows from that
    endpoints        compares the endpoints of the master Service with the leader
    endpoints_check  reads these endpoints
    leader_history   the changes of the leader, and how long their phases took
    double_master    detects two pods that had the master label at once
"""
