"""Groups of brokers: the production broker on simulated members, and its clients.

    bodies      the bytes of the log, whose entries have numbers as bodies elsewhere
    numbers     the table of producers of a log, and its file
    loop        an event loop of asyncio in simulated time
    wires       connections between members, and of clients
    stand_ins   the log, the state and the room under a broker
    program     one life of a member's broker, on stand-ins for the log, the ports and the threads
    member      a member with a broker, its store and the keeper of its state
    cluster     a group of such members
    ports       the connections of clients, with their requests and answers
    ordered     consumers that lock queues
    clients     producers, consumers, and a reader of everything at the end
    returners   consumers that return messages that they could not use
    administrators  clients that create and delete a topic and groups that others use
    name_servers    name servers: good ones, slow ones, and those that lie or are down

The judges are `judges.broker_log` and `judges.broker_rules`; `faults.broker_lives` draws conditions
and requests.
"""
