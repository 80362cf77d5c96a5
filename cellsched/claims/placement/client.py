# SPDX-License-Identifier: Apache-2.0
"""The client of Placement, over keystoneauth1, and its options."""

from collections.abc import Iterator
import contextlib
import math
from typing import Any

from keystoneauth1.adapter import Adapter
from keystoneauth1 import exceptions as keystone
from keystoneauth1 import loading
from keystoneauth1.session import TCPKeepAliveAdapter
from oslo_config import cfg
import requests
import urllib3

from cellsched.claims.placement import messages
from cellsched.claims import remote
from cellsched.clock import Clock
from cellsched import exception
from cellsched import plugins
from cellsched import urls
from cellsched.validation import files

#: Default of the option ``timeout``, in seconds, and the time for a request
#: if the option has no value.
_TIMEOUT_S = 10
_UNSET_TIMEOUT_S = 30

#: Number of connections that are kept open.
_CONNECTIONS_MAX = 64

#: Seconds for which a catalog is used although Placement cannot be reached.
_CATALOG_S = 5.0

#: Option with the name of the authentication plug-in, and its choices.
_AUTH_TYPE = 'auth_type'
_WAYS = ('admin_token', 'http_basic', 'none', 'password', 'token',
         'v3applicationcredential', 'v3password', 'v3token')

#: Errors that are raised before the request is sent.
_BEFORE = (keystone.AuthorizationFailure, keystone.AuthPluginException,
           keystone.CatalogException, keystone.DiscoveryFailure,
           keystone.HttpError)


def options() -> list[cfg.Opt]:
    """Return the options of a service's client, named as in Nova.

    They include those of the usual authentication plug-ins. The options for
    retries have no effect, as the store must know about each attempt.
    """
    found = [
        *loading.get_session_conf_options(),
        *(option for option in loading.get_auth_common_conf_options()
          if option.dest == _AUTH_TYPE),
        *loading.get_adapter_conf_options(include_deprecated=False)]
    known = {option.dest for option in found}
    for name in _WAYS:
        for option in loading.get_auth_plugin_conf_options(name):
            if option.dest not in known:
                known.add(option.dest)
                # Required by one plug-in, but not by all of them.
                option.required = False
                found.append(option)
    cfg.set_defaults(found, timeout=_TIMEOUT_S, service_type='placement',
                     valid_interfaces=['internal', 'public'])
    return found


class KeystoneClient:
    """Sends each request once, with a token of Keystone.

    A token is kept together with Keystone's catalog of that time. If
    Placement cannot be reached at its endpoint of the catalog, the next
    request gets a new token, as the endpoint may have moved.
    """

    def __init__(self, adapter: Adapter, clock: Clock) -> None:
        self._adapter = adapter
        self._clock = clock
        self._renewed_at = -math.inf

    @classmethod
    def from_conf(
        cls, conf: cfg.ConfigOpts, group: str, clock: Clock
    ) -> 'KeystoneClient':
        """Return the client of a deployment.

        :raises cellsched.exception.ConfigurationInvalid: names the field
        """
        files.check_tls(group, conf[group])
        try:
            auth = _auth(conf[group])
            session = loading.load_session_from_conf_options(
                conf, group, auth=auth, session=_make_connections())
            # No request waits for ever.
            session.timeout = session.timeout or _UNSET_TIMEOUT_S
            adapter = loading.load_adapter_from_conf_options(
                conf, group, session=session)
        except (keystone.ClientException, cfg.Error, ValueError) as exc:
            raise exception.ConfigurationInvalid(
                field=f'[{group}]',
                problem=plugins.said_by(exc),
                expected='valid options of a Placement client') from None
        if auth is None:
            raise exception.ConfigurationInvalid(
                field=f'[{group}] auth_type',
                problem='it is not set',
                expected='an authentication plug-in, such as password')
        return cls(adapter, clock)

    @property
    def url(self) -> str:
        """The configured endpoint, or a description of it."""
        adapter = self._adapter
        return urls.mask(adapter.endpoint_override) or (
            f'the endpoint of {adapter.service_type} in Keystone')

    def send(
        self, request: messages.PlacementRequest
    ) -> messages.PlacementAnswer:
        try:
            with translated_errors():
                answer = self._adapter.request(
                    request.path, request.method, json=request.body,
                    raise_exc=False, connect_retries=0, status_code_retries=0,
                    microversion=messages.VERSION, redirect=False,
                    headers={'Accept': 'application/json'})
        except remote.Rejection:
            raise
        except remote.NotSent:
            self._renew()
            raise
        return answer_of(answer)

    def _renew(self) -> None:
        """Discard the token, unless it is recent."""
        now = self._clock.monotonic()
        if now - self._renewed_at >= _CATALOG_S:
            self._renewed_at = now
            self._adapter.invalidate()


@contextlib.contextmanager
def translated_errors() -> Iterator[None]:
    """Translate errors of keystoneauth1.

    :raises remote.NotSent: Placement did not receive the request
    :raises remote.Rejection: Keystone refuses the user, and will each time
    :raises remote.OutcomeUnknown: there is no answer
    """
    try:
        yield
    except _BEFORE as exc:
        if isinstance(exc, keystone.HttpError) and (
                messages.is_permanent(exc.http_status)):
            raise remote.Rejection(_describe(exc)) from None
        raise remote.NotSent(_describe(exc)) from None
    except (keystone.ConnectFailure, keystone.ConnectTimeout,
            keystone.ConnectionError) as exc:
        kind = (remote.NotSent if _never_connected(exc)
                else remote.OutcomeUnknown)
        raise kind(_describe(exc)) from None


def answer_of(response: requests.Response) -> messages.PlacementAnswer:
    """Return the answer in a response."""
    try:
        body = response.json()
    except ValueError:
        body = None
    return messages.PlacementAnswer(response.status_code, body)


def _make_connections() -> requests.Session:
    """Return a session that keeps a connection for each concurrent write."""
    connections = requests.Session()
    for scheme in 'http://', 'https://':
        connections.mount(scheme, TCPKeepAliveAdapter(
            pool_maxsize=_CONNECTIONS_MAX))
    return connections


def _auth(own: cfg.ConfigOpts.GroupAttr) -> Any:
    """Return the authentication plug-in; None if it is not configured."""
    name = own[_AUTH_TYPE]
    if name and name not in _WAYS:
        raise ValueError(
            f'auth_type {name}; expected one of {", ".join(_WAYS)}')
    return name and loading.get_plugin_loader(name).load_from_options_getter(
        lambda option: own[option.dest])


def _describe(exc: Exception) -> str:
    return urls.mask_text(plugins.said_by(exc))


def _never_connected(exc: BaseException) -> bool:
    """Return whether no connection was opened."""
    return any(isinstance(each, (
        requests.exceptions.ConnectTimeout,
        urllib3.exceptions.NewConnectionError,
        urllib3.exceptions.NameResolutionError)) for each in _causes(exc))


def _causes(exc: BaseException) -> Iterator[BaseException]:
    """Yield an error and all of its known causes."""
    seen: set[int] = set()
    pending: list[Any] = [exc]
    while pending:
        each = pending.pop()
        if isinstance(each, BaseException) and id(each) not in seen:
            seen.add(id(each))
            yield each
            pending += [each.__cause__, each.__context__,
                        getattr(each, 'reason', None), *each.args]
