# SPDX-License-Identifier: Apache-2.0
"""Options that are refused: without effect here, or in contradiction.

Files of other services set options of libraries that have no effect here. A
value without an effect would be a promise that is not kept.
"""

from collections.abc import Iterable
from collections.abc import Iterator
from typing import Any
from typing import NamedTuple

from oslo_config import cfg
from oslo_db import options

from cellsched.conf import database
from cellsched import exception

_READS = 'all reads use [{group}] connection'
_RETRIES = ('lost connections are replaced, and interrupted work is repeated, '
            'without an option')

#: Reasons, by the name of an option of oslo.db.
_DATABASE = {
    'slave_connection': _READS, 'synchronous_reader': _READS,
    'asyncio_connection': _READS, 'asyncio_slave_connection': _READS,
    'use_db_reconnect': _RETRIES, 'db_retry_interval': _RETRIES,
    'db_inc_retry_interval': _RETRIES, 'db_max_retry_interval': _RETRIES,
    'db_max_retries': _RETRIES,
    'backend': 'SQLAlchemy is the only one',
    'mysql_enable_ndb': 'the tables use InnoDB',
}

#: Reasons, by the name of an option in [DEFAULT].
_DEFAULT = {
    'fatal_deprecations': 'oslo.log reads it for calls of its own functions '
                          'only',
    'log_options': 'a report on the process, at SIGUSR2, has all options',
    'publish_errors': 'oslo.messaging would send errors to the broker of '
                      'another configuration',
}

#: Options that set nothing, by group and name, with the reason.
REASONS: dict[tuple[str, str], str] = {
    **{('DEFAULT', name): reason for name, reason in _DEFAULT.items()},
    **{(group, name): _DATABASE.get(
        name, 'the engines of this project do not use it').format(group=group)
       for group in (database.GROUP.name, database.API_GROUP.name)
       for name in {*_DATABASE, *(
           option.dest for option in options.database_opts)}
       - {option.dest for option in database.OPTS}}}


#: Group and name of an option.
_Option = tuple[str, str]


class _Order(NamedTuple):
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


def without_effect(
    named: Iterable[tuple[str, str, str]]
) -> Iterator[exception.ConfigurationInvalid]:
    """Yield one problem for all of these options that are set.

    :param named: the file or the variable, the group and the name of each
        option that is set
    """
    found = [(place, group, name) for place, group, name in named
             if (group, name) in REASONS]
    if found:
        reasons = dict.fromkeys(
            REASONS[group, name] for _, group, name in found)
        yield exception.ConfigurationInvalid(
            field='; '.join(dict.fromkeys(
                f'{place}: [{group}] {name}' for place, group, name in found)),
            problem=f'it has no effect, for {"; ".join(reasons)}'
            if len(found) == 1 else
            f'they have no effect, for {"; ".join(reasons)}',
            expected='a configuration without '
                     + ('it' if len(found) == 1 else 'them'))


def adapt_defaults(conf: cfg.ConfigOpts) -> None:
    """Lower the default of an option that a related option limits."""
    down_s = conf.service_down_time
    if conf.scheduler.stale_cell_timeout >= down_s:
        conf.set_default('stale_cell_timeout', down_s / 2, 'scheduler')


def contradictions(
    conf: cfg.ConfigOpts
) -> Iterator[exception.ConfigurationInvalid]:
    """Yield the contradictions; all values are valid by themselves."""
    # oslo.messaging accepts any value, and each call would have timed out.
    timeout = _value(conf, 'DEFAULT', 'rpc_response_timeout')
    if timeout is not None and timeout < 1:
        yield exception.ConfigurationInvalid(
            field='[DEFAULT] rpc_response_timeout',
            problem=f'{timeout} is out of range', expected='at least 1')
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
