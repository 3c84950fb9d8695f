"""How clients find this member: published addresses, routes, and the registration at name servers.

The requests for routes are answered in `door.reading`.
"""
