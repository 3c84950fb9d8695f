"""Clients of the broker: their connections and requests, and the answers.

connections      accepted connections, and the sockets that accept them
calls            one request and its answer; who answers which code
between_members  frames, links and numbers of what members pass on to the leader
passing_on       the way of requests to the leader, where they wait, and what arrives there
sending          messages of producers, and those that consumers return
consumer_groups  who belongs to a group, and who has locked its queues
reading          pulls, offsets, routes, messages by id: from a member's own queues and log
administration   changes of topics and groups, and whole tables
draining         clients are sent elsewhere: the member stops, or is cut off
"""
