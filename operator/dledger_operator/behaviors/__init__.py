"""The operator's control loops: observe, decide (pure functions), act through `clients`.

Nothing here depends on kopf; `handlers` forwards the watch events.

What runs
    workers            a worker for each object, started and stopped with it
    worker_pool        the running workers of one kind of object
    group_worker       the loops of one group, and what wakes them
    group_loops        which of them run on this replica of the operator
    loops              one loop: at intervals and when woken, with pauses after errors
    phases             when the loops of different groups run
    steps              steps that more than one kind of work takes
What the loops of a group share
    context            clients, metrics, clocks and random numbers, for all groups
    group_snapshot     the latest results of the group's loops
    refusals           to whom a leader has refused to hand over
    lasting_failure    when work that keeps failing is reported
    child_refused      what is reported if the API server refuses a child
The loops of a group
    children           reconcile: the objects that a group owns
    founding           the first voters of a group, and its identity
    volumes            the owners and the growth of volume claims
    leader             follow, endpoints: who leads, and which pod has the master label
    members            observe, scale: which members exist and vote
    rolls              roll: which pods are replaced, in which order, and when
    handover           place, and `DLedgerSwitchover`: moving the leadership on purpose
    admin_tokens       tokens: the group's administration token
    canary             canary: a tiny append through the master Service
    audits             audit, and `DLedgerAudit`: audits that a group or a user asks for
    report             report: the group's status and its Events
Everything else
    replacement        `DLedgerReplace`: a new volume for a member that is lost for good
    one_off            what all objects have in common that are carried out once
    leases             which replica of the operator does what
    served_namespaces  which namespaces the API server lets this process read
    watch_check        whether the watches report every change
"""
