"""Following the leader: long polls, the decision which member leads, role labels on pods, the
endpoints of the master Service, and the history of leader changes.
"""
