# SPDX-License-Identifier: Apache-2.0
"""Options whose values contradict each other."""

from collections.abc import Iterator
import dataclasses
from typing import Any

from oslo_config import cfg

from cellsched import exception

#: Group and name of an option.
_Option = tuple[str, str]


@dataclasses.dataclass(frozen=True)
class _Order:
    """Two options of which one must be lower.

    :param reason: the effect of other values
    :param times: how many times the lower value fits into the other one
    :param below: whether the values must not be equal
    """

    lower: _Option
    upper: _Option
    reason: str
    times: int = 1
    below: bool = False


_ORDERS = (
    # One late report must not make a running host a host that is down: an
    # evacuation would start its servers a second time.
    _Order(('DEFAULT', 'report_interval'), ('DEFAULT', 'service_down_time'),
           'services that run would count as down between their reports',
           times=2),
    _Order(('scheduler', 'stale_cell_timeout'),
           ('DEFAULT', 'service_down_time'),
           'hosts whose reports cannot be read would count as down before it',
           below=True),
    _Order(('DEFAULT', 'rpc_response_timeout'),
           ('DEFAULT', 'long_rpc_timeout'),
           'a long call would end before a short one'),
    *(_Order((group, 'idle_transaction_timeout'), (group, 'lock_timeout'),
             'a statement would not outlive a client that stopped with a lock')
      for group in ('database', 'api_database')),
)

#: An option that needs another one.
_NEEDS = (
    (('scheduler', 'placement_aggregate_required_for_tenants'),
     ('scheduler', 'limit_tenants_to_placement_aggregate')),
)


def adapt_defaults(conf: cfg.ConfigOpts) -> None:
    """Lower the default of an option that a related option limits."""
    down_s = conf.service_down_time
    if conf.scheduler.stale_cell_timeout >= down_s:
        conf.set_default('stale_cell_timeout', down_s / 2, 'scheduler')


def problems(
    conf: cfg.ConfigOpts
) -> Iterator[exception.ConfigurationInvalid]:
    """Yield the contradictions; all values are valid by themselves."""
    for order in _ORDERS:
        lower, upper = (_value(conf, *each)
                        for each in (order.lower, order.upper))
        # 0 turns a limit off.
        if not lower or not upper:
            continue
        least = order.times * lower
        if upper < least or order.below and upper == least:
            yield exception.ConfigurationInvalid(
                field=_name(*order.upper),
                problem=f'{upper:g} is too low for {_name(*order.lower)}, '
                        f'which is {lower:g}: {order.reason}',
                expected=f'{"more than" if order.below else "at least"} '
                         f'{least:g}')
    for option, needed in _NEEDS:
        if _value(conf, *option) and not _value(conf, *needed):
            yield exception.ConfigurationInvalid(
                field=_name(*option),
                problem=f'it has no effect without {_name(*needed)}',
                expected=f'{_name(*needed)} = true')


def _value(conf: cfg.ConfigOpts, group: str, name: str) -> Any:
    section = conf if group == 'DEFAULT' else conf[group]
    return section[name] if name in section else None


def _name(group: str, name: str) -> str:
    return f'[{group}] {name}'
