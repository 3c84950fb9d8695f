"""The custom resources as the operator reads them: parsed and defaulted once. Pure."""
