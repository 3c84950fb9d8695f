"""Checks of settings that a member can never start with, however long it waits."""

import os.path

from dledger_formats.peers import split_address
from dledger_formats.settings import NodeSettings, SettingsError, variable_name
from dledger_node.config import store_folder


def check_start(settings: NodeSettings) -> None:
    """Raise SettingsError if the store's path leads through a file, or both ports are the same."""
    port = split_address(settings.address)[1]
    if settings.http_port == port:
        where = "peers" if settings.self_id in settings.peers else "addable_peers"
        raise SettingsError(
            f"{variable_name('http_port')} is {port}, which is also the port of "
            f"{settings.self_id} in {variable_name(where)}; a member needs two ports"
        )
    folder = store_folder(settings)
    # A folder without permission seems not to exist; opening the store reports it later.
    existing = next(path for path in (folder, *folder.parents) if os.path.exists(path))
    if not existing.is_dir():
        raise SettingsError(
            f"{variable_name('store_base_dir')} is {settings.store_base_dir!r}, but {existing} is "
            "no folder"
        )
