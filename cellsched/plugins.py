# SPDX-License-Identifier: Apache-2.0
"""Plug-ins: found by entry point, loaded strictly and in order.

A plug-in that is configured and cannot be loaded is an error that stops the
service: it must not run without a filter that it was told to run.
"""

from collections.abc import Iterable
from importlib import metadata
from typing import Any

from oslo_utils import importutils
import stevedore
from stevedore import exception as stevedore_exception

from cellsched import exception

CLAIMS = 'cellsched.claims'
COLUMNS = 'cellsched.hosts.columns'
DRIVERS = 'cellsched.scheduler.drivers'
FILTERS = 'cellsched.scheduler.filters'
NETWORKS = 'cellsched.network'
QUOTA = 'cellsched.quota'
VIRT = 'cellsched.virt'
WEIGHERS = 'cellsched.scheduler.weighers'

#: Every kind of plug-in: the word for people, and its namespace.
KINDS = {
    'claims': CLAIMS,
    'columns': COLUMNS,
    'driver': DRIVERS,
    'filter': FILTERS,
    'network': NETWORKS,
    'quota': QUOTA,
    'virt': VIRT,
    'weigher': WEIGHERS,
}


def entry_points(namespace: str) -> list[metadata.EntryPoint]:
    """Return where plug-ins are, by name; none of them is imported."""
    manager: stevedore.ExtensionManager[Any] = (
        stevedore.NamedExtensionManager(namespace, []))
    return sorted(manager.list_entry_points(), key=lambda point: point.name)


def names(namespace: str) -> list[str]:
    """Return the names of the plug-ins that are installed, sorted."""
    return [point.name for point in entry_points(namespace)]


def load(namespace: str, name: str) -> Any:
    """Return what the entry point names.

    :raises cellsched.exception.PluginNotFound: there is none of that name
    :raises cellsched.exception.ConfigurationInvalid: it cannot be imported
    """
    try:
        return stevedore.DriverManager(namespace, name).driver
    except stevedore_exception.NoMatches as exc:
        available = names(namespace)
        if name in available:
            raise exception.ConfigurationInvalid(
                field=f'{namespace} {name}',
                expected=f'a plug-in that can be imported: {exc}') from exc
        raise exception.PluginNotFound(
            name=name, namespace=namespace,
            available=', '.join(available) or 'none') from None
    except Exception as exc:
        raise exception.ConfigurationInvalid(
            field=f'{namespace} {name}',
            expected=f'a plug-in that can be imported: {exc}') from exc


def load_all(
    namespace: str, wanted: Iterable[str] | None = None,
    base: type | None = None,
) -> dict[str, Any]:
    """Return plug-ins by name, in the order wanted, or all of them by name.

    :raises cellsched.exception.PluginNotFound: one is not there
    :raises cellsched.exception.ConfigurationInvalid: one cannot be imported,
        or is not a subclass of ``base``
    """
    loaded = {}
    for name in names(namespace) if wanted is None else wanted:
        plugin = loaded[name] = load(namespace, name)
        if base is not None and not (
                isinstance(plugin, type) and issubclass(plugin, base)):
            raise exception.ConfigurationInvalid(
                field=f'{namespace} {name}',
                expected=f'a subclass of {base.__module__}.{base.__name__}')
    return loaded


def load_path(path: str) -> Any:
    """Return the class that an import path names.

    :raises cellsched.exception.ConfigurationInvalid: it cannot be imported
    """
    try:
        return importutils.import_class(path)
    except Exception as exc:
        raise exception.ConfigurationInvalid(
            field=path, expected='the import path of a class: '
                                 f'{str(exc) or type(exc).__name__}') from exc


def group(plugin: Any) -> str | None:
    """Return the group of a plug-in's options, as oslo.config names it."""
    return None if plugin.group == 'DEFAULT' else plugin.group


def options(conf: Any, plugin: Any) -> Any:
    """Return what holds a plug-in's options as attributes."""
    return conf if plugin.group == 'DEFAULT' else conf[plugin.group]
