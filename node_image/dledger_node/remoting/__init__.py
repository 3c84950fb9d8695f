"""Bytes between members, and between clients and members.

    connection, gate, limits   accepted connections, and their limits
    host, lingering            what a connection needs of its member, and how a connection ends
    dispatch, service          frames of a connection -> calls on the server, and their answers
    read_requests              GET, FOLLOW and READ_RANGE, and the forms of their answers
    read_turns                 how much of the loop's time reads may take
    input_turns                how much of the loop's time clients' input may take
    quotas                     requests and bytes a second of each address, if a setting says so
    append_reader              the bodies of appends
    peer_link, links           connections that this member opens to its peers
    native                     frames between members; layouts in `message_kinds`
    asking                     METADATA, requested from other members without a link

Elections, storage and acknowledgments are decided elsewhere.
"""
