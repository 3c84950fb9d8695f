"""How clients find this member: the addresses that they are told, routes, and the registration at
RocketMQ's name servers.

The requests for routes are answered in `door.reading`.
"""
