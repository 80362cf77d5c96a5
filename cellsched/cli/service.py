# SPDX-License-Identifier: Apache-2.0
"""Services: ``cellsched service list|set|delete``."""

import argparse
from collections.abc import Iterable
from typing import Any
from typing import TYPE_CHECKING

from cellsched.cli.app import Shell
from cellsched.cli import base
from cellsched import plugins

if TYPE_CHECKING:
    from cellsched.api.services import ServiceRecord


@base.lister(
    base.argument('--binary', metavar='BINARY',
                  help='list only services of this binary, such as '
                       'nova-compute'),
    base.argument('--host', metavar='HOST',
                  help='list only services of this host'),
    base.argument('--cell', metavar='CELL',
                  help='list only services of this cell, by name or uuid'),
    columns={
        'ID': base.or_empty('uuid'), 'Binary': 'binary', 'Host': 'host',
        'Cell': 'cell',
        'Status': lambda each: base.enabled_or_disabled(each.disabled),
        'State': 'state', 'Updated At': base.time('updated_at'),
        'Disabled Reason': base.or_empty('disabled_reason'),
        'Forced Down': 'forced_down', 'Version': 'version'})
def list_services(
    app: Shell, args: argparse.Namespace
) -> 'Iterable[ServiceRecord]':
    """List the services of all cells and above them, sorted by host.

    Schedulers, and conductors above the cells, have their records in cell0.
    A service that has not reported for ``[DEFAULT] service_down_time`` seconds
    is ``down``. A scheduler or a conductor that has stopped in order is
    ``stopped``. If a cell does not answer, its mapped hosts are listed with
    the state UNKNOWN.

    Examples::

        cellsched service list --cell cell1
        cellsched service list --host host1 -f json
    """
    page = app.api.services.list(
        app.context(), args.binary, args.host, args.cell)
    for cell in page.down_cells:
        app.warn(f'warning: cell {cell} did not answer; the state of its '
                 'services is unknown')
    return page.services


@base.change_each(
    'set', 'service',
    base.argument('service', metavar='BINARY',
                  help='binary of the service: nova-compute'),
    base.exclusive(
        base.flag('--enable', 'schedule new servers to the host again'),
        base.flag('--disable', 'schedule no new servers to the host')),
    base.argument('--disable-reason', metavar='REASON',
                  help='with --disable, the reason that is recorded'),
    base.exclusive(
        base.flag('--up', 'end --down: the host is up if its agent reports'),
        base.flag('--down', 'treat the host as down even if it reports')),
    base.argument('host', metavar='HOST', help='host of the service'))
def set_service(
    app: Shell, args: argparse.Namespace, binary: str
) -> dict[str, Any]:
    """Disable, enable or force down the service of a host.

    A disabled host keeps its servers and gets no new ones. A host that is
    forced down counts as down even if its agent reports, so that its servers
    can be evacuated. Make sure first that the host has stopped.

    Examples::

        cellsched service set --disable --disable-reason "new disks" \\
            host1 nova-compute
        cellsched service set --down host1 nova-compute
    """
    disabled = args.disable if args.enable or args.disable else None
    forced = args.down if args.up or args.down else None
    if disabled is None and forced is None:
        raise base.invalid('service set', 'nothing to set',
                           '--enable or --disable, --up or --down')
    app.api.services.set(app.context(), args.host, binary, disabled,
                         args.disable_reason, forced)
    fields = {'host': args.host,
              'status': base.enabled_or_disabled(disabled) or None,
              'reason': args.disable_reason, 'forced_down': forced}
    return {key: value for key, value in fields.items() if value is not None}


@base.change_each(
    'deleted', 'service',
    base.argument('services', metavar='ID', nargs='+',
                  help='ids of the services, from service list'),
    kinds=(plugins.CLAIMS,))
def delete_service(
    app: Shell, args: argparse.Namespace, uuid: str
) -> dict[str, str]:
    """Delete services that no longer exist.

    With a compute service, the compute nodes and the mapping of its host are
    deleted too. A service that is up, or has servers on its host, is not
    deleted. A service that starts again is added as a new one.

    Example::

        cellsched service delete 4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e
    """
    deleted = app.api.services.delete(app.context(), uuid)
    return {'binary': deleted.binary, 'host': deleted.host}
