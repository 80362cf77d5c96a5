# SPDX-License-Identifier: Apache-2.0
"""Servers, their history and their moves: ``cellsched server …``."""

import argparse
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import functools
from typing import Any
from typing import ClassVar
from typing import TYPE_CHECKING

from cellsched.cli.app import INTERRUPTED
from cellsched.cli.app import Shell
from cellsched.cli import base
from cellsched.cli import terminal

if TYPE_CHECKING:
    from cellsched.api.server_details import ActionRecord
    from cellsched.api.server_details import MigrationRecord
    from cellsched.api.server_details import ServerDetails
    from cellsched.cli.server_watch import Watch
    from cellsched.listing.server import Server

_COLUMNS: base.Columns = {
    'ID': 'uuid', 'Name': base.or_empty('name'), 'Status': 'status',
    'Cell': base.or_empty('cell'), 'Host': base.or_empty('host'),
    'Attempts': 'attempts', 'Reason': 'reason'}

_TIMEOUT_S = 300

_SERVER = base.argument(
    'server', metavar='SERVER', help='name or id of the server; the first '
    'characters of an id are enough')
_SERVERS = base.argument(
    'servers', metavar='SERVER', nargs='+', help='names or ids of the '
    'servers; the first characters of an id are enough')


#: The arguments about the zone and the host of new servers.
HOSTS: base.Arguments = (
    base.argument(
        '--availability-zone', metavar='ZONE[:HOST[:NODE]]',
        help='availability zone of the servers; by default [DEFAULT] '
             'default_schedule_zone. With a host, the servers are forced to '
             'it, and no filter checks it (administrators only); :HOST names '
             'no zone, and ZONE::NODE only a node'),
    base.argument(
        '--host', metavar='HOST', type=base.text,
        help='host of the servers, which the filters check (administrators '
             'only)'),
    base.argument(
        '--hypervisor-hostname', metavar='NODE', type=base.text,
        help='node of the servers, which the filters check (administrators '
             'only)'))


def _wait_arguments(until: str) -> tuple[base.Argument, base.Argument]:
    """Return the arguments of a command that can wait."""
    return (
        base.flag('--wait', f'wait {until}'),
        base.argument(
            '--timeout', type=base.whole(0, base.TIMEOUT_MAX_S),
            metavar='SECONDS', default=_TIMEOUT_S,
            help=f'with --wait, the longest time to wait; by default '
                 f'{_TIMEOUT_S}'))


class CreateServer(base.Lister):
    """Create servers.

    Shows the servers as they are accepted, or with ``--wait`` when each is
    built or has failed. With ``--wait``, ends with 2 if a server is in ERROR,
    and with 1 if the timeout has passed.

    Examples::

        cellsched server create web --flavor m1.small --wait
        cellsched server create web --flavor m1.small --count 3
        cellsched server create worker --flavor m1.large --min 10 --max 20
        cellsched server create spare --flavor m1.small \\
            --hint different_host=4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e
    """

    app: Shell

    kinds = base.SERVERS
    sends = True
    columns = tuple(_COLUMNS)
    server_ids = ('ID',)
    arguments = (
        base.argument('name', metavar='NAME',
                      help='name of the server; if there are several, each '
                           'name ends with a number'),
        base.argument('--flavor', metavar='FLAVOR', required=True,
                      help='id or name of the flavor'),
        base.argument('--image', metavar='IMAGE', help='id of the image'),
        base.argument('--count', type=base.whole(), metavar='COUNT',
                      help='build this many servers or none; the same as '
                           '--min COUNT'),
        base.argument('--min', type=base.whole(), metavar='COUNT', default=1,
                      help='build no server unless this many fit; by '
                           'default 1'),
        base.argument('--max', type=base.whole(), metavar='COUNT',
                      help='build as many servers as fit, up to this number; '
                           'by default the value of --min'),
        *HOSTS,
        base.several('--hint', 'KEY=VALUE',
                     'a scheduler hint; one key may have several values'),
        base.several('--tag', 'TAG', 'a tag of each server'),
        *_wait_arguments('until each server is built or has failed'))

    def take_action(self, parsed_args: argparse.Namespace) -> base.Rows:
        args = parsed_args
        if args.count is not None and (args.min != 1 or args.max is not None):
            raise base.invalid('--count', 'given with --min or --max',
                               '--count alone')
        if args.count is not None and args.count < 1:
            raise base.invalid('--count', f'{args.count} is out of range',
                               'a whole number above 0')
        uuids = self.app.sending_api.servers.create(
            self.app.context(), args.name, args.flavor, args.image,
            args.availability_zone, read_hints(args.hint),
            args.min if args.count is None else args.count, args.max,
            args.tag, host=args.host,
            hypervisor_hostname=args.hypervisor_hostname)
        watch = _watching(self.app, uuids)
        if args.wait:
            self.exit_code = _wait_until_built(self.app, watch, args.timeout)
        else:
            watch.look()
        return self.columns, [
            base.values(_COLUMNS, each) for each in watch.found.values()]


