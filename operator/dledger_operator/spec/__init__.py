"""The custom resources, parsed and defaulted once. Pure."""
