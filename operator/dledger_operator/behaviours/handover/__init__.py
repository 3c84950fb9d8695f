"""Moving the leadership on purpose: to a member that somebody asked for."""
