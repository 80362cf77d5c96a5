# SPDX-License-Identifier: Apache-2.0
"""Moves: ``cellsched server rebuild|evacuate|migrate|shelve|unshelve``."""

import argparse
from typing import Any
from typing import ClassVar
from typing import TYPE_CHECKING

from cellsched.cli.app import Shell
from cellsched.cli import base
from cellsched.cli import server

if TYPE_CHECKING:
    from cellsched.api.moves import Moves
    from cellsched.listing.server import Server

_ARGUMENTS = (
    server.SERVERS,
    *server.wait_arguments('until the moves are complete or have failed'))

_HOST = base.argument(
    '--host', metavar='HOST',
    help='the destination host; it must be in the same cell and pass the '
         'filters')


class _Move(base.ChangeCommand):
    """A command that moves servers, each within its cell."""

    app: Shell

    kinds = base.SERVERS
    sends = True
    arguments: ClassVar[base.Arguments] = _ARGUMENTS

    #: The progress that the command shows.
    doing: ClassVar[str]

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        context = self.app.context()
        before: dict[str, Server] = {}

        def begin(uuid: str) -> None:
            found = self.app.api.servers.get(context, uuid)
            self.begin(self.app.api.moves, context, uuid, parsed_args)
            before[uuid] = found

        _, code = self.change(parsed_args.format, self.doing.lower(), 'server',
                              parsed_args.servers, begin)
        if parsed_args.wait and before:
            code = self._wait(before, parsed_args.timeout) or code
        return code

    def begin(
        self, moves: 'Moves', context: Any, uuid: str,
        args: argparse.Namespace,
    ) -> None:
        """Begin the move of a server."""
        raise NotImplementedError

    def is_done(self, before: 'Server', after: 'Server') -> bool:
        """Return whether the move of a server without a task succeeded."""
        return after.status == 'ACTIVE' and after.host != before.host

    def _wait(self, before: 'dict[str, Server]', timeout_s: int) -> int:
        watch = server.watching(self.app, list(before))
        code = server.wait_for(
            self.app, watch, timeout_s, self.doing,
            lambda found: (found.status != 'UNKNOWN'
                           and found.task_state is None))
        if code:
            return code
        for uuid, after in watch.found.items():
            if not self.is_done(before[uuid], after):
                where = f' on {after.host}' if after.host else ''
                reason = f': {after.reason}' if after.reason else ''
                self.app.warn(f'{self.doing} {uuid} failed; the server is '
                              f'{after.status}{where}{reason}')
                code = base.IN_ERROR
        return code


class RebuildServer(_Move):
    """Rebuild servers on their hosts; the data on their disks is lost.

    If another image is given, the host must be suitable for it. If a
    rebuild fails, the server is in ERROR, and can be rebuilt again.

    Example::

        cellsched server rebuild 4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e \\
            --image 9d1f3a52-6c0b-4f0e-8b1a-2f6f6f0c5f11 --wait
    """

    doing = 'Rebuilding'
    arguments = (
        *_ARGUMENTS,
        base.argument('--image', metavar='IMAGE',
                      help='id of another image; by default each server keeps '
                           'its image'))

    def begin(
        self, moves: 'Moves', context: Any, uuid: str,
        args: argparse.Namespace,
    ) -> None:
        moves.rebuild(context, uuid, args.image)

    def is_done(self, before: 'Server', after: 'Server') -> bool:
        return after.status == 'ACTIVE'


class EvacuateServer(_Move):
    """Rebuild servers of a failed host on another host of their cell.

    A host is down if its service has not reported for ``[DEFAULT]
    service_down_time`` seconds, or is forced down. A server for which no host
    is found is in ERROR, and can be evacuated again.

    Example::

        cellsched server evacuate 4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e
    """

    doing = 'Evacuating'
    arguments = (*_ARGUMENTS, _HOST)

    def begin(
        self, moves: 'Moves', context: Any, uuid: str,
        args: argparse.Namespace,
    ) -> None:
        moves.evacuate(context, uuid, args.host)


class MigrateServer(_Move):
    """Migrate servers to other hosts of their cells.

    A server for which no host is found stays on its host.

    Example::

        cellsched server migrate 4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e --wait
    """

    doing = 'Migrating'
    arguments = (*_ARGUMENTS, _HOST)

    def begin(
        self, moves: 'Moves', context: Any, uuid: str,
        args: argparse.Namespace,
    ) -> None:
        moves.migrate(context, uuid, args.host)


class ShelveServer(_Move):
    """Shelve servers: remove them from their hosts, and keep them.

    Example::

        cellsched server shelve 4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e
    """

    doing = 'Shelving'

    def begin(
        self, moves: 'Moves', context: Any, uuid: str,
        args: argparse.Namespace,
    ) -> None:
        moves.shelve(context, uuid)

    def is_done(self, before: 'Server', after: 'Server') -> bool:
        return after.status == 'SHELVED_OFFLOADED'


class UnshelveServer(_Move):
    """Restore shelved servers on hosts of their cells.

    A server for which no host is found stays shelved.

    Example::

        cellsched server unshelve 4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e
    """

    doing = 'Unshelving'

    def begin(
        self, moves: 'Moves', context: Any, uuid: str,
        args: argparse.Namespace,
    ) -> None:
        moves.unshelve(context, uuid)
