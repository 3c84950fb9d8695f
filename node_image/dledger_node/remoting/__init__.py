"""Bytes between members, and between clients and members.

    connection, gate, limits   accepted connections, and their limits
    held_bytes                 the bytes of unfinished frames that connections hold together
    caller                     such a connection, as the code that answers a call sees it
    keep_alive                 notices that the host at the other end has vanished
    host, lingering            what a connection needs from its member, and how a connection ends
    dispatch, service          frames of a connection -> calls on the server, and their answers
    read_requests              GET, FOLLOW and READ_RANGE, and the forms of their answers
    read_turns                 how much of the loop's time reads may take
    input_turns                how much of the loop's time clients' input may take
    turn_time                  the time that work of one kind may take in a turn of the loop
    quotas                     requests and bytes a second of each address, if a setting limits them
    append_reader              the bodies of appends
    peer_link, links           connections that this member opens to its peers
    leader_link                a follower's connection to its leader, for requests that it passes on
    dialed_link, link_owner    what both kinds of links have in common, and need from their member
    native, message_kinds      frames between members, and their layouts
    read_index_messages, snapshot_messages, named_memberships   parts of these layouts
    asking                     METADATA, requested from other members without a link

Elections, storage and acknowledgments are decided elsewhere.
"""
