# SPDX-License-Identifier: Apache-2.0
"""PostgreSQL: settings of psycopg2 and psycopg 3, and outdated plans."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy import event

from cellsched.db import guarded_statements
from cellsched import exception

_THRESHOLD = 'prepare_threshold'

#: Value of ``prepare_threshold`` in a URL for "never".
_NEVER = 'none'

_NOT_SUPPORTED = '0A000'

_OUTDATED = 'cached plan must not change result type'


class PlanOutdated(Exception):
    """A table changed after a statement on it was prepared."""


def connect_arguments(url: sa.URL) -> tuple[sa.URL, dict[str, Any]]:
    """Split a URL into a URL and arguments of psycopg 3's ``connect``.

    psycopg 3 prepares a statement after ``prepare_threshold`` executions. It
    expects a number or None, and a URL contains only text.

    :raises cellsched.exception.ConfigurationInvalid: the value is neither
    """
    if _THRESHOLD not in url.query or url.get_driver_name() != 'psycopg':
        return url, {}
    # oslo.db's connection_parameters are appended, so the last value wins.
    text = url.normalized_query[_THRESHOLD][-1]
    if text.lower() == _NEVER:
        threshold = None
    elif text.isascii() and text.isdigit() and len(text) < 10:
        threshold = int(text)
    else:
        raise exception.ConfigurationInvalid(
            field=_THRESHOLD,
            problem=f'{text[:50]!r} is not valid',
            expected=f'a whole number of at least 0, or {_NEVER}')
    return url.difference_update_query([_THRESHOLD]), {_THRESHOLD: threshold}


def listen(engine: sa.Engine) -> None:
    """Make an engine raise :class:`PlanOutdated` for outdated plans."""
    event.listen(engine, 'handle_error', _forget_plans)


def _forget_plans(context: Any) -> None:
    """Replace connections whose prepared statements are outdated.

    Their statements would fail until the connections are closed.
    """
    error = context.original_exception
    if (guarded_statements.state(error) == _NOT_SUPPORTED
            and _OUTDATED in str(error)):
        context.is_disconnect = True
        raise PlanOutdated(_OUTDATED)
