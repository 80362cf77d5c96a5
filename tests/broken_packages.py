# SPDX-License-Identifier: Apache-2.0
"""Packages of others whose plug-ins are broken, and one whose are not.

They are written as an installer leaves them, so that a process that has the
directory on its path finds their entry points::

    python -m tests.broken_packages DIRECTORY
"""

import pathlib
import sys

#: Modules that cannot be imported.
_MODULES = {
    'lacking': 'import no_such_module_at_all',
    'leaving': 'import sys; sys.exit(7)',
    'misspelt': 'def (',
    'raising': 'raise ValueError("two\\nlines")',
    'strange': 'class Odd(BaseException): pass\nraise Odd("strange")',
    'partial': """
from cellsched.claims import base as claims
from cellsched.filters import base as filters
from cellsched.network import base as networks
from cellsched.objects import resource_class
from cellsched.quota import base as quota
from cellsched.scheduler.drivers import base as drivers
from cellsched.virt import base as virt
from cellsched.weighers import base as weighers


class Abstract(filters.Filter):
    pass


class AbstractWeigher(weighers.Weigher):
    multiplier_name = 'abstract_multiplier'


class AbstractStore(claims.ClaimStore):
    pass


class AbstractDriver(virt.ComputeDriver):
    pass


class AbstractScheduler(drivers.SchedulerDriver):
    pass


class AbstractNetwork(networks.NetworkAPI):
    pass


class AbstractQuotas(quota.QuotaDriver):
    pass


class ByRow(filters.BaseHostFilter):
    pass


class WithoutOpts(filters.Filter):
    @classmethod
    def opts(cls):
        raise RuntimeError('no options today')

    def keep(self, hosts, request):
        return None


class Unmakable(filters.Filter):
    def __init__(self, options):
        raise SystemExit('not today')

    def keep(self, hosts, request):
        return None


class NoFilter:
    pass


class Wordy(resource_class.ResourceClass):
    word = 'licences' * 9


class UnmakableClass(resource_class.ResourceClass):
    def __init__(self):
        raise SystemExit('not today')


NO_CLASS = 7
NO_COLUMNS = [7]
""",
}

_BROKEN = {
    'cellsched.scheduler.filters': {
        'LackingFilter': 'lacking:Filter', 'LeavingFilter': 'leaving:Filter',
        'MisspeltFilter': 'misspelt:Filter', 'StrangeFilter': 'strange:Filter',
        'RaisingFilter': 'raising:Filter', 'AbsentFilter': 'partial:Absent',
        'AbstractFilter': 'partial:Abstract', 'ByRowFilter': 'partial:ByRow',
        'WithoutOptsFilter': 'partial:WithoutOpts',
        'UnmakableFilter': 'partial:Unmakable',
        'NoFilter': 'partial:NoFilter', 'NoClassFilter': 'partial:NO_CLASS'},
    'cellsched.scheduler.weighers': {
        'LeavingWeigher': 'leaving:Weigher',
        'AbstractWeigher': 'partial:AbstractWeigher'},
    'cellsched.scheduler.drivers': {
        'leaving': 'leaving:Driver', 'partial': 'partial:AbstractScheduler'},
    'cellsched.claims': {
        'leaving': 'leaving:Store', 'partial': 'partial:AbstractStore'},
    'cellsched.virt': {
        'leaving': 'leaving:Driver', 'partial': 'partial:AbstractDriver',
        'no_class': 'partial:NO_CLASS'},
    'cellsched.network': {
        'leaving': 'leaving:Network', 'partial': 'partial:AbstractNetwork'},
    'cellsched.quota': {
        'leaving': 'leaving:Quotas', 'partial': 'partial:AbstractQuotas'},
    'cellsched.hosts.columns': {
        'leaving': 'leaving:COLUMNS', 'odd': 'partial:NO_COLUMNS'},
    'cellsched.resource_classes': {
        'CUSTOM_LEAVING': 'leaving:Class', 'CUSTOM_WORDY': 'partial:Wordy',
        'CUSTOM_NO_CLASS': 'partial:NO_CLASS',
        'CUSTOM_UNMAKABLE': 'partial:UnmakableClass'},
    'cellsched.cli': {
        'broken': 'leaving:Command', 'server.list': 'leaving:Command',
        'no.command': 'partial:NO_CLASS'},
    'cellsched.manage': {'broken': 'leaving:Command'},
    'oslo.config.opts': {'leaving': 'leaving:list_opts'},
    'oslo.messaging.drivers': {'leaving': 'leaving:Driver'},
    'oslo.messaging.notify.drivers': {'leaving': 'leaving:Driver'},
}

