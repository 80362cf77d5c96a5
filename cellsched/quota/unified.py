# SPDX-License-Identifier: Apache-2.0
"""The driver with unified limits in Keystone, read by oslo.limit."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
import contextlib
import importlib.util
from typing import Any
from typing import ClassVar
from typing import NamedTuple
from typing import TYPE_CHECKING

from oslo_config import cfg
from oslo_log import log

from cellsched.db.api import quotas
from cellsched import exception
from cellsched.observability.conditions import Conditions
from cellsched import plugins
from cellsched.quota import base
from cellsched.quota import db
from cellsched.validation import files

if TYPE_CHECKING:
    from oslo_limit import limit

# An optional extra; without it, ``opts`` raises the error.
with contextlib.suppress(ImportError):
    from keystoneauth1 import exceptions as keystone
    from keystoneauth1 import loading
    from oslo_limit import opts

LOG = log.getLogger(__name__)

#: The condition that Keystone does not answer.
_UNREAD = 'Quota limits cannot be read from Keystone'

_GROUP = 'oslo_limit'

#: Keystone's name of each resource, the same as in Nova.
_NAMES = {'instances': 'servers', 'cores': 'class:VCPU',
          'ram': 'class:MEMORY_MB'}

#: Default timeout of a request to Keystone, in seconds. A transaction may
#: wait for it.
_TIMEOUT_S = 10

#: Maximum number of projects with cached limits.
_CACHED_MAX = 10000

_Limits = Mapping[str, int]


class _Answer(NamedTuple):
    """The last answer of Keystone.

    :param at: time of the request
    :param limits: limits by Keystone's names; None if Keystone has never
        answered
    """

    at: float
    limits: _Limits | None
    error: str = ''


class UnifiedLimitsDriver(db.DbQuotaDriver):
    """Limits projects by Keystone's unified limits.

    The limits of a project are its own in Keystone; otherwise those registered
    for the endpoint in ``[oslo_limit]``. The resources are ``servers``,
    ``class:VCPU`` and ``class:MEMORY_MB``, as in Nova. ``[quota]
    unified_limits_resource_strategy`` sets the limit of a resource that is not
    registered. -1 means no limit. Users have no limits of their own.

    Usage is counted as in ``DbQuotaDriver``. oslo.limit reads the global
    configuration of its process; if that is not loaded yet, it is loaded from
    the service's files. The extra ``limit`` installs the dependencies.
    """

    group: ClassVar[str] = _GROUP
    keeps_limits = False

    @classmethod
    def opts(cls) -> list[cfg.Opt]:
        if importlib.util.find_spec('oslo_limit') is None:
            raise ImportError('oslo.limit is missing, which cellsched[limit] '
                              'installs')
        [(_, options)] = opts.list_opts()
        options = [*options, *loading.get_auth_common_conf_options()]
        cfg.set_defaults(options, timeout=_TIMEOUT_S)
        return [*{option.dest: option for option in options}.values()]

    def __init__(self, conf: cfg.ConfigOpts, clock: base.QuotaClock) -> None:
        super().__init__(conf, clock)
        self._interval_s = conf.quota.unified_limits_refresh_interval
        self._listed = {*conf.quota.unified_limits_resource_list}
        self._required = (
            conf.quota.unified_limits_resource_strategy == 'require')
        self._enforcer: 'limit.Enforcer | None' = None
        self._answers: dict[str | None, _Answer] = {}
        self._conditions = Conditions(LOG, clock.monotonic)
        _prepare(conf)

    def limits_of(
        self, connection: Any, owners: Iterable[quotas.Owner]
    ) -> dict[quotas.Owner, dict[str, int]]:
        found = {
            (project_id, None): db.limited(self._limits(project_id))
            for project_id in dict.fromkeys(project for project, _ in owners)}
        return {owner: limits for owner, limits in found.items() if limits}

    def _limits(self, project_id: str) -> dict[str, int]:
        """Return the limits of a project; -1 for unlimited resources."""
        # None requests all limits, which oslo.limit's annotations omit.
        every: Any = None
        registered = self._ask(
            None, lambda enforcer: enforcer.get_registered_limits(every))
        own = self._ask(
            project_id, lambda enforcer: enforcer.get_project_limits(
                project_id, every)) if project_id else {}
        # The strategy says whether a resource without a registered limit is
        # refused or unlimited.
        unregistered = {
            name: 0 if (name in self._listed) == self._required else -1
            for name in _NAMES.values()}
        limits = {**unregistered, **registered, **own}
        return {resource: limits[name] for resource, name in _NAMES.items()}

    def _ask(
        self, project_id: str | None,
        ask: Callable[['limit.Enforcer'], Iterable[tuple[str, int]]],
    ) -> _Limits:
        """Return the cached or current limits.

        An outage of Keystone delays one request per interval, not each
        request.
        """
        answer, now = self._answers.get(project_id), self.clock.monotonic()
        if answer is None or now - answer.at >= self._interval_s:
            # It imports openstacksdk: 0.6 s of CPU, for commands too.
            from oslo_limit import limit

            try:
                if self._enforcer is None:
                    self._enforcer = limit.Enforcer(_count, cache=False)
                found = dict(ask(self._enforcer))
                self._conditions.end(_UNREAD)
                answer = _Answer(now, found)
            except Exception as exc:
                # For a malformed answer, oslo.limit raises any kind of error.
                reason = plugins.said_by(exc).rstrip('.')
                if isinstance(exc, (AttributeError, LookupError, TypeError)):
                    reason = ('oslo.limit cannot read the answer of '
                              f'Keystone: {reason}')
                self._conditions.occur(
                    _UNREAD, f'{reason}. Known limits stay in force. Without '
                    'them, no request is accepted')
                answer = _Answer(now, answer and answer.limits, reason)
            if len(self._answers) >= _CACHED_MAX:
                self._answers.clear()
            self._answers[project_id] = answer
        if answer.limits is None:
            raise exception.LimitsUnavailable(reason=answer.error)
        return answer.limits


def _count(project_id: str | None, names: Any) -> dict[str, int]:
    """Count nothing: oslo.limit only provides limits."""
    return dict.fromkeys(names, 0)


def _prepare(conf: cfg.ConfigOpts) -> None:
    """Register the options of oslo.limit and check them."""
    own = conf[_GROUP]
    if not (own.endpoint_id or own.endpoint_service_type
            or own.endpoint_service_name):
        raise exception.ConfigurationInvalid(
            field=f'[{_GROUP}] endpoint_id',
            problem='it is not set',
            expected='the id of the Keystone endpoint with the registered '
                     'limits, or endpoint_service_type')
    files.check_tls(_GROUP, own)
    # Before it is read, the global configuration has no such option.
    if conf is not cfg.CONF and (
            getattr(cfg.CONF, 'config_file', None) is None):
        cfg.CONF([], project='cellsched',
                 default_config_files=conf.config_file,
                 default_config_dirs=conf.config_dir)
    try:
        opts.register_opts(cfg.CONF)
        cfg.CONF.set_default('timeout', _TIMEOUT_S, _GROUP)
        auth = loading.load_auth_from_conf_options(cfg.CONF, _GROUP)
    except (keystone.ClientException, cfg.Error) as exc:
        raise exception.ConfigurationInvalid(
            field=f'[{_GROUP}]', problem=plugins.said_by(exc),
            expected='the options of a Keystone client') from None
    if auth is None:
        raise exception.ConfigurationInvalid(
            field=f'[{_GROUP}] auth_type',
            problem='it is not set',
            expected='an authentication plug-in, such as password')
