"""Clients of the broker: their connections and requests, and the answers.

connections      accepted connections, and the sockets that accept them
calls            one request and its answer; which part answers which code
between_members  frames, links and numbers of what members pass on to the leader
passing_on       how requests reach the leader, where they wait, and how the leader takes them
sending          messages of producers, and those that consumers return
consumer_groups  which clients belong to a group, and which have locked its queues
reading          pulls, offsets, routes, messages by id: from a member's own queues and log
administration   changes of topics and groups, and whole tables
draining         sending clients elsewhere when the member stops, or is cut off
"""
