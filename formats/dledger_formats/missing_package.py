"""What a program says if a library that it needs is not installed."""

from typing import Final

_OWN: Final = ("dledger_", "pyspark_dledger")


def advice(program: str, extra: str, error: ModuleNotFoundError) -> str:
    """Return a line that names the missing package and how to install it.

    Raises `error` if the module is one of this project's own: that is no matter of installing.
    """
    if error.name is None or error.name.startswith(_OWN):
        raise error
    return (
        f"{program}: the Python package {error.name} is not installed; install this program "
        f"with: pip install 'dledger-operator[{extra}]'\n"
    )
