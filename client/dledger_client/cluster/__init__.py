"""The members of a group: addresses, connections, and the search for the leader.

Nothing here knows what a request means.
"""
