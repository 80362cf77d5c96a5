# SPDX-License-Identifier: Apache-2.0
"""Settings of psycopg2 and psycopg 3 that SQLAlchemy does not make."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy import event

from cellsched.db import guarded_statements
from cellsched import exception

_THRESHOLD = 'prepare_threshold'

#: What stands in a URL for never.
_NEVER = 'none'

_NOT_SUPPORTED = '0A000'

_OUTDATED = 'cached plan must not change result type'


class PlanOutdated(Exception):
    """A table has changed since a statement that reads it was prepared."""


def connect_arguments(url: sa.URL) -> tuple[sa.URL, dict[str, Any]]:
    """Return a URL without what is to be an argument, and such arguments.

    psycopg 3 prepares a statement that was executed ``prepare_threshold``
    times. To it this is a number or None, but in a URL all is text.

    :raises cellsched.exception.ConfigurationInvalid: it is neither
    """
    if _THRESHOLD not in url.query or url.get_driver_name() != 'psycopg':
        return url, {}
    # What oslo.db's connection_parameters adds comes last.
    text = url.normalized_query[_THRESHOLD][-1]
    if text.lower() == _NEVER:
        threshold = None
    elif text.isascii() and text.isdigit() and len(text) < 10:
        threshold = int(text)
    else:
        raise exception.ConfigurationInvalid(
            field=_THRESHOLD,
            expected=f'an integer from 0 on, or {_NEVER}, not {text[:50]!r}')
    return url.difference_update_query([_THRESHOLD]), {_THRESHOLD: threshold}


def listen(engine: sa.Engine) -> None:
    """Have statements raise :class:`PlanOutdated` when their plans are."""
    event.listen(engine, 'handle_error', _forget_plans)


def _forget_plans(context: Any) -> None:
    """Replace connections whose prepared statements no longer work.

    They would fail for as long as they are open.
    """
    error = context.original_exception
    if (guarded_statements.state(error) == _NOT_SUPPORTED
            and _OUTDATED in str(error)):
        context.is_disconnect = True
        raise PlanOutdated(_OUTDATED)
