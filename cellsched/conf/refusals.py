# SPDX-License-Identifier: Apache-2.0
"""Options of libraries that have no effect here, and are refused by name.

Files of other services set them. A value without an effect would be a promise
that is not kept.
"""

from collections.abc import Iterable
from collections.abc import Iterator

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


def problems(
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
