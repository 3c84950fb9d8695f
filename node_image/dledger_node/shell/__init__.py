"""The shell around the Raft core: what gives the core its inputs and does what it asks for.

server        one member in service: its loop, its links, and the services of its clients
writes        what the core asks of the log, done in the store
pushes        what a leader pushes, judged before the core receives it
leader_watch  waits for changes of the leader, and logs them
lifecycle     opens the store, serves, stays out of service while the volume is faulty
"""
