# SPDX-License-Identifier: Apache-2.0
"""``cellsched-nova-shadow``: compare with nova-scheduler, and report."""

import argparse
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import datetime
import functools
import os
from typing import Any
from typing import NoReturn
from typing import TYPE_CHECKING

from cellsched.interrupts import ended_by_interrupts

with ended_by_interrupts():
    from nova import monkey_patch

    from cellsched.cli import app
    from cellsched.cli import base

if TYPE_CHECKING:
    from cellsched_nova.shadow import comparison

#: Exit code of a command without results.
_NOTHING = 2

#: Names of the rows with totals.
_ALL, _AGREED = 'all', 'agreed'


class _Command(base.Command):

    app: 'ShadowShell'
    sends = False


class Run(_Command):
    """Compare with nova-scheduler until the command is stopped.

    Reads the configuration files of nova-scheduler, listens to its
    notifications, and decides on the same requests with the same facts. The
    command answers no request, claims nothing, and writes only to
    ``[cellsched] records_connection``. It reads from Placement which host Nova
    selected.

    nova-scheduler must send notifications. Set
    ``[oslo_messaging_notifications] driver = messagingv2``, and preferably
    ``[notifications] notification_format = both``, because unversioned
    notifications lack the destinations of moves.

    Ends with 1 if the configuration is invalid or not supported.

    Example::

        cellsched-nova-shadow --config-file /etc/nova/nova.conf run
    """

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        # An import of Nova would slow down the output of --help.
        from cellsched_nova.shadow import scheduler

        return scheduler.run(self.app.config_options)


class Report(_Command, base.Lister):
    """Show how often, and why, the selections differ from Nova's.

    Shows all requests, the requests with agreement, and each outcome, with the
    percentage, the time of the first request and the newest request as an
    example. The most frequent outcomes come first. An outcome with reasons has
    a row for each reason after its total. Two selections agree if they are the
    same host, hosts of equal weight, or no host.

    Ends with 2 if there are no comparisons.

    Examples::

        cellsched-nova-shadow report
        cellsched-nova-shadow report -f csv
    """

    columns = ('Outcome', 'Reason', 'Requests', 'Percent', 'Since', 'Request',
               'Server')

    def take_action(self, parsed_args: argparse.Namespace) -> base.Rows:
        groups = self.app.store.groups()
        if not groups:
            self.exit_code = _NOTHING
            self.app.warn('nothing was compared yet in the database of '
                          '[cellsched] records_connection')
        return self.columns, list(_rows(groups))


class Show(_Command, base.Lister):
    """Show the comparisons for one server or request, the newest first.

    Shows both hosts, the outcome, and the figures that explain it: the rank
    and weight of Nova's host, and by how much each weigher preferred the host
    selected here.

    Ends with 2 if there are no comparisons.

    Example::

        cellsched-nova-shadow show req-0d1fb7f1-2d9e-4c62-8f3b-0a5c0f6a1c11
    """

    columns = ('At', 'Request', 'Server', 'Host', 'Nova Host', 'Outcome',
               'Reason', 'Detail', 'Late', 'Others')

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            'name', metavar='SERVER|REQUEST_ID',
            help='uuid of a server, or id of a request')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> base.Rows:
        found = self.app.store.find(parsed_args.name)
        if not found:
            self.exit_code = _NOTHING
            self.app.warn(f'nothing was compared for {parsed_args.name}')
        return self.columns, [
            (_time(each.compared_at), each.request_id, each.instance_uuid,
             each.host, each.nova_host, str(each.verdict.outcome),
             each.verdict.reason, each.verdict.detail, round(each.late_s, 3),
             each.others) for each in found]


class ShadowShell(app.App):
    """A scheduler beside nova-scheduler that answers no request.

    It shows how often, and why, cellsched-nova-scheduler selects other hosts,
    before it replaces nova-scheduler.
    """

    NAME = 'cellsched-nova-shadow'
    namespace = 'cellsched_nova.shadow.scheduler'

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        for name, command in (
                ('report', Report), ('run', Run), ('show', Show)):
            self.command_manager.add_command(name, command)

    @functools.cached_property
    def store(self) -> 'comparison.ComparisonStore':
        """The comparisons, in the database of ``records_connection``."""
        # An import of Nova would slow down the output of --help.
        from cellsched_nova import configuration
        from cellsched_nova import deployment
        from cellsched_nova import records
        from cellsched_nova.shadow import comparison

        deployment.configure(self.config_options)
        conf = deployment.CONF
        deployment.refuse_any(configuration.wrong_values(conf))
        with configuration.translate_errors():
            return comparison.ComparisonStore(
                records.open_database(conf),
                conf.cellsched.comparison_retention)


def main() -> NoReturn:
    """Run one command for a comparison."""
    # Without this, Nova reads its configuration during the patch and fails
    # with its own errors.
    os.environ['OS_NOVA_DISABLE_EVENTLET_PATCHING'] = 'true'
    # Nova must patch the threads before any other module of it is imported.
    with ended_by_interrupts():
        monkey_patch.patch()
    app.main(ShadowShell)


def _rows(groups: Sequence['comparison.Group']) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a report, the most frequent outcome first."""
    total = sum(each.requests for each in groups)
    if not total:
        return
    counted = functools.partial(_row, total)
    yield counted(_ALL, '', groups)
    yield counted(_AGREED, '', [
        each for each in groups if each.outcome.agrees])
    outcomes: dict[Any, list['comparison.Group']] = {}
    for each in groups:
        outcomes.setdefault(each.outcome, []).append(each)
    for outcome, found in sorted(outcomes.items(), key=lambda pair: -sum(
            each.requests for each in pair[1])):
        yield counted(str(outcome), '', found)
        for each in found:
            if each.reason:
                yield counted(str(outcome), each.reason, [each])


def _row(
    total: int, outcome: str, reason: str,
    groups: Iterable['comparison.Group'],
) -> tuple[Any, ...]:
    found = list(groups)
    count = sum(each.requests for each in found)
    newest = max(found, key=lambda each: each.last_at, default=None)
    return (outcome, reason, count, round(100 * count / total, 1),
            _time(min(each.first_at for each in found)) if found else None,
            None if newest is None else newest.example.request_id,
            None if newest is None else newest.example.instance_uuid)


def _time(seconds: float) -> str | None:
    return base.shown(datetime.datetime.fromtimestamp(seconds, datetime.UTC))


if __name__ == '__main__':
    main()
