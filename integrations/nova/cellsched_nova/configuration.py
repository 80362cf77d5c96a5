# SPDX-License-Identifier: Apache-2.0
"""The product's options, with the values of Nova's configuration.

Nova has options with the same names but other definitions, so one
configuration cannot register both. The values are copied from Nova's
configuration before each request, because Nova reads its options then too.
"""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
from typing import Any

from keystoneauth1 import exceptions as ks_exceptions
import nova.conf
from nova.conf import scheduler as nova_scheduler
from nova import config
from nova.scheduler import filters as nova_filters
from nova.scheduler import weights as nova_weights
from openstack import exceptions as sdk_exceptions
from oslo_config import cfg
from oslo_db import exception as db_exc
from oslo_log import log
import oslo_messaging
import sqlalchemy as sa

from cellsched.conf import enabled
from cellsched.conf import loader
from cellsched.conf import opts
from cellsched import exception
from cellsched import plugins
from cellsched import urls
from cellsched_nova import options
from cellsched_nova import placement
from cellsched_nova import records

LOG = log.getLogger(__name__)

#: The program of Nova that reads the same files, and its project.
_PROJECT = 'nova'
_PROGRAM = 'nova-scheduler'

#: Options that list plug-ins, which Nova's own loaders read.
_PLUGIN_LISTS = frozenset(enabled.OPTIONS)

#: Copied groups; of ``DEFAULT`` only the options in ``_DEFAULT``.
_GROUPS = ('DEFAULT', 'filter_scheduler', 'metrics', 'pci', 'scheduler')
_DEFAULT = frozenset({'default_availability_zone', 'service_down_time'})

#: By group: options of which one must be set, and their meaning.
_NEEDED = {
    'api_database': (('connection',), 'the URL of Nova\'s API database'),
    'database': (('connection',), 'the URL of Nova\'s database of cell0'),
    'placement': (('auth_type', 'auth_section'),
                  'how the scheduler authenticates to Placement'),
}

#: Settings of Nova that this scheduler does not support, with the reason.
_REFUSED = {
    ('DEFAULT', 'servicegroup_driver', 'mc'):
        'only the driver db is supported: the scheduler reads the last report '
        'of a service from the cells',
}


class ProductOptions:
    """The options of filters and weighers, with values of Nova's options.

    :param nova: Nova's configuration, already read
    :ivar conf: the product's configuration
    """

    def __init__(self, nova: cfg.ConfigOpts) -> None:
        self._nova = nova
        self.conf = cfg.ConfigOpts()
        opts.register_opts(self.conf)
        for namespace in (plugins.FILTERS, plugins.WEIGHERS):
            for name, plugin in plugins.load_shipped(namespace).items():
                enabled.register_plugin(self.conf, plugin, name)
        self.conf([], project='cellsched', default_config_files=list(
            nova.config_file or ()), default_config_dirs=list(
                nova.config_dir or ()))
        self._shared = [
            (group, name) for group in _GROUPS
            for name in _names(self.conf, group)
            if (group, name) not in _PLUGIN_LISTS
            and name in _section(nova, group)
            and (group != 'DEFAULT' or name in _DEFAULT)]
        self._values: dict[tuple[str, str], object] = {}
        self.follow()

    def follow(self) -> bool:
        """Copy the current values; return whether any value changed.

        :raises cellsched.exception.ConfigurationInvalid: a value is invalid;
            the previous value remains, and later calls report no error
        """
        changed, problem = False, None
        for group, name in self._shared:
            value = _section(self._nova, group)[name]
            key = group, name
            if key in self._values and self._values[key] == value:
                continue
            self._values[key] = value
            try:
                self.conf.set_override(
                    name, value, None if group == 'DEFAULT' else group)
            except ValueError as exc:
                problem = problem or exception.ConfigurationInvalid(
                    field=f'[{group}] {name}', problem=str(exc))
            changed = True
        if problem is not None:
            raise problem
        return changed


def make_mutable(nova: cfg.ConfigOpts) -> None:
    """Let SIGHUP change those options of Nova that change in the product.

    Nova declares none of them as mutable, though its filters and weighers read
    most of them for each request. An invalid new value is logged, and the
    previous value stays.

    :param nova: Nova's configuration, already read, without problems
    """
    mutable = {(group, option.dest) for group, options_ in opts.list_opts()
               for option in options_ if option.mutable}
    values = {}
    for group, options_ in nova_scheduler.list_opts().items():
        for option in options_:
            key = group.name, option.dest
            if key in mutable:
                option.mutable = True
                values[key] = nova[group.name][option.dest]

    def keep_valid(
        conf: cfg.ConfigOpts, changed: Mapping[tuple[str, str], Any]
    ) -> None:
        for group, name in values.keys() & changed.keys():
            conf.clear_override(name, group)
            try:
                values[group, name] = conf[group][name]
            except (cfg.Error, ValueError) as exc:
                LOG.error('[%s] %s: %s; the previous value %s stays', group,
                          name, loader.problem_of(exc), values[group, name])
                conf.set_override(name, values[group, name], group)

    nova.register_mutate_hook(keep_valid)


def check_cells(nova: cfg.ConfigOpts, cells: Iterable[Any]) -> None:
    """Check the database URLs of cells.

    :param cells: Nova's cell mappings
    :raises cellsched.exception.ConfigurationInvalid: a URL is a template for
        an option that is not set
    """
    for cell in cells:
        if '{' in cell.database_connection and not nova.database.connection:
            raise exception.ConfigurationInvalid(
                field='[database] connection',
                problem='it is not set, and the database URL of cell '
                        f'{cell.identity} is a template',
                expected='the URL of a database')


