# SPDX-License-Identifier: Apache-2.0
"""Moving claims to another store: ``cellsched-manage claims copy``."""

import argparse
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
import contextlib
import dataclasses
import itertools
from typing import TYPE_CHECKING
from typing import TypeVar

from cellsched.cli.app import App
from cellsched.cli import base
from cellsched.cli import progress
from cellsched import exception
from cellsched import plugins

if TYPE_CHECKING:
    from cellsched.claims import base as claims_base
    from cellsched.claims import comparison
    from cellsched.claims import copying
    from cellsched.wiring import command as assembly

_Done = TypeVar('_Done')

#: Differences that are told one by one.
_TOLD_MAX = 100

#: Services that an error names.
_NAMED_MAX = 3


class CopyClaims(base.ReportCommand):
    """Copy all claims and inventories to another claim store.

    The source is the store of this configuration; the target is that of
    --to-config-file, a configuration whose [claims] names another one. It
    must have its tables, and be empty or have a part of the same copy. All
    services must be stopped, in all cells, until they are started with the
    configuration of the target: what is claimed meanwhile is not copied, or
    not known to be held. So nothing is done while a compute service is up,
    unless --force is given.

    At the end all of both stores is read again and compared; what is not
    the same is listed. A copy that was killed is done again, and goes on.
    The source stays as it is.

    Ends with 0 if both stores say the same, and with 1 if they do not, or
    if nothing was copied.

    Examples::

        cellsched-manage --config-file new.conf claims_db sync
        cellsched-manage --config-file api.conf claims copy \\
            --to-config-file new.conf
    """

    kinds = (plugins.CLAIMS,)

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            '--to-config-file', action='append', required=True,
            metavar='FILE',
            help='a configuration file of the target; of several, the later '
                 'ones override the earlier')
        parser.add_argument(
            '--batch', type=int, default=500, metavar='CONSUMERS',
            help='how many consumers to copy at a time; by default 500')
        parser.add_argument(
            '--force', action='store_true',
            help='do not ask the cells whether services are up')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        args = parsed_args
        parts = self.app.parts
        with contextlib.closing(_target_parts(
                self.app, args.to_config_file)) as others:
            from cellsched.claims import copying

            source = _store(parts, 'the source')
            target = _store(others, ', '.join(args.to_config_file))
            copier = copying.ClaimCopier(source, target, args.batch)
            if not args.force:
                self._check_services()
            size = copier.size()
            self._during('checking', size, copier.check)
            copied = self._during('copying', size, copier.copy)
            found, more = self._during(
                'comparing', size,
                lambda looked: _first(copier.compare(looked)))
        self._tell(args.format, copied, found, more)
        return 1 if found else 0

    def _check_services(self) -> None:
        """Make sure that no compute service has reported lately."""
        if not self.app.conf.api_database.connection:
            raise exception.ConfigurationInvalid(
                field='[api_database] connection',
                expected='where all cells are found, to ask whether their '
                         'services are up; --force does not ask')
        from cellsched.api import services
        from cellsched import context

        page = self.app.api.services.list(context.admin())
        up = [each.host for each in page.services
              if each.state == services.UP]
        if page.down_cells:
            raise exception.ClaimsNotCopied(
                reason=f'cell {_some(page.down_cells)} did not answer whether '
                       'its services are up; --force does not ask')
        if up:
            raise exception.ClaimsNotCopied(
                reason=f'compute services are up, of host {_some(up)}; stop '
                       'all services and wait until these count as down, or '
                       'give --force')

    def _during(
        self, what: str, size: int,
        work: 'Callable[[comparison.Looked], _Done]',
    ) -> '_Done':
        """Do something while its progress is shown; return what it does."""
        with progress.bar(
                what, size, self.app.stderr, self.app.clock) as show:
            return work(_counting(show))

    def _tell(
        self, form: str, copied: 'copying.Copied',
        found: 'Sequence[comparison.StoreDifference]', more: int,
    ) -> None:
        said = (f'Copied {copied.providers} providers and the '
                f'{copied.claims} claims of {copied.consumers} consumers, '
                f'{copied.new} of them new')
        self.show(form, {
            'action': 'copied', 'kind': 'claims',
            **dataclasses.asdict(copied), 'verified': not found,
            'differences': [dataclasses.asdict(each) for each in found],
            'more_differences': more,
        }, [said,
            *(f'Differs: {each.kind} {each.name}: {each.text}'
              for each in found),
            *(['Verified: both stores say the same'] if not found else [])])
        if copied.memberships_left:
            self.app.warn(
                f'warning: {copied.memberships_left} consumers are in server '
                'groups with hard policies, which the target does not keep')
        if found:
            self.app.warn(
                f'{len(found) + more} providers and consumers are not the '
                'same in both stores; do not use the target')


def _target_parts(
    app: App, files: Sequence[str]
) -> 'assembly.CommandParts':
    """Return the parts of another configuration; to be closed."""
    from cellsched.conf import database
    from cellsched.conf import loader
    from cellsched.wiring import command as assembly

    conf = loader.load(files=list(files), dirs=[], kinds=(plugins.CLAIMS,),
                       messages=False)
    database.be_impatient(conf)
    return assembly.CommandParts(conf, app.clock)


def _store(
    parts: 'assembly.CommandParts', where: str
) -> 'claims_base.ClaimStore':
    """Return a store that is there, and that other processes see.

    :param where: what errors call its configuration
    """
    from cellsched.claims import base as claims_base

    try:
        store = parts.claims
        if claims_base.Capability.SHARED not in store.capabilities:
            raise exception.ConfigurationInvalid(
                field='[claims] store',
                expected='one that other processes see, not '
                         f'{parts.conf.claims.store}')
    except exception.ConfigurationInvalid as exc:
        raise exception.ConfigurationInvalid(
            f'{where}: {exc.format_message()}') from exc
    store.check()
    return store


def _first(
    found: 'Iterable[comparison.StoreDifference]'
) -> 'tuple[list[comparison.StoreDifference], int]':
    """Return the first differences, and how many more there are."""
    each = iter(found)
    return list(itertools.islice(each, _TOLD_MAX)), sum(1 for _ in each)


def _counting(show: progress.Progress) -> 'comparison.Looked':
    """Return what adds up how far it is."""
    done = 0

    def looked(more: int) -> None:
        nonlocal done
        done += more
        show(done)
    return looked


def _some(names: Sequence[str]) -> str:
    """Return a few names, and how many more there are."""
    more = len(names) - _NAMED_MAX
    return ', '.join(names[:_NAMED_MAX]) + (
        f' and {more} more' if more > 0 else '')
