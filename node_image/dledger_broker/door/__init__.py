"""Clients of the broker: their connections and requests, and the answers.

connection   one accepted connection
dispatcher   the requests of one connection, by their codes
call         one request, and its answer
sends        messages of producers
pulls        messages for consumers; pulls that wait for one
lookups      offsets of queues and groups, routes
returns      messages that consumers return
locks        queues that ordered consumers lock
groups       clients that join and leave consumer groups
group_clients  the connections behind these clients
"""
