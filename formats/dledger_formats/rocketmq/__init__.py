"""RocketMQ's protocol and files, as its stock clients, brokers and name servers know them.

    broker_variables  names of a broker's environment variables
    codes             codes of requests and answers, permissions, flags of messages
    requests          every request of this package by its code: its ext fields, bodies and answer
    ext_fields        the arguments of a request, in its frame's header: text <-> typed fields
    json_bodies       JSON bodies: written strictly, read as leniently as Java's reader
    loose_heartbeats  heartbeats that are JSON only to Java's reader
    sends, pulls, offsets, consumer_groups, subscription_groups, topics, names
                      requests and answers by subject
    answers           frames of answers
    message_record    a stored message: log, pull and replication have the same bytes
    message_batch     the messages of one batch request
    message_id        the id under which a broker finds a stored message
    properties        names and values that a message carries
    topic_names       which names are allowed, and which RocketMQ uses for itself
    delay_levels      how long a message of each delay level waits
    consume_queue     units of consume queue files, and the hash of a tag
    state_records     changes of a broker's state, as messages of a system topic

Frames are those of `protocol.frames`. Numbers in files are big-endian. Facts about RocketMQ come
from its releases 4.9.7, 4.9.8 and 5.3.3. Nothing here opens a socket or a file.
"""
