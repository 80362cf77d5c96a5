# SPDX-License-Identifier: Apache-2.0
"""Moves: ``cellsched server rebuild|evacuate|migrate|shelve|unshelve``."""

import argparse
from typing import Any
from typing import ClassVar
from typing import TYPE_CHECKING

from cellsched.cli import base
from cellsched.cli import server

if TYPE_CHECKING:
    from cellsched.api import moves
    from cellsched.cli.app import Shell
    from cellsched.listing import server as listed


class _Move(base.ChangeCommand):
    """A command that moves servers, each within its cell."""

    kinds = base.SERVERS
    sends = True

    app: 'Shell'

    #: What is being done, for who waits.
    doing: ClassVar[str]

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('servers', metavar='ID', nargs='+',
                            help='their ids')
        server.add_wait(parser, 'until it is done or given up')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        server.check_wait(parsed_args)
        context = self.app.context()
        before: dict[str, listed.Server] = {}

        def begin(uuid: str) -> None:
            was = self.app.api.servers.get(context, uuid)
            self.begin(self.app.api.moves, context, uuid, parsed_args)
            before[uuid] = was

        _, code = self.change(parsed_args.format, self.doing.lower(), 'server',
                              parsed_args.servers, begin)
        if parsed_args.wait and before:
            code = self._wait(before, parsed_args.timeout) or code
        return code

    def begin(
        self, moves: 'moves.Moves', context: Any, uuid: str,
        args: argparse.Namespace,
    ) -> None:
        """Have one server moved."""
        raise NotImplementedError

    def is_done(
        self, before: 'listed.Server', after: 'listed.Server'
    ) -> bool:
        """Return whether a server that is at rest again was moved."""
        return after.status == 'ACTIVE' and after.host != before.host

    def _wait(
        self, before: 'dict[str, listed.Server]', timeout_s: int
    ) -> int:
        watch = server.watching(self.app, list(before))
        code = server.wait_for(
            self.app, watch, timeout_s, self.doing, _is_at_rest)
        if code:
            return code
        for uuid, after in watch.found.items():
            if not self.is_done(before[uuid], after):
                where = f' on {after.host}' if after.host else ''
                reason = f': {after.reason}' if after.reason else ''
                self.app.warn(f'{self.doing} {uuid} was given up; it is '
                              f'{after.status}{where}{reason}')
                code = server.IN_ERROR
        return code


class _MoveTo(_Move):
    """One that may name the host."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            '--host', metavar='HOST',
            help='where to; it has to be in the same cell, and to suit')
        return parser


class RebuildServer(_Move):
    """Build servers anew where they are; what was on their disks is gone.

    With another image, the host has to suit that image. A server that cannot
    be built anew is in ERROR, and may be rebuilt once more.

    Example::

        cellsched server rebuild 4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e \\
            --image 9d1f3a52-6c0b-4f0e-8b1a-2f6f6f0c5f11 --wait
    """

    doing = 'Rebuilding'

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            '--image', metavar='IMAGE',
            help='id of another image; by default they keep theirs')
        return parser

    def begin(
        self, moves: 'moves.Moves', context: Any, uuid: str,
        args: argparse.Namespace,
    ) -> None:
        moves.rebuild(context, uuid, args.image)

    def is_done(
        self, before: 'listed.Server', after: 'listed.Server'
    ) -> bool:
        return after.status == 'ACTIVE'


class EvacuateServer(_MoveTo):
    """Build servers whose host is down on another host of their cell.

    The host counts as down when its service was not heard for
    ``[DEFAULT] service_down_time`` seconds, or is forced down. A server for
    which there is no host is in ERROR, and may be evacuated once more.

    Example::

        cellsched server evacuate 4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e
    """

    doing = 'Evacuating'

    def begin(
        self, moves: 'moves.Moves', context: Any, uuid: str,
        args: argparse.Namespace,
    ) -> None:
        moves.evacuate(context, uuid, args.host)


class MigrateServer(_MoveTo):
    """Have servers go to other hosts of their cells.

    A server for which there is no host stays where it is.

    Example::

        cellsched server migrate 4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e --wait
    """

    doing = 'Migrating'

    def begin(
        self, moves: 'moves.Moves', context: Any, uuid: str,
        args: argparse.Namespace,
    ) -> None:
        moves.migrate(context, uuid, args.host)


class ShelveServer(_Move):
    """Have servers leave their hosts, and keep them without one.

    Example::

        cellsched server shelve 4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e
    """

    doing = 'Shelving'

    def begin(
        self, moves: 'moves.Moves', context: Any, uuid: str,
        args: argparse.Namespace,
    ) -> None:
        moves.shelve(context, uuid)

    def is_done(
        self, before: 'listed.Server', after: 'listed.Server'
    ) -> bool:
        return after.status == 'SHELVED_OFFLOADED'


class UnshelveServer(_Move):
    """Have servers that were shelved come back, to their cells.

    A server for which there is no host stays shelved.

    Example::

        cellsched server unshelve 4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e
    """

    doing = 'Unshelving'

    def begin(
        self, moves: 'moves.Moves', context: Any, uuid: str,
        args: argparse.Namespace,
    ) -> None:
        moves.unshelve(context, uuid)


def _is_at_rest(found: 'listed.Server') -> bool:
    return found.status != 'UNKNOWN' and found.task_state is None