#: Filters of the API, each with its option, the name of the value, and the
#: servers that it selects.
_FILTERS: Mapping[str, tuple[str, str, str]] = {
    'name': ('--name', 'TEXT', 'whose name contains this text'),
    'status': ('--status', 'STATUS', 'in this status, such as ACTIVE, BUILD '
               'or ERROR'),
    'host': ('--host', 'HOST', 'on this host'),
    'flavor': ('--flavor', 'FLAVOR', 'of this flavor, by id or name'),
    'image': ('--image', 'IMAGE', 'of this image, by id'),
    'project_id': ('--project', 'PROJECT', 'of this project'),
    'user_id': ('--user', 'USER', 'of this user'),
    'availability_zone': ('--availability-zone', 'ZONE',
                          'in this availability zone'),
    'tags': ('--tags', 'TAG,...', 'that have all these tags'),
    'tags-any': ('--tags-any', 'TAG,...', 'that have one of these tags'),
    'not-tags': ('--not-tags', 'TAG,...', 'that lack one of these tags'),
    'not-tags-any': ('--not-tags-any', 'TAG,...',
                     'that have none of these tags'),
    'changes-since': ('--changes-since', 'TIME', 'that changed at or after '
                      'this time, including deleted servers'),
    'changes-before': ('--changes-before', 'TIME',
                       'whose last change is before this time'),
}


@base.lister(
    *(base.argument(option, dest=name, metavar=metavar,
                    help=f'list only servers {selected}')
      for name, (option, metavar, selected) in _FILTERS.items()),
    base.flag('--deleted', 'list deleted servers'),
    base.argument('--sort', metavar='KEY[:asc|:desc],...', default='',
                  help='keys to sort by; descending by default'),
    base.argument('--marker', metavar='ID',
                  help='list the servers after this one'),
    base.exclusive(
        base.argument(
            '--limit', type=base.whole(), metavar='COUNT',
            help='list at most this many servers; the default, and the '
                 'largest value, is [api] max_limit'),
        base.flag('--all', 'list all servers, page by page')),
    columns=_COLUMNS, kinds=base.SERVERS, server_ids=('ID',))
def list_servers(
    app: Shell, args: argparse.Namespace
) -> 'Iterable[Server]':
    """List servers, the newest first.

    The order is the same in all cells. If a cell does not answer, a warning
    names it, and its servers are listed with the status UNKNOWN.

    Examples::

        cellsched server list --limit 20 -f json
        cellsched server list --status ERROR --sort project_id:asc,created_at
        cellsched server list --all --changes-since 2026-01-31T00:00:00Z
    """
    filters: dict[str, Any] = {
        name: value for name in _FILTERS
        if (value := getattr(args, name)) is not None}
    if args.deleted:
        filters['deleted'] = True
    keys, directions = [], []
    for part in args.sort.split(',') if args.sort else ():
        key, _, direction = part.partition(':')
        keys.append(key)
        directions.append(direction or 'desc')
    context, marker = app.context(), args.marker
    found, down = [], dict[str, None]()
    while True:
        page = app.api.servers.list(
            context, filters, keys, directions, args.limit, marker)
        found += page.servers
        down.update(dict.fromkeys(page.down_cells))
        if not (args.all and page.servers):
            break
        marker = page.marker
    for cell in down:
        app.warn(f'warning: cell {cell} did not answer; the status of its '
                 'servers is UNKNOWN')
    return found


