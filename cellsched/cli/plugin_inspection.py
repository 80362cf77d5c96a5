# SPDX-License-Identifier: Apache-2.0
"""Descriptions of installed plug-ins, some of which may be broken.

A command imports this module when it runs: it imports the contract of each
kind of plug-in.
"""

from collections.abc import Callable
import dataclasses
from importlib import metadata
import inspect
import re
import sys
from typing import Any

from oslo_config import cfg

from cellsched.claims.base import ClaimStore
from cellsched.conf import enabled
from cellsched import exception
from cellsched.hosts import plugin_columns
from cellsched.network.base import NetworkAPI
from cellsched.objects import resources
from cellsched import plugins
from cellsched.quota.base import QuotaDriver
from cellsched.scheduler.decision import registry
from cellsched.scheduler.drivers.base import SchedulerDriver
from cellsched.virt.base import ComputeDriver

_ROLE = re.compile(r':[\w:]+:`([^`]*)`')

_CHECKS: dict[str, Callable[[str, Any], object]] = {
    'columns': plugin_columns.check_columns,
    'filter': registry.FILTER.check,
    'resource_class': resources.check_class,
    'weigher': registry.WEIGHER.check}

_BASES: dict[str, type] = {
    'claims': ClaimStore, 'driver': SchedulerDriver, 'network': NetworkAPI,
    'quota': QuotaDriver, 'virt': ComputeDriver}


@dataclasses.dataclass
class Description:
    """The description of a plug-in; if it is broken, only its problem."""

    text: list[str] = dataclasses.field(default_factory=lambda: [''])
    hints: list[str] = dataclasses.field(default_factory=list)
    reads: list[str] = dataclasses.field(default_factory=list)
    capabilities: list[str] = dataclasses.field(default_factory=list)
    options: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    problem: str = ''


def describe(kind: str, point: metadata.EntryPoint) -> Description:
    """Return the description of a plug-in."""
    namespace, name = plugins.KINDS[kind], point.name
    field = plugins.field_of(namespace, name)
    try:
        plugin = plugins.load(namespace, name)
        if kind in _CHECKS:
            _CHECKS[kind](field, plugin)
        else:
            plugins.check_class(field, plugin, _BASES[kind])
        return plugins.attempt(
            field, 'a plug-in with a description',
            lambda: _description(plugin, point, field),
            passed_on=(exception.ConfigurationInvalid,))
    except exception.ConfigurationInvalid as exc:
        return Description(problem=' '.join(exc.format_message().split()))


def module_of(point: metadata.EntryPoint) -> str:
    """Return the module of an entry point, empty if it has none."""
    return point.value.partition(':')[0].strip()


def _description(
    plugin: Any, point: metadata.EntryPoint, field: str
) -> Description:
    # Data has no docstring; its module has.
    documented = plugin if inspect.isclass(plugin) else (
        sys.modules[module_of(point)])
    text = _plain(inspect.getdoc(documented) or '').splitlines() or ['']
    return Description(
        text, sorted(getattr(plugin, 'hints', None) or ()),
        sorted(getattr(plugin, 'reads', None) or ()),
        sorted(each.value for each in getattr(plugin, 'capabilities', ())),
        [_option(plugin, option)
         for option in enabled.options_of(plugin, field)])


def _option(plugin: Any, option: cfg.Opt) -> dict[str, Any]:
    return {'group': plugin.group, 'name': option.name,
            'default': '' if option.default is None else option.default,
            'help': _plain(option.help or '').strip()}


def _plain(text: str) -> str:
    """Return reStructuredText without its inline markup."""
    return _ROLE.sub(r'\1', text).replace('``', '')
