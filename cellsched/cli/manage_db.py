# SPDX-License-Identifier: Apache-2.0
"""Schemas: ``cellsched-manage api_db|db|claims_db sync|version``."""

import argparse
from typing import TYPE_CHECKING

from cellsched.cli import base
from cellsched.cli import progress
from cellsched import exception
from cellsched import plugins

if TYPE_CHECKING:
    from cellsched.cli import app
    from cellsched.db.schema import Schema
    from cellsched.db import session

    Target = tuple[Schema, session.Database]


class _Sync(base.Command):
    """Base of the commands that bring a schema up to date."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            'version', metavar='VERSION', nargs='?', default='head',
            help='the version to go to; by default the newest')
        return parser

    def sync(self, target: 'Target', name: str, version: str) -> None:
        """Bring a database to a version, and say which it has then."""
        schema, database = target
        schema.sync(database, version)
        self.app.say(f'{name}: schema version {schema.version(database)}')


class _Version(base.Command):
    """Base of the commands that show the version of a schema."""

    def show(self, target: 'Target') -> None:
        schema, database = target
        self.app.say(schema.version(database) or 'none')


class SyncAPI(_Sync):
    """Bring the schema of the API database up to date.

    The database is that of ``[api_database] connection``; it must exist, and
    may be empty. It goes before the databases of cells. One that is in use
    must have cell0 mapped: see ``cellsched-manage cell_v2 map_cell0``.

    Example::

        cellsched-manage --config-file api.conf api_db sync
    """

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        self.sync(_api(self.app), 'API database', parsed_args.version)


class APIVersion(_Version):
    """Show the version of the API database's schema.

    Example::

        cellsched-manage --config-file api.conf api_db version
    """

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        self.show(_api(self.app))


class SyncCell(_Sync):
    """Bring the schemas of cell0 and of this cell up to date.

    cell0 is found by its mapping, where an ``[api_database] connection`` is
    configured. This cell's database is that of ``[database] connection``;
    above the cells there may be none. Other cells are not looked at: run this
    once with the configuration of each, or with ``--all-cells``, which takes
    all that are mapped; where one fails it goes on with the others, and ends
    with 1. Databases must exist, and may be empty.

    Examples::

        cellsched-manage --config-file cell1.conf db sync
        cellsched-manage --config-file api.conf db sync --all-cells
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        which = parser.add_mutually_exclusive_group()
        which.add_argument('--local_cell', action='store_true',
                           help='leave cell0 out')
        which.add_argument('--all-cells', action='store_true',
                           help='bring every cell that is mapped up to date')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        if parsed_args.all_cells:
            return self._sync_all(parsed_args.version)
        conf, version = self.app.conf, parsed_args.version
        own = _cell(self.app) if conf.database.connection else None
        done = False
        if conf.api_database.connection and not parsed_args.local_cell:
            try:
                done = self._sync_cell0(version)
            except exception.InvalidField:
                raise
            except exception.CellschedException as exc:
                self.app.report(exc)
                self.app.warn(
                    'cell0 cannot be reached, so nothing was done. Its '
                    'database must exist, the API database needs '
                    'cellsched-manage api_db sync, and cellsched-manage '
                    'cell_v2 map_cell0 says where cell0 is. --local_cell '
                    'leaves it out.')
                return 1
        if own is not None or not done:
            self.sync(own or _cell(self.app), 'cell database', version)
        return 0

    def _sync_all(self, version: str) -> int:
        parts = self.app.parts
        cells = parts.cells.all()
        code = 0
        with progress.bar('cells', len(cells), self.app.stderr) as show:
            for done, cell in enumerate(cells):
                name = cell.get('name') or cell.uuid
                show(done)
                try:
                    self.sync(
                        (_cell_schema(), parts.targets.database(cell)),
                        name if cell.is_cell0() else f'cell {name}', version)
                except exception.InvalidField:
                    # There is no such version, in no cell.
                    raise
                except exception.CellschedException as exc:
                    self.app.report(exc)
                    code = 1
        if not cells:
            self.app.warn('no cell is mapped; see cellsched-manage cell_v2 '
                          'map_cell0 and create_cell')
            code = 1
        return code

    def _sync_cell0(self, version: str) -> bool:
        parts = self.app.parts
        try:
            cell0 = parts.cells.cell0()
        except exception.CellMappingNotFound:
            self.app.warn(
                'warning: cell0 is not mapped, so its schema is left alone; '
                'see cellsched-manage cell_v2 map_cell0')
            return False
        self.sync((_cell_schema(), parts.targets.database(cell0)), 'cell0',
                  version)
        return True


class CellVersion(_Version):
    """Show the version of this cell's schema.

    The database is that of ``[database] connection``.

    Example::

        cellsched-manage --config-file cell1.conf db version
    """

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        self.show(_cell(self.app))


class SyncClaims(_Sync):
    """Bring the schema of the claim store up to date.

    The database is that of ``[claims] connection``, or else of
    ``[api_database] connection``; it must exist, and may be empty. A store
    that is not ``sql`` makes what it needs, and has no other version.

    Example::

        cellsched-manage --config-file api.conf claims_db sync
    """

    kinds = (plugins.CLAIMS,)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        if self.app.conf.claims.store == 'sql':
            self.sync(_claims(self.app), 'claims database',
                      parsed_args.version)
        else:
            self._sync_other(parsed_args.version)

    def _sync_other(self, version: str) -> None:
        store, name = self.app.parts.claims, self.app.conf.claims.store
        from cellsched.claims import base as claims_base

        if claims_base.Capability.DURABLE not in store.capabilities:
            raise exception.ConfigurationInvalid(
                field='[claims] store',
                expected=f'one that keeps its claims; {name} forgets them '
                         'with its process')
        if version != 'head':
            raise exception.InvalidField(
                where='claims_db sync', field='VERSION',
                expected=f'head: the store {name} has one version')
        store.sync()
        self.app.say(f'claim store {name}: ready')


class ClaimsVersion(_Version):
    """Show the version of the claim store's schema.

    Example::

        cellsched-manage --config-file api.conf claims_db version
    """

    kinds = (plugins.CLAIMS,)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        self.show(_claims(self.app))


def _api(app: 'app.App') -> 'Target':
    database = app.parts.database
    from cellsched.db import api

    return api.SCHEMA, database


def _cell(app: 'app.App') -> 'Target':
    return _cell_schema(), app.parts.cell_database


def _cell_schema() -> 'Schema':
    from cellsched.db import cell

    return cell.SCHEMA


def _claims(app: 'app.App') -> 'Target':
    parts = app.parts
    from cellsched.claims import sql
    from cellsched.claims.sql import schema

    store = app.conf.claims.store
    if store != 'sql':
        raise exception.ConfigurationInvalid(
            field='[claims] store',
            expected=f'sql, which has a schema; {store} has none')
    return schema.SCHEMA, sql.database(app.conf, parts.databases)