def _flavor(details: 'ServerDetails') -> base.ShownValue:
    flavor = details.flavor
    return base.ShownValue({} if flavor is None else {
        'name': flavor.get('name'), 'vcpus': flavor.get('vcpus'),
        'ram': flavor.get('memory_mb'), 'disk': flavor.get('root_gb'),
        'ephemeral': flavor.get('ephemeral_gb'), 'swap': flavor.get('swap'),
        'extra_specs': dict(flavor.get('extra_specs') or {})},
        lambda fields: '' if not fields else
        '{name}: {vcpus} VCPUs, {ram} MB, {disk} GB'.format(**fields))


def _named(fields: Mapping[str, str]) -> base.ShownValue:
    """Return a name and an id."""
    return base.ShownValue(fields, lambda fields: (
        '{name} ({id})'.format(**fields) if fields.get('name')
        else fields.get('id', '')))


def _group(details: 'ServerDetails') -> base.ShownValue:
    group = details.group
    return _named({} if group is None else {
        'id': group.uuid, 'name': group.name})


def _faults(details: 'ServerDetails') -> base.ShownValue:
    return base.ShownValue([
        {'code': fault.code, 'message': fault.message,
         'details': fault.details, 'host': fault.host,
         'created': base.shown(fault.created_at)}
        for fault in details.faults],
        lambda rows: '\n'.join(
            '{created} {message}'.format(**row) for row in rows))


def _moves(details: 'ServerDetails') -> base.ShownValue:
    return base.ShownValue([
        {'id': move.uuid, 'kind': move.kind, 'status': move.status,
         'source': move.source, 'dest': move.dest, 'reason': move.reason,
         'created': base.shown(move.created_at),
         'updated': base.shown(move.updated_at)}
        for move in details.moves],
        lambda rows: '\n'.join(
            '{created} {kind} {source} -> {dest}: {status}'.format(**row)
            for row in rows))


_DETAILS: base.Columns = {
    'id': 'server.uuid', 'name': 'server.name', 'status': 'server.status',
    'task_state': 'server.task_state', 'cell': 'server.cell',
    'host': 'server.host', 'availability_zone': 'server.availability_zone',
    'flavor': _flavor,
    'image': lambda details: _named(dict(details.image)),
    'server_group': _group, 'attempts': 'server.attempts',
    'reason': 'server.reason', 'project_id': 'server.project_id',
    'user_id': 'server.user_id',
    'created': lambda details: base.shown(details.server.created_at),
    'updated': lambda details: base.shown(details.server.updated_at),
    'tags': lambda details: list(details.server.tags), 'faults': _faults,
    'migrations': _moves}


@base.show(_SERVER, columns=_DETAILS, kinds=base.SERVERS)
def show_server(app: Shell, args: argparse.Namespace) -> 'ServerDetails':
    """Show a server with its flavor, image, group, faults and moves.

    If the server is in ERROR, the reason is shown. If its cell does not
    answer, the command shows the request for the server, and the status is
    UNKNOWN.

    Examples::

        cellsched server show web
        cellsched server show 4b0f1d0c
    """
    [uuid] = app.servers([args.server])
    return app.api.details.get(app.context(), uuid)


@base.show(
    _SERVER,
    base.argument('--name', metavar='NAME', help='new name of the server'),
    base.several('--tag', 'TAG', 'a tag to add'),
    base.flag('--no-tag', 'remove the present tags before others are added'),
    base.argument('--state', choices=('active', 'error'),
                  help='new state of the server. WARNING: this can make a '
                       'server unusable; its guest is neither changed nor '
                       'checked, and its task is ended (administrators only)'),
    columns=_DETAILS, kinds=base.SERVERS)
