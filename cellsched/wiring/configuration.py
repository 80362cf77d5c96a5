# SPDX-License-Identifier: Apache-2.0
"""Problems of a configuration that could be read, for services refuse it."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
import contextlib
from typing import Any

from oslo_config import cfg
from oslo_log import log
import oslo_messaging

from cellsched.api import authorization
from cellsched.api import cells
from cellsched.claims import base as claims_base
from cellsched.conf import enabled
from cellsched.conf import logging_setup
from cellsched import context
from cellsched.db import api as api_schema
from cellsched.db import cell as cell_schema
from cellsched import exception
from cellsched.network import base as network
from cellsched import plugins
from cellsched.policies import enforcer
from cellsched.quota import base as quota
from cellsched.rpc import compute
from cellsched.rpc import conductor
from cellsched.rpc import scheduler
from cellsched.rpc import versions
from cellsched.scheduler.decision import registry
from cellsched.scheduler.drivers import base as drivers
from cellsched.virt import base as virt
from cellsched.wiring.components import Components

LOG = log.getLogger(__name__)

_BASES = {
    plugins.CLAIMS: claims_base.ClaimStore,
    plugins.DRIVERS: drivers.SchedulerDriver,
    plugins.NETWORKS: network.NetworkAPI,
    plugins.QUOTA: quota.QuotaDriver,
    plugins.VIRT: virt.ComputeDriver,
}

#: The newest versions of messages, by option of ``[upgrade_levels]``.
_NEWEST = {each.TOPIC: each.VERSION for each in (
    compute, conductor, scheduler)}

#: Errors of invalid values, which are reported when the files are read.
_VALUE_ERRORS = (cfg.Error, ValueError)

Problems = Iterator[exception.CellschedException]


def problems(conf: cfg.ConfigOpts) -> Problems:
    """Yield problems of plug-ins and of other files; connects to nothing.

    Invalid values of options are not reported here.
    """
    for name in _names(conf, 'enabled_filters'):
        yield from _failures(registry.make_filters, conf, [name])
    for name in _names(conf, 'weight_classes'):
        try:
            yield from registry.skipped_weighers(conf, [name])
        except exception.CellschedException as exc:
            yield exc
        except _VALUE_ERRORS:
            continue
    for namespace, base in _BASES.items():
        yield from _failures(enabled.load, conf, namespace, base)
    yield from _failures(enforcer.read, conf)
    yield from _failures(
        lambda: logging_setup.parse(conf.log_config_append)
        if conf.log_config_append else None)


def version_problems(conf: cfg.ConfigOpts) -> Problems:
    """Yield problems of ``[upgrade_levels]``, which end each service."""
    for topic, newest in _NEWEST.items():
        pin = conf.upgrade_levels[topic]
        if pin is not None and (topic, pin) != (compute.TOPIC, versions.AUTO):
            yield from _failures(versions.read_pin, topic, newest, pin)


def url_problems(parts: Components) -> Problems:
    """Yield problems of configured URLs; connects to nothing."""
    conf, broken = parts.conf, set()
    for group, schema in (('api_database', api_schema.SCHEMA.name),
                          ('database', cell_schema.SCHEMA.name)):
        for each in _failures(parts.open_database, group, schema) if (
                conf[group].connection) else ():
            broken.add(group)
            yield _of(f'[{group}] connection', schema, each)
    if _has_claims(conf, 'api_database' in broken):
        for each in _failures(getattr, parts, 'claims'):
            yield _of('[claims] connection', 'claims', each)
    if _has_broker(conf):
        yield from _failures(_open_broker, parts)
    if conf.oslo_messaging_notifications.transport_url:
        yield from _failures(parts.transports.notifications)


def connection_problems(parts: Components) -> Problems:
    """Yield problems of the configured databases and brokers.

    The mapped cells are checked too.
    """
    conf = parts.conf
    above = conf.api_database.connection
    broken = list(_failures(
        lambda: api_schema.SCHEMA.check(parts.database))) if above else []
    yield from broken
    if conf.database.connection:
        yield from _failures(
            lambda: cell_schema.SCHEMA.check(parts.cell_database))
    if _has_claims(conf, bool(broken)):
        yield from _failures(lambda: parts.claims.check())
    if _has_broker(conf):
        yield from _failures(_check_broker, parts)
    if above and not broken:
        for each in cells.CellStates(
                authorization.LocalOperator(), parts.database, parts.cells,
                parts.gatherer, conf.service_down_time,
        ).list(context.admin()):
            if each.state == cells.DOWN:
                yield exception.CellUnreachable(
                    cell=each.name, reason=each.reason)


def _check_broker(parts: Components) -> None:
    parts.transports.check()
    # Services wait for a broker that is unreachable, which the check logs.
    with contextlib.suppress(oslo_messaging.MessageDeliveryFailure):
        parts.transports.check_queues(())


def _open_broker(parts: Components) -> None:
    remark = parts.transports.remark()
    if remark:
        LOG.warning('%s', remark)
    parts.transports.get()


def _names(conf: cfg.ConfigOpts, option: str) -> Iterable[str]:
    """Return the filters or weighers that an option names."""
    try:
        return dict.fromkeys(conf.filter_scheduler[option])
    except _VALUE_ERRORS:
        return ()


def _failures(function: Callable[..., Any], *args: Any) -> Problems:
    """Yield the error of a function, if it fails."""
    try:
        function(*args)
    except exception.CellschedException as exc:
        yield exc
    except _VALUE_ERRORS:
        return


def _of(
    option: str, schema: str, problem: exception.CellschedException
) -> exception.CellschedException:
    """Return a problem of a URL with the name of its option."""
    if problem.kwargs.get('field') != f'{schema} database connection':
        return problem
    return exception.ConfigurationInvalid(
        field=option, problem=problem.kwargs.get('problem'),
        expected=problem.kwargs.get('expected'))


def _has_claims(conf: cfg.ConfigOpts, api_broken: bool) -> bool:
    """Return whether to check claims, which may be in the API database.

    :param api_broken: whether the API database has a problem
    """
    # Not every store has a URL.
    if 'connection' in conf.claims and conf.claims.connection:
        return True
    return bool(conf.api_database.connection) and not api_broken


def _has_broker(conf: cfg.ConfigOpts) -> bool:
    location = conf.get_location('transport_url')
    return location is not None and (
        location.location != cfg.Locations.opt_default)
