"""Beyond seeds: every run of a small group, and one core among random messages."""
