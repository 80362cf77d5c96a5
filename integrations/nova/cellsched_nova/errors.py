# SPDX-License-Identifier: Apache-2.0
"""Errors of Nova's libraries, as the product's."""

from collections.abc import Iterator
import contextlib

from keystoneauth1 import exceptions as ks_exceptions
import nova.conf
from oslo_config import cfg
from oslo_db import exception as db_exc
import sqlalchemy as sa

from cellsched import exception
from cellsched import urls
from cellsched_nova import placement

CONF = nova.conf.CONF


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Translate what they raise, so that it can be told in one line.

    :raises cellsched.exception.ConfigurationInvalid: an option is missing, or
        has a wrong value
    :raises cellsched.exception.DatabaseUnreachable: a database of Nova's does
        not answer, or is something else
    :raises cellsched_nova.placement.PlacementUnavailable: likewise Placement
    """
    try:
        yield
    except cfg.Error as exc:
        raise exception.ConfigurationInvalid(
            field='options', expected=str(exc)) from None
    except db_exc.CantStartEngineError:
        raise exception.ConfigurationInvalid(
            field='[api_database] connection',
            expected='the URL of Nova\'s API database') from None
    except (db_exc.DBError, sa.exc.SQLAlchemyError) as exc:
        inner = getattr(exc, 'inner_exception', None) or exc
        inner = getattr(inner, 'orig', None) or inner
        raise exception.DatabaseUnreachable(
            schema='Nova', url=urls.mask(CONF.api_database.connection or ''),
            reason=(str(inner).splitlines() or [''])[0]) from exc
    except ks_exceptions.ClientException as exc:
        raise placement.PlacementUnavailable(reason=str(exc)) from exc
