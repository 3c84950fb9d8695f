"""The members of a group as the client knows them: addresses, connections, and the search for the
leader. Nothing here knows what a request means.
"""
