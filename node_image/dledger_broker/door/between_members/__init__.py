"""What a member and the leader send each other: frames, links, and the numbers of messages.

Nothing here handles a client's request as such; `passing_on` does.
"""
