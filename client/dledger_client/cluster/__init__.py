"""The members of a group: addresses, connections, and the search for the leader.

Nothing here knows what a request means, except METADATA.

    addresses   server addresses, with or without the member's id
    members     the known members, and the connections to them
    connection  a connection to one member, with many requests in flight
    search      the search for the leader
    backoff     the pause before the next attempt
    pages       one page of a member's HTTP port
    arguments   checks of arguments, before any request
"""
