"""The state that a log's entries add up to, if the group keeps one.

machine   what a state machine is
machines  the state machines by name
register  DLedger's example: a map from numbers to numbers
keeper    what a member keeps of a state: the machine, its snapshots, its readers
apply     committed entries on their way to the machine
restore   from snapshots and log to the state with which a member begins
install   a snapshot on its way from the leader to a member that lacks removed entries
fetch     which bytes of a snapshot a member asks for: pure rules
lend      which bytes of its snapshots a member sends: pure rules
"""
