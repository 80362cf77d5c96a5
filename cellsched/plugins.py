# SPDX-License-Identifier: Apache-2.0
"""Plug-ins: found by entry point, loaded strictly and in order.

A configured plug-in that cannot be used stops the service: it must not run
without a configured filter. An installed plug-in that is not configured is not
imported, except to list all installed plug-ins; a broken one does not affect
the rest of the list.
"""

from collections.abc import Callable
import functools
from importlib import metadata
import inspect
import pkgutil
from typing import Any
from typing import TypeVar

import stevedore

from cellsched import exception
from cellsched import urls

CLAIMS = 'cellsched.claims'
COLUMNS = 'cellsched.hosts.columns'
DRIVERS = 'cellsched.scheduler.drivers'
FILTERS = 'cellsched.scheduler.filters'
NETWORKS = 'cellsched.network'
QUOTA = 'cellsched.quota'
RESOURCE_CLASSES = 'cellsched.resource_classes'
VIRT = 'cellsched.virt'
WEIGHERS = 'cellsched.scheduler.weighers'

#: Kinds of plug-ins that may have options. ``opts()`` returns the options, and
#: ``group`` names their group.
WITH_OPTIONS = (FILTERS, WEIGHERS, CLAIMS, DRIVERS, NETWORKS, QUOTA, VIRT)

#: Every kind of plug-in: its name in commands, and its namespace.
KINDS = {
    'claims': CLAIMS,
    'columns': COLUMNS,
    'driver': DRIVERS,
    'filter': FILTERS,
    'network': NETWORKS,
    'quota': QUOTA,
    'resource_class': RESOURCE_CLASSES,
    'virt': VIRT,
    'weigher': WEIGHERS,
}

#: The distribution whose plug-ins are shipped.
_DISTRIBUTION = 'cellsched'

#: Characters shown of the text of an error from a plug-in.
_SHOWN_MAX = 400

_Returned = TypeVar('_Returned')


def entry_points(namespace: str) -> list[metadata.EntryPoint]:
    """Return the entry points of plug-ins, by name; imports none."""
    manager: stevedore.ExtensionManager[Any] = (
        stevedore.NamedExtensionManager(namespace, []))
    return sorted(manager.list_entry_points(), key=lambda point: point.name)


def names(namespace: str) -> list[str]:
    """Return the sorted names of the installed plug-ins."""
    return [point.name for point in entry_points(namespace)]


def shipped(namespace: str) -> list[metadata.EntryPoint]:
    """Return the entry points of the plug-ins of this project, by name."""
    points = metadata.distribution(_DISTRIBUTION).entry_points
    return sorted(points.select(group=namespace), key=lambda point: point.name)


def load(
    namespace: str, name: str, option: str | None = None,
    path: str | None = None,
) -> Any:
    """Return the object that an entry point names.

    :param option: the option that names the plug-in, such as ``[scheduler]
        driver``, for errors
    :param path: the import path of an object that has no entry point
    :raises cellsched.exception.PluginNotFound: no plug-in has the name
    :raises cellsched.exception.ConfigurationInvalid: the plug-in cannot be
        imported, or two plug-ins have the name
    """
    if path is not None:
        return load_path(path, option)
    found = [point for point in entry_points(namespace) if point.name == name]
    if not found:
        # stevedore keeps entry points in a file, by the times of their own
        # files to 128 seconds. To read the metadata of all packages takes
        # longer, but has a plug-in that was just added to one.
        found = [*metadata.entry_points(group=namespace, name=name)]
    if not found:
        raise exception.PluginNotFound(
            name=name, namespace=namespace,
            named=f', which {option} names' if option else '',
            available=', '.join(dict.fromkeys(names(namespace))) or 'none')
    field = field_of(namespace, name, option)
    if len(found) > 1:
        values = ', '.join(point.value for point in found)
        raise exception.ConfigurationInvalid(
            field=field, problem=f'several plug-ins have the name: {values}',
            expected='one')
    return attempt(field, 'a plug-in that can be imported', found[0].load)


def load_class(
    namespace: str, name: str, base: type, option: str | None = None
) -> Any:
    """Return the class that an entry point names.

    :raises cellsched.exception.PluginNotFound: no plug-in has the name
    :raises cellsched.exception.ConfigurationInvalid: the class cannot be
        imported, is no subclass of ``base``, or lacks methods of ``base``
    """
    plugin = load(namespace, name, option)
    check_class(field_of(namespace, name, option), plugin, base)
    return plugin