_FAILING = """
from cellsched.filters import base as filters


class FailingFilter(filters.Filter):
    def keep(self, hosts, request):
        raise ValueError('as told')


class LeavingFilter(filters.Filter):
    def keep(self, hosts, request):
        raise SystemExit('as told')


class FailingRowFilter(filters.BaseHostFilter):
    def host_passes(self, host_state, spec_obj):
        raise ValueError('as told')


class TypoFilter(filters.Filter):
    def keep(self, hosts, request):
        return hosts['free_ram'] > 0
"""

_WORKING = """
from oslo_config import cfg

from cellsched.cli import base
from cellsched.filters import base as filters
from cellsched.hosts import columns
from cellsched.objects import resource_class
from cellsched.weighers import base as weighers

COLUMNS = (columns.Column('gpus', columns.WHOLE, 3, 'graphics processors'),)


class GpuFilter(filters.Filter):
    '''Reject a host that has too few graphics processors.'''

    reason = 'has too few graphics processors'
    group = 'third_party'

    @classmethod
    def opts(cls):
        return [cfg.IntOpt('least_gpus', default=1, help='How many.')]

    def keep(self, hosts, request):
        return hosts['gpus'] >= self.options.least_gpus


class GpuWeigher(weighers.Weigher):
    '''Score a host by its graphics processors.'''

    multiplier_name = 'gpu_weight_multiplier'

    def score(self, hosts, request):
        return hosts['gpus']


class Seats(resource_class.ResourceClass):
    '''Licences, which are sold by the five.'''

    word = 'licences'
    unit = 'seats'

    def amount_taken(self, amount):
        return -(-amount // 5) * 5


class Hello(base.Command):
    '''Say hello.'''

    def take_action(self, parsed_args):
        self.app.say('hello')
"""


def write_broken(directory: pathlib.Path) -> None:
    """Write a package whose every entry point is broken."""
    _write(directory, 'broken_plugins', _MODULES, _BROKEN)


def write_working(directory: pathlib.Path) -> None:
    """Write a package whose plug-ins work, and which none enables."""
    _write(directory, 'working_plugins', {'plugins': _WORKING}, {
        'cellsched.scheduler.filters': {'GpuFilter': 'plugins:GpuFilter'},
        'cellsched.scheduler.weighers': {'GpuWeigher': 'plugins:GpuWeigher'},
        'cellsched.hosts.columns': {'gpus': 'plugins:COLUMNS'},
        'cellsched.resource_classes': {'CUSTOM_SEATS': 'plugins:Seats'},
        'cellsched.cli': {'hello': 'plugins:Hello'}})


def write_failing(directory: pathlib.Path) -> None:
    """Write a package whose filters fail in each decision."""
    _write(directory, 'failing_plugins', {'plugins': _FAILING}, {
        'cellsched.scheduler.filters': {
            name: f'plugins:{name}' for name in (
                'FailingFilter', 'LeavingFilter', 'FailingRowFilter',
                'TypoFilter')}})


def broken() -> list[tuple[str, str]]:
    """Return namespaces and names of what is broken."""
    return [(namespace, name) for namespace, points in _BROKEN.items()
            for name in points]


def _write(
    directory: pathlib.Path, name: str, modules: dict[str, str],
    points: dict[str, dict[str, str]],
) -> None:
    package, info = directory / name, directory / f'{name}-1.0.dist-info'
    for path in package, info:
        path.mkdir(parents=True)
    (package / '__init__.py').touch()
    for module, text in modules.items():
        (package / f'{module}.py').write_text(text, encoding='utf-8')
    (info / 'METADATA').write_text(
        f'Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n')
    (info / 'entry_points.txt').write_text(''.join(
        f'[{namespace}]\n' + ''.join(
            f'{point} = {name}.{target}\n'
            for point, target in targets.items())
        for namespace, targets in points.items()))


if __name__ == '__main__':
    write_broken(pathlib.Path(sys.argv[1]))
    write_working(pathlib.Path(sys.argv[1]))