def set_server(app: Shell, args: argparse.Namespace) -> 'ServerDetails':
    """Rename or tag a server, or correct its state.

    ``--state`` is for a server whose state is wrong, for example after a
    failure that its host did not report. Use it with caution.

    Examples::

        cellsched server set 4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e --name web
        cellsched server set 4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e \\
            --no-tag --tag blue --tag canary
        cellsched server set 4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e \\
            --state error
    """
    if (args.name is None and args.state is None and not args.tag
            and not args.no_tag):
        raise base.invalid('server set', 'nothing to set',
                           '--name, --state, --tag or --no-tag')
    context, servers = app.context(), app.api.servers
    [uuid] = app.servers([args.server])
    if args.tag or args.no_tag:
        present = [] if args.no_tag else servers.get(context, uuid).tags
        servers.set_tags(
            context, uuid, list(dict.fromkeys([*present, *args.tag])))
    if args.name is not None:
        servers.update(context, uuid, name=args.name)
    if args.state is not None:
        servers.reset_state(context, uuid, args.state)
    return app.api.details.get(context, uuid)


class _Change(base.ChangeCommand):
    """A command that begins a change of servers, and can wait for its end."""

    app: Shell

    kinds = base.SERVERS
    sends = True

    #: The progress that the command shows.
    doing: ClassVar[str]

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        begin = self.begin(parsed_args)
        begun, code = self.change(
            parsed_args.format, self.doing.lower(), 'server',
            self.app.servers(parsed_args.servers), begin)
        if parsed_args.wait and begun:
            code = self.wait(
                _watching(self.app, begun), parsed_args.timeout) or code
        return code

    def begin(self, args: argparse.Namespace) -> Callable[[str], None]:
        """Return a function that begins the change of a server."""
        raise NotImplementedError

    def wait(self, watch: 'Watch', timeout_s: int) -> int:
        """Wait until the changes have ended; return the exit code."""
        raise NotImplementedError


class RetryServer(_Change):
    """Build servers that are in cell0 again, with the same ids.

    With ``--wait``, ends as ``server create`` does.

    Example::

        cellsched server retry 4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e --wait
    """

    doing = 'Retrying'
    arguments = (
        _SERVERS, *_wait_arguments('until each server is built or has failed'))

    def begin(self, args: argparse.Namespace) -> Callable[[str], None]:
        return functools.partial(
            self.app.sending_api.servers.retry, self.app.context())

    def wait(self, watch: 'Watch', timeout_s: int) -> int:
        return _wait_until_built(self.app, watch, timeout_s)


class DeleteServer(_Change):
    """Delete servers, in any state.

    Example::

        cellsched server delete 4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e --wait
    """

    doing = 'Deleting'
    arguments = (_SERVERS, *_wait_arguments('until the servers are deleted'))

    def begin(self, args: argparse.Namespace) -> Callable[[str], None]:
        return functools.partial(
            self.app.api.servers.delete, self.app.context())

    def wait(self, watch: 'Watch', timeout_s: int) -> int:
        return _wait_for(self.app, watch, timeout_s, self.doing,
                         lambda found: found.status == 'DELETED')


@base.lister(
    base.argument('--server', metavar='SERVER',
                  help='list only moves of this server, by name or id'),
    base.argument('--host', metavar='HOST',
                  help='list only moves to or from this host'),
    base.argument('--status', metavar='STATUS',
                  help='list only moves in this status, such as migrating, '
                       'done or error'),
    base.argument('--type', metavar='TYPE',
                  help='list only moves of this type: evacuation, migration, '
                       'rebuild, shelve or unshelve'),
    base.argument('--limit', type=base.whole(), metavar='COUNT', default=1000,
                  help='list at most this many moves; by default 1000'),
    server_ids=('Server UUID',), columns={
        'UUID': 'uuid', 'Server UUID': 'server', 'Cell': 'cell',
        'Type': 'kind', 'Status': 'status',
        'Source Compute': base.or_empty('source'),
        'Dest Compute': base.or_empty('dest'),
        'Created At': base.time('created_at'),
        'Updated At': base.time('updated_at'), 'Reason': 'reason'},
    kinds=base.SERVERS)