def read(argv: Sequence[str]) -> None:
    """Read Nova's configuration.

    :param argv: the arguments of nova-scheduler
    :raises cellsched.exception.ConfigurationInvalid: an option is invalid, or
        a file cannot be read
    """
    # The errors of oslo.config quote lines, which may be secret.
    loader.check_files(
        argv[1:], cfg.find_config_files(_PROJECT, _PROGRAM),
        cfg.find_config_dirs(_PROJECT, _PROGRAM))
    try:
        # Without --config-file, this reads the default files too.
        config.parse_args(list(argv), prog=_PROGRAM)
    except (cfg.Error, OSError) as exc:
        raise exception.ConfigurationInvalid(
            field=_unreadable(CONF), problem=loader.problem_of(exc)) from None
    except (oslo_messaging.MessagingException, ValueError) as exc:
        raise exception.ConfigurationInvalid(
            field='[DEFAULT] transport_url', problem=str(exc)) from None


def _unreadable(nova: cfg.ConfigOpts) -> str:
    """Return the URL that cannot be read, of those that Nova reads first."""
    for group, name in (('api_database', 'connection'),
                        ('database', 'connection'),
                        ('DEFAULT', 'transport_url')):
        try:
            _section(nova, group)[name]
        except cfg.Error:
            return f'[{group}] {name}'
    return 'options'


def missing(nova: cfg.ConfigOpts, *needed: str) -> list[str]:
    """Return the groups that are not set, a line for each."""
    return [f'[{group}] {names[0]}: {meaning} is missing'
            for group, (names, meaning) in _NEEDED.items()
            if group in needed
            and not any(nova[group][name] for name in names)]


def problems(nova: cfg.ConfigOpts, *needed: str) -> list[str]:
    """Return the problems of a configuration, a line for each.

    :param needed: groups that must be set
    """
    found = wrong_values(nova)
    if found:
        # The later checks read these values.
        return found
    found += missing(nova, *needed)
    for (group, name, value), why in _REFUSED.items():
        section = _section(nova, group)
        if name in section and section[name] == value:
            found.append(f'[{group}] {name} = {value}: {why}')
    own = nova.filter_scheduler
    available, wrong = _classes(
        'available_filters', own.available_filters,
        nova_filters.HostFilterHandler())
    found += wrong
    found += [f'[filter_scheduler] enabled_filters: {name} is not in '
              'available_filters' for name in own.enabled_filters
              if name not in available]
    try:
        records.open_database(nova)
    except exception.ConfigurationInvalid as exc:
        found.append(f'[cellsched] records_connection: {exc}')
    found += _classes('weight_classes', own.weight_classes,
                      nova_weights.HostWeightHandler())[1]
    try:
        ProductOptions(nova)
    except (cfg.Error, exception.ConfigurationInvalid) as exc:
        found.append(str(exc))
    return found


def wrong_values(nova: cfg.ConfigOpts) -> list[str]:
    """Return the invalid values of options, a line for each."""
    found = []
    for group in (*_GROUPS, options.GROUP.name):
        section = _section(nova, group)
        for name in sorted(_DEFAULT | {'servicegroup_driver'}
                           if group == 'DEFAULT' else section):
            try:
                section[name]
            except (cfg.Error, ValueError) as exc:
                found.append(f'[{group}] {name}: {loader.problem_of(exc)}')
    return found


def _classes(
    option: str, paths: Iterable[str], handler: Any
) -> tuple[set[str], list[str]]:
    """Return the names of the classes that Nova finds, and the problems."""
    names, wrong = set(), []
    for path in paths:
        try:
            names |= {each.__name__
                      for each in handler.get_matching_classes([path])}
        except Exception as exc:
            # An import of a plug-in may raise any error.
            wrong.append(f'[filter_scheduler] {option}: {path}: '
                         f'{type(exc).__name__}: {exc}')
    return names, wrong


def _names(conf: cfg.ConfigOpts, group: str) -> list[str]:
    section = _section(conf, group)
    return [name for name in section if not isinstance(
        section[name], cfg.ConfigOpts.GroupAttr)]


def _section(conf: cfg.ConfigOpts, group: str) -> Any:
    return conf if group == 'DEFAULT' else conf[group]


CONF = nova.conf.CONF


@contextlib.contextmanager
def translate_errors() -> Iterator[None]:
    """Translate errors of Nova's libraries to errors with a one-line text.

    :raises cellsched.exception.ConfigurationInvalid: an option is missing or
        invalid
    :raises cellsched.exception.DatabaseUnreachable: a database of Nova does
        not answer, or has another schema
    :raises cellsched_nova.placement.PlacementUnavailable: Placement or
        Keystone does not answer
    """
    try:
        yield
    except cfg.Error as exc:
        raise exception.ConfigurationInvalid(
            field='options', problem=loader.problem_of(exc)) from None
    except db_exc.CantStartEngineError:
        raise exception.ConfigurationInvalid(
            field='[api_database] connection',
            expected='the URL of Nova\'s API database') from None
    except (db_exc.DBError, sa.exc.SQLAlchemyError) as exc:
        inner = getattr(exc, 'inner_exception', None) or exc
        inner = getattr(inner, 'orig', None) or inner
        raise exception.DatabaseUnreachable(
            schema='Nova', url=urls.mask(CONF.api_database.connection or ''),
            reason=(str(inner).splitlines() or [''])[0]) from exc
    except (ks_exceptions.ClientException,
            sdk_exceptions.SDKException) as exc:
        raise placement.PlacementUnavailable(reason=str(exc)) from exc
