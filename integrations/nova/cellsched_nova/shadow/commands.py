# SPDX-License-Identifier: Apache-2.0
"""``cellsched-nova-shadow``: compare with Nova's scheduler, and report."""

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

from nova import monkey_patch

from cellsched.cli import app
from cellsched.cli import base

if TYPE_CHECKING:
    from cellsched_nova.shadow import comparison

#: Exit code.
_NOTHING = 2

#: Rows of what is counted together.
_ALL, _AGREED = 'all', 'agreed'


class _Comparing(base.Command):

    app: 'ShadowShell'
    sends = False


class Run(_Comparing):
    """Decide beside nova-scheduler until it is stopped, and compare.

    Reads the files of nova-scheduler, listens to its notifications, and
    decides what it decides on the same facts. It answers nobody, claims
    nothing, and writes to ``[cellsched] records_connection`` alone. Where
    Nova put a server is read in Placement.

    nova-scheduler has to tell what it decides:
    ``[oslo_messaging_notifications] driver = messagingv2``, and best
    ``[notifications] notification_format = both``, as the other form does not
    tell where a server may move to.

    Ends with 1 if something of the configuration cannot be honoured.

    Example::

        cellsched-nova-shadow --config-file /etc/nova/nova.conf run
    """

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        from cellsched_nova.shadow import service

        return service.run(self.app.config_options)


class Report(_Comparing, base.Lister):
    """Show how often this scheduler chose otherwise than Nova's, and why.

    Shows all requests, those that agree, and each outcome, with its share in
    percent, since when there are any, and the newest request as an example.
    Outcomes that have reasons are shown in all first, then by reason, the most
    frequent first. To agree is to choose the same host, one of equal weight,
    or none as Nova did.

    Ends with 2 if nothing was compared yet.

    Examples::

        cellsched-nova-shadow report
        cellsched-nova-shadow report -f csv
    """

    columns = ('Outcome', 'Reason', 'Requests', 'Percent', 'Since', 'Request',
               'Server')

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        groups = self.app.store.groups()
        if not groups:
            self.exit_code = _NOTHING
            self.app.warn('nothing was compared yet in the database that '
                          '[cellsched] records_connection names')
        return self.columns, list(_rows(groups))


class Show(_Comparing, base.Lister):
    """Show what was compared for one server or request, the newest first.

    Shows both hosts, the outcome, and the figures that made it: the rank and
    the weight of Nova's host, and by how much each weigher preferred the host
    that was chosen here.

    Ends with 2 if nothing is known of it.

    Example::

        cellsched-nova-shadow show req-0d1fb7f1-2d9e-4c62-8f3b-0a5c0f6a1c11
    """

    columns = ('At', 'Request', 'Server', 'Host', 'Nova Host', 'Outcome',
               'Reason', 'Detail', 'Late', 'Others')

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            'name', metavar='SERVER|REQUEST_ID',
            help='the uuid of a server, or the id of a request')
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
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
    """A scheduler beside Nova's, which answers nobody.

    It shows how often, and why, cellsched-nova-scheduler would have chosen
    otherwise, before it is put in the place of nova-scheduler.
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
        """The comparisons, in the database that nova.conf names."""
        # To import Nova takes longer than a help needs.
        from cellsched_nova import configuration
        from cellsched_nova import deployment
        from cellsched_nova import records
        from cellsched_nova.shadow import comparison

        deployment.configure(self.config_options)
        conf = deployment.CONF
        with configuration.translate_errors():
            return comparison.ComparisonStore(
                records.open_database(conf),
                conf.cellsched.comparison_retention)


def main() -> NoReturn:
    """Run one command of the shadow."""
    # Nova would read its configuration at once, and fail in its own way.
    os.environ['OS_NOVA_DISABLE_EVENTLET_PATCHING'] = 'true'
    # It has to see to its threads before anything else of it is imported.
    monkey_patch.patch(backend='threading')
    app.main(ShadowShell)


def _rows(
    groups: Sequence['comparison.Group']
) -> Iterator[tuple[Any, ...]]:
    """Yield what is shown of comparisons, the largest outcomes first."""
    total = sum(each.requests for each in groups)
    if not total:
        return
    counted = functools.partial(_counted, total)
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


def _counted(
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