def list_migrations(
    app: Shell, args: argparse.Namespace
) -> 'Iterable[MigrationRecord]':
    """List moves of servers, the newest first, and why some failed.

    Examples::

        cellsched server migration list --host host1 --status error
        cellsched server migration list -f json \\
            --server 4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e
    """
    server = app.servers([args.server])[0] if args.server else None
    page = app.api.history.migrations(
        app.context(), server, args.host, args.status, args.type, args.limit)
    for cell in page.down_cells:
        app.warn(f'warning: cell {cell} did not answer; its moves are '
                 'missing')
    return page.migrations


@base.lister(_SERVER, columns={
    'Request ID': base.or_empty('request_id'), 'Action': 'action',
    'Start Time': base.time('started_at'),
    'Finish Time': base.time('finished_at'),
    'Result': 'result',
    'Reason': 'reason', 'Host': 'host', 'User ID': base.or_empty('user_id')},
    kinds=base.SERVERS)
def list_events(
    app: Shell, args: argparse.Namespace
) -> 'Iterable[ActionRecord]':
    """List the actions on a server, the newest first.

    Example::

        cellsched server event list 4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e
    """
    [uuid] = app.servers([args.server])
    return app.api.history.actions(app.context(), uuid)


_MOVE_ARGUMENTS = (
    _SERVERS,
    *_wait_arguments('until the moves are complete or have failed'))

_HOST = base.argument(
    '--host', metavar='HOST',
    help='the destination host; it must be in the same cell and pass the '
         'filters')


class _Move(_Change):
    """A command that moves servers, each within its cell."""

    arguments: ClassVar[base.Arguments] = _MOVE_ARGUMENTS

    #: The method of the API that begins a move, and the options that it takes.
    method: ClassVar[str]
    options: ClassVar[Sequence[str]] = ()

    def begin(self, args: argparse.Namespace) -> Callable[[str], None]:
        context = self.app.context()
        method = getattr(self.app.api.moves, self.method)
        options = [getattr(args, name) for name in self.options]
        self._before: dict[str, Server] = {}

        def begin(uuid: str) -> None:
            self._before[uuid] = self.app.api.servers.get(context, uuid)
            method(context, uuid, *options)

        return begin

    def is_done(self, before: 'Server', after: 'Server') -> bool:
        """Return whether the move of a server without a task succeeded."""
        return after.status == 'ACTIVE' and after.host != before.host

    def wait(self, watch: 'Watch', timeout_s: int) -> int:
        code = _wait_for(
            self.app, watch, timeout_s, self.doing,
            lambda found: (found.status != 'UNKNOWN'
                           and found.task_state is None))
        if code:
            return code
        for uuid, after in watch.found.items():
            if not self.is_done(self._before[uuid], after):
                where = f' on {after.host}' if after.host else ''
                page = self.app.api.history.migrations(
                    self.app.context(), uuid, limit=1)
                reason = after.reason or next(
                    (each.reason for each in page.migrations), '')
                reason = f': {reason}' if reason else ''
                self.app.warn(f'{self.doing} {uuid} failed; the server is '
                              f'{after.status}{where}{reason}')
                code = base.IN_ERROR
        return code


class RebuildServer(_Move):
    """Rebuild servers on their hosts; the data on their disks is lost.

    If another image is given, the host must be suitable for it. If a
    rebuild fails, the server is in ERROR, and can be rebuilt again. The host
    must be up; ``server evacuate`` is for a host that is down.

    Example::

        cellsched server rebuild 4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e \\
            --image 9d1f3a52-6c0b-4f0e-8b1a-2f6f6f0c5f11 --wait
    """

    doing = 'Rebuilding'
    method = 'rebuild'
    options = ('image',)
    arguments = (
        *_MOVE_ARGUMENTS,
        base.argument('--image', metavar='IMAGE',
                      help='id of another image; by default each server keeps '
                           'its image'))

    def is_done(self, before: 'Server', after: 'Server') -> bool:
        return after.status == 'ACTIVE'


