"""The shell around the Raft core: passes inputs to the core and does the work that it returns.

The life of a member
    lifecycle      opens the store, serves, and stays out of service while the volume is faulty
    server         one member in service: its parts and its tasks
    live_settings  settings that change while the member runs
    token_file     the file with the group's administration tokens
    departure      a leader with damage that it cannot mend hands over before it leaves
The loop that drives the core
    loop           gives inputs to the core, does the work that follows, and notifies the services
    writes         carries out the core's writes in the log store
    disk_work      flushes and other work that waits for the disk, and the threads for it
    disk_waits     work of the core that waits for the disk
    room           room in the log for the entries of clients
    clock          when the next tick is due, and how much time a pause has taken
    ticker         the ticks: steady while there is work, few while the group is idle
    loop_lag       how late the event loop is, and how long its turns are
Clients and peers
    clients        the services for clients, as connections use them
    peers          messages to and from the other members
    pushes         checks of a leader's pushes before the core gets them
    identity       the identity of the group, and which members are strangers to it
    divergence     whether this folder, or its leader's, holds another group's log
What HTTP shows
    http_server    the server of the pages, in service and out of service
    current_source  what the pages show: the server in service, or the outage in its place
    view           the status, the files and the counters of a member in service
    leader_watch   changes of the leader: logged, and reported to requests that wait for them
    meters         what a process measures from its start, even if its store is reopened
"""
