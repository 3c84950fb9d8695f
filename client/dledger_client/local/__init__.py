"""A group of real members as processes on this machine, for users without a cluster.

Belongs here: the folder, the ports, the processes, and their observation. Does not belong here:
any decision of a member; the members are `dledger-node` processes, as in a pod.

    group      the members as processes, and what becomes of them
    member     one member, which is restarted when it exits
    broker     members as RocketMQ brokers
    seed       a group that begins with the log of an archive
    folder     the folder of the group
    token      its administration token and its audit token
    ports      checks that the ports are free
    processes  which process has a file open or listens on a port
    silence    that a member does not answer
    trouble    why a member is out of service
    errors     the errors of local groups
"""
