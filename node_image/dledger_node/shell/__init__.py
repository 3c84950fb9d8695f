"""The shell around the Raft core: passes inputs to the core and does the work that it returns.

server        one member in service: its parts and its tasks
clock         when the next tick is due, and how much time a pause has taken
ticker        the ticks: steady while there is work, few while the group is idle
loop          gives inputs to the core, does the work that follows, and notifies the services
loop_lag      how late the event loop is, and how long its turns are
live_settings  settings that change while the member runs
token_file    the file with the group's administration tokens
writes        carries out the core's writes in the log store
disk_waits    work of the core that waits for the disk
clients       the services for clients, as connections use them
room          room in the log for the entries of clients
peers         messages to and from the other members
pushes        checks of a leader's pushes before the core gets them
leader_watch  changes of the leader: logged, and reported to requests that wait for them
departure     a leader with damage that it cannot mend hands over before it leaves
identity      the identity of the group, and which members are strangers to it
divergence    whether this folder, or its leader's, holds another group's log
view          the member's status, files and counters, as HTTP shows them
lifecycle     opens the store, serves, and stays out of service while the volume is faulty
meters        what a process measures from its start, even if its store is reopened
"""
