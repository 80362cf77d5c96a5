# SPDX-License-Identifier: Apache-2.0
"""The product's options, as a configuration of Nova's says them.

Nova's options have the same groups and names as the product's, and other
definitions, so the two cannot be registered in one configuration. Values are
taken over from Nova's, again and again: Nova reads its own at each request.
"""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
from typing import Any

from keystoneauth1 import exceptions as ks_exceptions
import nova.conf
from nova import config
from nova.scheduler import filters as nova_filters
from nova.scheduler import weights as nova_weights
from oslo_config import cfg
from oslo_db import exception as db_exc
import oslo_messaging
import sqlalchemy as sa

from cellsched.conf import enabled
from cellsched.conf import opts
from cellsched import exception
from cellsched import plugins
from cellsched import urls
from cellsched_nova import options
from cellsched_nova import placement
from cellsched_nova import records

#: What names plug-ins is read by Nova's own loaders.
_OTHERS = frozenset(enabled.OPTIONS)

#: Groups whose options are taken over; of the first those alone that decide.
_GROUPS = ('DEFAULT', 'filter_scheduler', 'metrics', 'scheduler')
_DEFAULT = frozenset({'default_availability_zone', 'service_down_time'})

#: By groups: options of which one has to be set, and what it says.
_NEEDED = {
    'api_database': (('connection',), 'the URL of Nova\'s API database'),
    'database': (('connection',), 'the URL of Nova\'s database of cell0'),
    'placement': (('auth_type', 'auth_section'),
                  'how Placement is to know the scheduler'),
}

#: Settings of Nova's that this scheduler does not honour, and why not.
_REFUSED = {
    ('DEFAULT', 'servicegroup_driver', 'mc'):
        'only the driver db is honoured: when services were last seen is '
        'read from the cells',
}


class ProductOptions:
    """The options of filters and weighers, which follow those of Nova's.

    :param nova: Nova's configuration, which has been read
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
            if (group, name) not in _OTHERS and name in _section(nova, group)
            and (group != 'DEFAULT' or name in _DEFAULT)]
        self._values: dict[tuple[str, str], object] = {}
        self.follow()

    def follow(self) -> bool:
        """Take over what Nova's options say now; return whether it changed.

        :raises cellsched.exception.ConfigurationInvalid: a value cannot be
            taken over; it is left as it was, and is told of once
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
                    field=f'[{group}] {name}', expected=str(exc))
            changed = True
        if problem is not None:
            raise problem
        return changed


def check_cells(nova: cfg.ConfigOpts, cells: Iterable[Any]) -> None:
    """Make sure that URLs of cells' databases say where these are.

    :param cells: Nova's mappings
    :raises cellsched.exception.ConfigurationInvalid: one is a template, of an
        option that is not set
    """
    for cell in cells:
        if '{' in cell.database_connection and not nova.database.connection:
            raise exception.ConfigurationInvalid(
                field='[database] connection',
                expected='the URL that the one of the database of the cell '
                f'{cell.identity} is a template for')


def read(argv: Sequence[str]) -> None:
    """Read Nova's configuration.

    :param argv: as nova-scheduler's
    :raises cellsched.exception.ConfigurationInvalid: it cannot be read
    """
    try:
        # Its files are read too, where none are named.
        config.parse_args(list(argv), prog='nova-scheduler')
    except cfg.Error as exc:
        raise exception.ConfigurationInvalid(
            field='options', expected=str(exc)) from None
    except (oslo_messaging.MessagingException, ValueError) as exc:
        raise exception.ConfigurationInvalid(
            field='[DEFAULT] transport_url', expected=str(exc)) from None


def problems(nova: cfg.ConfigOpts, *needed: str) -> list[str]:
    """Return what of a configuration cannot be honoured, a line for each.

    :param needed: groups of options that have to say where something is
    """
    found = _wrong_values(nova)
    if found:
        # What else there is depends on these.
        return found
    for group in needed:
        names, what = _NEEDED[group]
        if not any(nova[group][name] for name in names):
            found.append(f'[{group}] {names[0]}: {what} is missing')
    for (group, name, value), why in _REFUSED.items():
        section = _section(nova, group)
        if name in section and section[name] == value:
            found.append(f'[{group}] {name} = {value}: {why}')
    own = nova.filter_scheduler
    available, wrong = _classes(
        'available_filters', own.available_filters,
        nova_filters.HostFilterHandler())
    found += wrong
    found += [f'[filter_scheduler] enabled_filters: {name} is none of '
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


def _wrong_values(nova: cfg.ConfigOpts) -> list[str]:
    """Return what is wrong with values of options, a line for each."""
    found = []
    for group in (*_GROUPS, options.GROUP.name):
        section = _section(nova, group)
        for name in sorted(_DEFAULT | {'servicegroup_driver'}
                           if group == 'DEFAULT' else section):
            try:
                section[name]
            except (cfg.Error, ValueError) as exc:
                found.append(f'[{group}] {name}: {exc}')
    return found


def _classes(
    option: str, paths: Iterable[str], handler: Any
) -> tuple[set[str], list[str]]:
    """Return the names of classes that Nova finds, and what it cannot find."""
    names, wrong = set(), []
    for path in paths:
        try:
            names |= {each.__name__
                      for each in handler.get_matching_classes([path])}
        except Exception as exc:
            # Code of others may fail in any way when it is imported.
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
    """Translate what they raise, so that it can be told in one line.

    :raises cellsched.exception.ConfigurationInvalid: an option is missing, or
        has a wrong value
    :raises cellsched.exception.DatabaseUnreachable: a database of Nova's does
        not answer, or is something else
    :raises cellsched_nova.placement.PlacementUnavailable: likewise Placement
    """
    try:
        yield
    except cfg.Error as exc:
        raise exception.ConfigurationInvalid(
            field='options', expected=str(exc)) from None
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
    except ks_exceptions.ClientException as exc:
        raise placement.PlacementUnavailable(reason=str(exc)) from exc