class EvacuateServer(_Move):
    """Rebuild servers of a failed host on another host of their cell.

    The data on local disks is lost: root disks come from the image again, and
    ephemeral and swap disks are empty. Volumes keep their data.

    A host is down if its service has not reported for ``[DEFAULT]
    service_down_time`` seconds, or is forced down. A task that waits for this
    host is ended. A server for which no host is found keeps its state, and can
    be evacuated again.

    Example::

        cellsched server evacuate 4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e
    """

    doing = 'Evacuating'
    method = 'evacuate'
    options = ('host',)
    arguments = (*_MOVE_ARGUMENTS, _HOST)


class MigrateServer(_Move):
    """Migrate servers to other hosts of their cells.

    The servers stop while their local disks are transferred. A server with a
    local disk is refused if its host cannot transfer disks, and the error says
    what would be lost. With ``--rebuild`` the server is built anew, and the
    data on its local disks is lost. Volumes keep their data in any case.

    A server for which no host is found stays on its host. The host of a server
    must be up; ``server evacuate`` moves the servers of a host that is down.

    Examples::

        cellsched server migrate 4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e --wait
        cellsched server migrate 4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e --rebuild
    """

    doing = 'Migrating'
    method = 'migrate'
    options = ('host', 'rebuild')
    arguments = (
        *_MOVE_ARGUMENTS, _HOST,
        base.flag('--rebuild', 'build each server anew from its image on its '
                  'new host; the data on its local disks (root, ephemeral, '
                  'swap) is lost'))


class ShelveServer(_Move):
    """Shelve servers: remove them from their hosts, and keep their records.

    The data on local disks is lost. Volumes keep their data. The host of a
    server must be up, because it removes the server.

    Example::

        cellsched server shelve 4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e
    """

    doing = 'Shelving'
    method = 'shelve'

    def is_done(self, before: 'Server', after: 'Server') -> bool:
        return after.status == 'SHELVED_OFFLOADED'


class UnshelveServer(_Move):
    """Restore shelved servers on hosts of their cells.

    The servers are built anew: their root disks come from the image, and their
    ephemeral and swap disks are empty. Volumes keep their data.

    A server for which no host is found stays shelved.

    Example::

        cellsched server unshelve 4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e
    """

    doing = 'Unshelving'
    method = 'unshelve'


def read_hints(texts: Iterable[str]) -> dict[str, list[str]]:
    """Return scheduler hints from options.

    :raises cellsched.exception.InvalidField: a value is not KEY=VALUE
    """
    hints: dict[str, list[str]] = {}
    for text in texts:
        name, equals, value = text.partition('=')
        if not equals:
            raise base.invalid('--hint', f'{text!a:.80} has no value',
                               'KEY=VALUE')
        hints.setdefault(name, []).append(value)
    return hints


def _watching(app: Shell, uuids: Sequence[str]) -> 'Watch':
    """Return a watch of servers."""
    # The help of all commands imports this module, and would import the API.
    from cellsched.cli.server_watch import Watch

    return Watch(app.api.servers, app.context(), uuids)


def _wait_for(
    app: Shell, watch: 'Watch', timeout_s: int, what: str,
    is_done: Callable[['Server'], bool],
) -> int:
    """Wait for servers; return the exit code."""
    with terminal.progress(what, len(watch.found), app.stderr) as advance:
        pending = watch.wait(is_done, timeout_s, app.clock, advance)
    if not pending:
        return 0
    if watch.problem is not None:
        app.report(watch.problem)
    app.warn(f'{what} {len(pending)} of {len(watch.found)} servers did not '
             f'end within {timeout_s} seconds')
    return base.TIMED_OUT


def _wait_until_built(app: Shell, watch: 'Watch', timeout_s: int) -> int:
    """Wait until servers are built or have failed; return the exit code."""
    try:
        code = _wait_for(
            app, watch, timeout_s, 'Building',
            lambda found: found.status not in ('BUILD', 'UNKNOWN'))
    except KeyboardInterrupt:
        # The builds continue, so the command still shows the ids.
        return INTERRUPTED
    if not code and any(
            found.status == 'ERROR' for found in watch.found.values()):
        return base.IN_ERROR
    return code
