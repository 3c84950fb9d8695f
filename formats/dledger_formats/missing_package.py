"""What a program, or a package, reports if a library that it needs is not installed."""

from typing import Final

_OWN: Final = ("dledger_", "pyspark_dledger")


def advice(program: str, extra: str, error: ModuleNotFoundError) -> str:
    """Return a line that names the missing package and how to install it.

    Raises `error` if the module is one of this project's own: installing a package does not help.
    """
    return _sentence(program, extra, error, "program") + "\n"


def with_advice(package: str, extra: str, error: ModuleNotFoundError) -> ModuleNotFoundError:
    """Return the error of a package whose public names cannot be imported, with the same advice.

    Raises `error` as `advice` does.
    """
    return ModuleNotFoundError(_sentence(package, extra, error, "package"), name=error.name)


def _sentence(what: str, extra: str, error: ModuleNotFoundError, kind: str) -> str:
    if error.name is None or error.name.startswith(_OWN):
        raise error
    return (
        f"{what}: the Python package {error.name} is not installed; install this {kind} "
        f"with: pip install 'dledger-operator[{extra}]'"
    )