def load_installed(
    namespace: str, load_one: Callable[[str], Any] | None = None
) -> tuple[dict[str, Any], dict[str, exception.ConfigurationInvalid]]:
    """Return the usable plug-ins, and the errors of the broken ones.

    :param load_one: loads a plug-in by its name; by default :func:`load`
    """
    usable, broken = {}, {}
    for name in dict.fromkeys(names(namespace)):
        try:
            usable[name] = (load_one(name) if load_one is not None
                            else load(namespace, name))
        except exception.ConfigurationInvalid as exc:
            broken[name] = exc
    return usable, broken


def load_shipped(namespace: str) -> dict[str, Any]:
    """Return the plug-ins of this project, by name."""
    return {point.name: point.load() for point in shipped(namespace)}


def load_path(path: str, option: str | None = None) -> Any:
    """Return the class that an import path names.

    :raises cellsched.exception.ConfigurationInvalid: it cannot be imported
    """
    module, _, name = path.rpartition('.')
    return attempt(
        f'{option}: {path}' if option else path, 'the import path of a class',
        functools.partial(pkgutil.resolve_name, f'{module}:{name}'))


def check_class(field: str, plugin: Any, base: type) -> None:
    """Check that an object is a complete subclass of ``base``.

    :raises cellsched.exception.ConfigurationInvalid: it is no subclass, or it
        lacks methods of ``base``
    """
    if not (isinstance(plugin, type) and issubclass(plugin, base)):
        raise exception.ConfigurationInvalid(
            field=field, problem='it has the wrong type',
            expected=f'a subclass of {base.__module__}.{base.__name__}')
    check_complete(field, plugin)


def check_complete(field: str, plugin: Any) -> None:
    """Check that a class has all abstract methods of its base.

    :raises cellsched.exception.ConfigurationInvalid: the class is abstract
    """
    if inspect.isabstract(plugin):
        missing = ', '.join(sorted(plugin.__abstractmethods__))
        raise exception.ConfigurationInvalid(
            field=field, problem=f'{plugin.__name__} does not implement '
                                 f'{missing}', expected='a complete class')


def attempt(
    field: str, expected: str, function: Callable[[], _Returned],
    passed_on: tuple[type[BaseException], ...] = (),
) -> _Returned:
    """Return the result of a function of a plug-in, and explain its error.

    :param passed_on: errors that are raised unchanged
    :raises cellsched.exception.ConfigurationInvalid: the function raised an
        error, ``SystemExit`` included
    """
    stops: tuple[type[BaseException], ...] = exception.STOPS
    try:
        return function()
    except (*stops, *passed_on):
        raise
    except BaseException as exc:
        raise exception.ConfigurationInvalid(
            field=field, problem=said_by(exc), expected=expected) from exc


def said_by(error: BaseException) -> str:
    """Return the class and the text of an error, in one line."""
    text = ' '.join(urls.mask_text(str(error)).split())[:_SHOWN_MAX]
    name = type(error).__name__
    return f'{name}: {text}' if text else name


def field_of(namespace: str, name: str, option: str | None = None) -> str:
    """Return the name of a plug-in in errors."""
    return f'{option}: {name}' if option else f'{namespace} {name}'


def group(plugin: Any) -> str | None:
    """Return the group of a plug-in's options, as oslo.config names it."""
    return None if plugin.group == 'DEFAULT' else plugin.group


def options(conf: Any, plugin: Any) -> Any:
    """Return the object with a plug-in's options as attributes."""
    return conf if plugin.group == 'DEFAULT' else conf[plugin.group]


class PluginProxy:
    """Proxy of a plug-in that turns fatal errors into failures.

    Attributes are those of the plug-in. An error of its methods that is no
    ``Exception``, such as ``SystemExit``, would end the calling thread; it is
    raised as :class:`cellsched.exception.PluginFailed`.

    :param kind: the kind of plug-in, for users
    """

    def __init__(self, plugin: Any, kind: str, name: str) -> None:
        vars(self).update(_plugin=plugin, _kind=kind, _name=name)

    def __getattr__(self, name: str) -> Any:
        if name.startswith('__'):
            raise AttributeError(name)
        value = getattr(self._plugin, name)
        if not inspect.isroutine(value):
            return value
        return functools.partial(self._call, value)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._plugin, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._plugin, name)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """The class of the plug-in, for ``isinstance``."""
        return type(self._plugin)

    def _call(
        self, method: Callable[..., Any], *arguments: Any, **named: Any
    ) -> Any:
        try:
            return method(*arguments, **named)
        except (*exception.STOPS, Exception):
            raise
        except BaseException as exc:
            raise exception.PluginFailed(
                kind=self._kind, plugin=self._name) from exc
