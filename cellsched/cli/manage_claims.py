# SPDX-License-Identifier: Apache-2.0
"""The copy of claims to another store: ``cellsched-manage claims copy``."""

import argparse
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
import contextlib
import dataclasses
import itertools
from typing import TYPE_CHECKING
from typing import TypeVar

from cellsched.cli import base
from cellsched.cli import terminal
from cellsched import exception
from cellsched import plugins

if TYPE_CHECKING:
    from cellsched.claims.copying import CopyResult
    from cellsched.claims.copying import Progress
    from cellsched.claims.copying import StoreDifference

_Result = TypeVar('_Result')

#: Differences that are shown.
_SHOWN_MAX = 100

#: Names that an error has.
_NAMES_MAX = 3


class CopyClaims(base.ReportCommand):
    """Copy all claims and inventories to another claim store.

    The source is the store of this configuration. The target is the store of
    --to-config-file, a configuration with another [claims] group. The target
    must have its tables, and be empty or have a part of the same copy.

    Stop all services in all cells before the copy, and start them with the
    configuration of the target after it. A claim made during the copy is
    lost. So the command is refused while a compute service is up, unless
    --force is given.

    At the end both stores are read again and compared, and the differences
    are listed. An interrupted copy can be repeated, and continues. The source
    does not change.

    Ends with 0 if both stores are equal, and with 1 if they differ or nothing
    was copied.

    Examples::

        cellsched-manage --config-file new.conf claims_db sync
        cellsched-manage --config-file api.conf claims copy \\
            --to-config-file new.conf
    """

    kinds = (plugins.CLAIMS,)
    arguments = (
        base.argument('--to-config-file', action='append', required=True,
                      metavar='FILE',
                      help='a configuration file of the target; may be '
                           'repeated, and a later file overrides an earlier '
                           'one'),
        base.argument('--batch', type=base.whole(), default=500,
                      metavar='CONSUMERS',
                      help='the number of consumers to copy at a time; by '
                           'default 500'),
        base.flag('--force', 'do not check whether services are up'))

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        args, backend = parsed_args, self.app.backend
        with contextlib.closing(backend.other(args.to_config_file)) as target:
            copier = backend.copier(
                target, ', '.join(args.to_config_file), args.batch)
            if not args.force:
                self._check_services()
            size = copier.size()
            self._during('checking', size, copier.check)
            copied = self._during('copying', size, copier.copy)
            found, more = self._during(
                'comparing', size,
                lambda looked: _first(copier.compare(looked)))
        self._report(args.format, copied, found, more)
        return 1 if found else 0

    def _check_services(self) -> None:
        """Make sure that no service is up."""
        if not self.app.conf.api_database.connection:
            raise exception.ConfigurationInvalid(
                field='[api_database] connection',
                problem='it is unset, so the services of cells cannot be '
                        'checked',
                expected='the URL of the API database, or --force')
        context = self.app.backend.context('admin', 'admin')
        page = self.app.api.services.list(context)
        up = [*dict.fromkeys(
            each.host for each in page.services if each.state == 'up')]
        if page.down_cells:
            raise exception.ClaimsNotCopied(
                reason=f'cell {_some(page.down_cells)} did not answer, so its '
                       'services may be up; --force skips the check')
        if up:
            raise exception.ClaimsNotCopied(
                reason=f'services are up, of host {_some(up)}; stop all '
                       'services and wait until none is up, or use --force')

    def _during(
        self, what: str, size: int, work: 'Callable[[Progress], _Result]'
    ) -> '_Result':
        """Run a function that counts its progress; return its result."""
        with terminal.progress(
                what, size, self.app.stderr, self.app.clock) as show:
            return work(_counting(show))

    def _report(
        self, form: str, copied: 'CopyResult',
        found: 'Sequence[StoreDifference]',
        more: int,
    ) -> None:
        self.show(form, {
            'action': 'copied', 'kind': 'claims',
            **dataclasses.asdict(copied), 'verified': not found,
            'differences': [dataclasses.asdict(each) for each in found],
            'more_differences': more,
        }, [f'Copied {copied.providers} providers and the {copied.claims} '
            f'claims of {copied.consumers} consumers, {copied.new} of them '
            'new',
            *(f'Differs: {each.kind} {each.name}: {each.text}'
              for each in found),
            *(['Verified: both stores are equal'] if not found else [])])
        if copied.memberships_lost:
            self.app.warn(
                f'warning: {copied.memberships_lost} consumers are in server '
                'groups with hard policies, which the target does not enforce')
        if found:
            self.app.warn(
                f'{len(found) + more} providers and consumers differ; do not '
                'use the target')


def _first(
    found: 'Iterable[StoreDifference]'
) -> 'tuple[list[StoreDifference], int]':
    """Return the first differences, and the number of further ones."""
    each = iter(found)
    return list(itertools.islice(each, _SHOWN_MAX)), sum(1 for _ in each)


def _counting(show: terminal.Progress) -> 'Progress':
    """Return a function that adds to the progress."""
    done = 0

    def looked(more: int) -> None:
        nonlocal done
        done += more
        show(done)
    return looked


def _some(names: Sequence[str]) -> str:
    """Return the first names, and the number of further ones."""
    more = len(names) - _NAMES_MAX
    return ', '.join(names[:_NAMES_MAX]) + (
        f' and {more} more' if more > 0 else '')
