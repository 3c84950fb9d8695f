"""Bytes between members, and between clients and members.

Accepted connections
    connection          one connection of a client or of a peer: its bytes, its limits and its end
    connection_views    what each part of the member sees of it
    connection_owner    what it needs from the member
    gate, limits        which connections are admitted, and what all of them may hold together
    held_bytes          the bytes of unfinished frames that connections hold together
    quotas              requests and bytes a second of each address, if a setting limits them
    lingering           how a connection ends in order
Requests
    dispatch, service   frames of a connection -> calls on the server, and their answers
    append_reader       the bodies of appends
    read_requests       GET, FOLLOW and READ_RANGE, and the forms of their answers
Time of the event loop
    input_turns         how much of the loop's time clients' input may take
    read_turns          how much of the loop's time reads may take
    turn_time           the time that work of one kind may take in a turn of the loop
Connections that this member opens
    peer_link, links    links to its peers
    link_connection     one connection of a link: its queue, and what is read for it
    leader_link         a follower's connection to its leader, for requests that it passes on
    dialed_link         a connection to another member, from its first frame to its end
    link_owner          what a link to a peer needs from the member
    asking              METADATA, requested from other members without a link
    keep_alive          notices that the host at the other end has vanished
Messages between members
    native, message_kinds  frames between members, and their layouts
    read_index_messages, snapshot_messages, named_memberships   parts of these layouts

Elections, storage and acknowledgments are decided elsewhere.
"""
