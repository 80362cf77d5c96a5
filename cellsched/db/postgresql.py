# SPDX-License-Identifier: Apache-2.0
"""PostgreSQL: settings of psycopg2 and psycopg 3."""

from typing import Any

import sqlalchemy as sa

from cellsched import exception

_THRESHOLD = 'prepare_threshold'

#: Value of ``prepare_threshold`` in a URL for "never".
_NEVER = 'none'


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
