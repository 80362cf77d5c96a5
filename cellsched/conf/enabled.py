# SPDX-License-Identifier: Apache-2.0
"""The plug-ins that a configuration enables, and their options.

Only the options of enabled plug-ins are registered. A plug-in that is
installed and not enabled is not imported, and cannot break a service.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterator
import functools
from typing import Any

from oslo_config import cfg
from oslo_log import log

from cellsched.conf import filter_scheduler
from cellsched import exception
from cellsched import plugins

LOG = log.getLogger(__name__)

#: Options that name one plug-in: by namespace, the name of the kind for
#: operators, and the group and the name of the option.
_SINGLE = {
    plugins.CLAIMS: ('Claim store', 'claims', 'store'),
    plugins.DRIVERS: ('Scheduler driver', 'scheduler', 'driver'),
    plugins.NETWORKS: ('Network driver', 'DEFAULT', 'network_driver'),
    plugins.QUOTA: ('Quota driver', 'quota', 'driver'),
    plugins.VIRT: ('Virtualization driver', 'DEFAULT', 'compute_driver'),
}

#: The options that name filters and weighers.
FILTERS_OPTION = '[filter_scheduler] enabled_filters'
WEIGHERS_OPTION = '[filter_scheduler] weight_classes'

#: Group and name of each option that names plug-ins.
OPTIONS = (
    *((group, name) for _, group, name in _SINGLE.values()),
    ('filter_scheduler', 'available_filters'),
    ('filter_scheduler', 'enabled_filters'),
    ('filter_scheduler', 'weight_classes'))

#: Default groups of the options of plug-ins.
GROUPS = {plugins.CLAIMS: 'claims', plugins.DRIVERS: 'scheduler',
          plugins.FILTERS: 'filter_scheduler', plugins.QUOTA: 'quota',
          plugins.WEIGHERS: 'filter_scheduler'}

#: Problems of plug-ins.
Problems = list[exception.ConfigurationInvalid]


def make(
    conf: cfg.ConfigOpts, namespace: str, base: type, *arguments: Any
) -> Any:
    """Create the plug-in that an option names.

    Its failures become errors; see :class:`cellsched.plugins.PluginProxy`.

    :raises cellsched.exception.ConfigurationInvalid: names the option, the
        plug-in and its problem
    """
    plugin = load(conf, namespace, base)
    return contained(conf, namespace, functools.partial(plugin, *arguments))


def load(conf: cfg.ConfigOpts, namespace: str, base: type) -> Any:
    """Return the class that an option names, and register its options.

    :raises cellsched.exception.ConfigurationInvalid: names the option, the
        plug-in and its problem
    """
    name, option = _named(conf, namespace)
    plugin = plugins.load_class(namespace, name, base, option)
    register_plugin(conf, plugin, plugins.field_of(namespace, name, option))
    return plugin


def contained(
    conf: cfg.ConfigOpts, namespace: str, create: Callable[[], Any]
) -> Any:
    """Return the plug-in of an option, as a function creates it.

    :raises cellsched.exception.ConfigurationInvalid: the creation failed
    """
    name, option = _named(conf, namespace)
    made = plugins.attempt(
        plugins.field_of(namespace, name, option),
        'a plug-in that can be made', create,
        passed_on=(exception.CellschedException,))
    if namespace == plugins.DRIVERS:
        # The scheduler service names the driver in its errors.
        return made
    return plugins.PluginProxy(made, _SINGLE[namespace][0], name)


def _named(conf: cfg.ConfigOpts, namespace: str) -> tuple[str, str]:
    """Return the name of a plug-in, and the option that has it."""
    _, group, option = _SINGLE[namespace]
    section = conf if group == 'DEFAULT' else conf[group]
    name = section[option]
    if namespace == plugins.QUOTA:
        # Nova names a driver by module and class.
        name = name.rpartition('.')[2]
    return name, f'[{group}] {option}'


def register_plugin(
    conf: cfg.ConfigOpts, plugin: Any, field: str
) -> list[cfg.Opt]:
    """Register and return the options of a plug-in; may be called twice.

    :param field: the name of the plug-in in errors
    :raises cellsched.exception.ConfigurationInvalid: that failed
    """
    options = options_of(plugin, field)
    if options and not _are_registered(conf, plugin, options):
        plugins.attempt(
            field, 'options that can be registered',
            lambda: conf.register_opts(options, group=plugins.group(plugin)))
    return options


def options_of(plugin: Any, field: str) -> list[cfg.Opt]:
    """Return the options of a plug-in; one written for Nova has none.

    :param field: the name of the plug-in in errors
    :raises cellsched.exception.ConfigurationInvalid: the plug-in does not
        return options
    """
    if not hasattr(plugin, 'opts'):
        return []
    options = plugins.attempt(
        field, 'a plug-in that returns its options', lambda: [*plugin.opts()])
    if not all(isinstance(option, cfg.Opt) for option in options) or (
            not isinstance(plugin.group, str)):
        raise exception.ConfigurationInvalid(
            field=field, problem='opts() or group is not valid',
            expected='opts() that returns oslo.config options, and the name '
                     'of their group')
    return options


def _are_registered(
    conf: cfg.ConfigOpts, plugin: Any, options: list[cfg.Opt]
) -> bool:
    # A registration clears the cache of oslo.config, so it is avoided.
    group = plugins.group(plugin)
    if group is not None and group not in conf:
        return False
    section = plugins.options(conf, plugin)
    return all(option.dest in section for option in options)


def register(
    conf: cfg.ConfigOpts, namespaces: Collection[str]
) -> list[tuple[str, list[cfg.Opt]]]:
    """Register the options of the enabled plug-ins.

    A broken plug-in is skipped; it stops the service that creates it.

    :param namespaces: kinds of plug-ins; other kinds are not imported
    :returns: the options with their groups
    """
    registered: list[tuple[str, list[cfg.Opt]]] = []
    for field, load_one in _enabled(conf, namespaces):
        try:
            plugin = load_one()
            registered.append(
                (_group(plugin), register_plugin(conf, plugin, field)))
        except exception.ConfigurationInvalid as exc:
            LOG.debug('Not registered: %s', exc)
    return registered


def list_installed(
    namespaces: Collection[str]
) -> tuple[list[tuple[str, list[cfg.Opt]]], dict[str, Problems]]:
    """Return the options of all installed plug-ins, by group.

    :param namespaces: kinds of plug-ins
    :returns: the options, and the problems of broken plug-ins by the group
        that their options belong to; for a plug-in that cannot be imported
        that is the default group of its kind
    """
    found: list[tuple[str, list[cfg.Opt]]] = []
    problems: dict[str, Problems] = {}
    for namespace in namespaces:
        usable, broken = plugins.load_installed(namespace)
        for problem in broken.values():
            problems.setdefault(
                GROUPS.get(namespace, 'DEFAULT'), []).append(problem)
        for name, plugin in usable.items():
            try:
                options = options_of(plugin, plugins.field_of(namespace, name))
                found.append((_group(plugin), options))
            except exception.ConfigurationInvalid as exc:
                problems.setdefault(_group(plugin), []).append(exc)
    return found, problems


def _group(plugin: Any) -> str:
    return getattr(plugin, 'group', 'DEFAULT')


def _enabled(
    conf: cfg.ConfigOpts, namespaces: Collection[str]
) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the name in errors, and the loader, of each enabled plug-in."""
    for namespace in namespaces:
        if namespace == plugins.FILTERS:
            yield from _filters(conf)
        elif namespace == plugins.WEIGHERS:
            yield from _weighers(conf)
        else:
            name, option = _named(conf, namespace)
            yield _entry(namespace, name, option)


def _filters(conf: cfg.ConfigOpts) -> Iterator[tuple[str, Callable[[], Any]]]:
    paths = filter_scheduler.filter_paths(conf)
    for name in dict.fromkeys(conf.filter_scheduler.enabled_filters):
        yield _entry(plugins.FILTERS, name, FILTERS_OPTION, paths.get(name))


def _weighers(conf: cfg.ConfigOpts) -> Iterator[tuple[str, Callable[[], Any]]]:
    for name in dict.fromkeys(conf.filter_scheduler.weight_classes):
        for each in (dict.fromkeys(plugins.names(plugins.WEIGHERS))
                     if name in filter_scheduler.ALL_WEIGHERS else [name]):
            yield _entry(plugins.WEIGHERS, each, WEIGHERS_OPTION,
                         each if '.' in each else None)


def _entry(
    namespace: str, name: str, option: str, path: str | None = None
) -> tuple[str, Callable[[], Any]]:
    return (plugins.field_of(namespace, path or name, option),
            functools.partial(plugins.load, namespace, name, option, path))
