"""`python -m dledger_node`, the same as `dledger-node`."""

from dledger_node.console_script import main

if __name__ == "__main__":
    raise SystemExit(main())
