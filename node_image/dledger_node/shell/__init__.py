"""The shell around the Raft core: it gives the core its inputs and does the work the core asks for.

server        one member in service: its parts and its clock
loop          gives inputs to the core, does the work that follows, and tells the services
writes        the core's writes, done in the log store
clients       the services of clients, as connections find them
room          room in the log for the entries of clients
peers         messages to and from the other members
pushes        checks of a leader's pushes before the core gets them
leader_watch  changes of the leader: logged, and reported to requests that wait for them
view          the member's status, files and counters, as HTTP shows them
lifecycle     opens the store, serves, and stays out of service while the volume is faulty
"""
