# SPDX-License-Identifier: Apache-2.0
"""Operations of ``cellsched-manage cell_v2`` on the mappings of cells.

A command imports this module when it runs: it imports the objects and the
database.
"""

from collections.abc import Callable
from typing import Any

from oslo_utils import uuidutils

from cellsched.api import validation
from cellsched.cells.maintenance import CellMaintenance
from cellsched.cells.maintenance import InstanceMapper
from cellsched.cli.app import App
from cellsched.cli import base
from cellsched.cli import terminal
from cellsched.db import api as api_schema
from cellsched.db.api import cell_mappings
from cellsched.db import cell as cell_schema
from cellsched.db.cell import services
from cellsched import exception
from cellsched.migrations import consumers
from cellsched import objects
from cellsched import urls


def check_schema(app: App) -> None:
    """Make sure that the schema of the API database is up to date."""
    api_schema.SCHEMA.check(app.parts.database)


def maintenance(app: App) -> CellMaintenance:
    """Return the maintenance of mappings, in a database that is up to date."""
    check_schema(app)
    return _maintenance(app)


def _maintenance(app: App) -> CellMaintenance:
    parts = app.parts
    return CellMaintenance(
        parts.database, parts.cells, parts.targets, parts.clock)


def claim_release(app: App) -> Callable[[list[str]], None]:
    """Return a function that releases all claims of servers."""
    claims = app.parts.claims
    claims.check()
    return lambda uuids: claims.release(consumers(uuids))


def mapper(app: App) -> InstanceMapper:
    """Return the mapper of instances, in a database that is up to date."""
    check_schema(app)
    parts = app.parts
    return InstanceMapper(
        parts.database, parts.cells, parts.targets, parts.clock)


def map_cell0(app: App, url: str | None = None) -> None:
    """Map cell0, and report whether it was mapped before.

    :param url: its database; by default a sibling of the configured one
    """
    if not url:
        configured = app.conf.database.connection or app.parts.database.url
        app.parts.databases.get(configured, 'cell')
        url = cell_mappings.beside(configured, '_cell0')
    mapping = objects.CellMapping(
        uuid=objects.CELL0_UUID, name='cell0', transport_url='none:///',
        database_connection=url, disabled=False)
    try:
        _create(app, mapping)
        app.say('Mapped cell0')
    except exception.CellMappingExists as exc:
        app.parts.cells.refresh()
        try:
            mapped = app.parts.cells.cell0().database_connection
        except exception.CellMappingNotFound:
            raise exc from None
        app.say('Cell0 is already setup')
        if mapped != url:
            app.warn('warning: the mapping of cell0 is not changed; its '
                     f'database is {urls.mask(mapped)}')


def create_cell(
    app: App, name: str | None, transport_url: str, database_connection: str,
    uuid: str | None = None, disabled: bool = False, check: bool = False,
) -> str:
    """Map a cell; return its uuid.

    :param check: whether its database and its broker must answer
    :raises cellsched.exception.CellMappingExists: another cell has the name,
        one of the URLs, or the uuid
    """
    mapping = objects.CellMapping(
        uuid=uuid or uuidutils.generate_uuid(), name=name or None,
        transport_url=transport_url, database_connection=database_connection,
        disabled=disabled)
    _create(app, mapping, check)
    return str(mapping.uuid)


def _create(app: App, mapping: Any, check: bool = False) -> None:
    # cell0 may be mapped while the tables are of an older version: the
    # upgrade of the API database requires the mapping.
    if not mapping.is_cell0() or (
            api_schema.SCHEMA.version(app.parts.database) is None):
        check_schema(app)
    _maintenance(app).create(mapping, check)


def map_cell_and_hosts(
    app: App, transport_url: str | None, name: str | None = None
) -> str | None:
    """Map the configured cell and its hosts.

    :returns: the uuid of the cell; None if it has no hosts
    :raises cellsched.exception.CellMappingExists: another cell has one of the
        URLs
    """
    check_schema(app)
    parts = app.parts
    # 1. Find the hosts, and the cells that they are mapped to.
    transport_url = transport_url or parts.transports.own_url()
    parts.transports.get(transport_url)
    with parts.cell_database.reader() as connection:
        hosts = services.list_hosts(connection, services.COMPUTE)
    if not hosts:
        app.say('No hosts found to map to cell, exiting.')
        return None
    owners = parts.discovery.owners(hosts)
    cells = {cell.uuid: cell for cell in owners.values()}
    if len(cells) > 1:
        raise exception.InvalidField(
            where='[database] connection', field='hosts',
            problem='they are mapped to ' + ' and '.join(
                sorted(cell.identity for cell in cells.values())),
            expected='the hosts of one cell')
    if len(owners) == len(hosts):
        app.say('All hosts are already mapped to cell(s).')
    # 2. Map the cell, unless some of its hosts are mapped, and all hosts.
    uuid = next(iter(cells), None) or create_cell(
        app, name, transport_url, parts.cell_database.url)
    parts.cells.refresh()
    for host in hosts:
        parts.discovery.map_host(parts.cells.get(uuid), host)
    return uuid


def map_instances(app: App, uuid: str, most: int | None = None) -> bool:
    """Map the servers of a cell; return whether there are more to map."""
    found = mapper(app)
    with terminal.progress('mapping', found.count(uuid), app.stderr) as show:
        mapped, more = found.map(uuid, most, show)
    app.say(f'Mapped {mapped} instances' + (
        '; there are more' if more else ''))
    return bool(more)


def sync_cell0(app: App) -> None:
    """Upgrade the schema of cell0."""
    parts = app.parts
    cell_schema.SCHEMA.sync(parts.targets.database(parts.cells.cell0()))


def check_name(name: str | None) -> None:
    """Make sure that a text is valid as the name of a cell.

    :raises cellsched.exception.InvalidField: it is not
    """
    if name:
        validation.check_text('options', '--name', name)


def check_uuid(option: str, uuid: str | None) -> None:
    """Make sure that a text is a uuid in the usual form.

    :raises cellsched.exception.InvalidField: it is not
    """
    if uuid is not None and (
            not uuidutils.is_uuid_like(uuid) or uuid != uuid.lower()
            or len(uuid) != 36):
        raise base.invalid(
            option, f'{uuid!a:.60} is not a uuid in lower case',
            'a uuid such as 4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e')
