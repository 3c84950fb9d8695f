"""What every member answers from its own queues and log: pulls, offsets, routes, messages by id."""
