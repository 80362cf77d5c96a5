# SPDX-License-Identifier: Apache-2.0
"""The authorizer that checks the rules of the API, with oslo.policy."""

from collections.abc import Iterable
from collections.abc import Iterator
import contextlib
import copy
import os
import pathlib
import re
import threading
from typing import Any

from oslo_config import cfg
from oslo_log import log
from oslo_policy import policy

from cellsched.api import authorization
from cellsched.clock import Clock
from cellsched.context import RequestContext
from cellsched import exception
from cellsched.policies import rules
from cellsched.validation import files

LOG = log.getLogger(__name__)

#: Seconds between two checks whether the files changed.
LOOK_S = 1

#: Errors that oslo.policy raises for a file that it cannot read, or that does
#: not map names to rules.
_FILE_ERRORS = (cfg.ConfigFilesPermissionDeniedError, OSError, ValueError,
                AttributeError, TypeError, RecursionError)

#: The check that oslo.policy substitutes for a rule that it cannot parse; it
#: denies every call.
_DENY = '!'

#: The largest cache, and the longest text in a key of the cache.
_ANSWERS_MAX = 1000
_LENGTH_MAX = 255

#: A check whose answer depends on more than the key of the cache.
_UNCACHEABLE = re.compile(
    r'\b(?!(?:role|rule|is_admin|project_id|user_id):)[\w.]+:')

#: Options that name files for rules that ask another server.
_TLS_FILES = ('remote_ssl_ca_crt_file', 'remote_ssl_client_crt_file',
              'remote_ssl_client_key_file')

#: Prefix of the rules of this project. An unknown rule without it may belong
#: to a call that only Nova has.
_OURS = 'cellsched:'


def make(conf: cfg.ConfigOpts) -> policy.Enforcer:
    """Return an enforcer with the default rules; it has read no file yet."""
    made = policy.Enforcer(conf)
    made.register_defaults(rules.list_rules())
    return made


def of_command() -> policy.Enforcer:
    """Return the enforcer for the commands of oslo.policy.

    These commands read their configuration files into the global
    configuration.
    """
    return make(cfg.CONF)


def read(conf: cfg.ConfigOpts) -> policy.Enforcer:
    """Return an enforcer that has read the operator's files.

    The enforcer does not read the files again, so it is safe to share between
    threads.

    :raises cellsched.exception.ConfigurationInvalid: a configured file or
        directory does not exist; a file cannot be read; or a rule cannot be
        parsed, refers to an unknown rule or to itself, or has an unknown name
        that begins with ``cellsched:``
    """
    _check_paths(conf)
    made = make(conf)
    name = conf.oslo_policy.policy_file
    try:
        made.load_rules()
        made.check_rules(raise_on_violation=True)
        invalid = [rule.name for rule in made.file_rules.values()
                   if _DENY in str(rule.check) and _DENY not in rule.check_str]
    except policy.InvalidDefinitionError as exc:
        raise _invalid(
            f'{name}: a rule refers to an unknown rule or to itself ({exc})',
            'references to known rules, without cycles') from exc
    except _FILE_ERRORS as exc:
        raise _invalid(f'{name} cannot be read',
                       'a mapping of names to rules, in YAML') from exc
    for each in invalid:
        raise _invalid(f'{name}: the rule {each} cannot be parsed',
                       'a check such as role:admin or rule:admin_api')
    for rule in made.file_rules.values():
        if rule.name.startswith(_OURS) and (
                rule.name not in made.registered_rules):
            raise _invalid(f'{name}: unknown rule {rule.name}',
                           'a rule that the sample file lists')
    made.set_rules(dict(made.rules), use_conf=False)
    return made


def _check_paths(conf: cfg.ConfigOpts) -> None:
    """Check that the paths that the options name are of the right kind.

    oslo.policy ignores a path that is missing, and a file that is a directory.
    The default rules would then allow what the operator has forbidden.
    """
    options = conf.oslo_policy
    for _, found in _found(conf, 'policy_file', [options.policy_file]):
        files.check(_field('policy_file'), found)
    for name, found in _found(conf, 'policy_dirs', options.policy_dirs):
        try:
            names = os.listdir(found)
        except OSError as exc:
            raise _invalid(
                f'{name} cannot be read: {exc.strerror}',
                'the name of a readable directory', 'policy_dirs') from None
        for each in names:
            # oslo.policy does not read hidden files.
            if not each.startswith('.'):
                files.check(_field('policy_dirs'), os.path.join(found, each))
    for option in _TLS_FILES:
        if options[option]:
            files.check(_field(option), options[option])


def _found(
    conf: cfg.ConfigOpts, option: str, names: Iterable[str]
) -> Iterator[tuple[str, str]]:
    """Yield each name that is found, with its path.

    :raises cellsched.exception.ConfigurationInvalid: the option is set, and
        does not find a name
    """
    location = conf.get_location(option, 'oslo_policy')
    is_set = location is not None and location.location.is_user_controlled
    for name in names:
        path = conf.find_file(name)
        if path is not None:
            yield name, path
        elif is_set:
            raise _invalid(f'{name} does not exist',
                           'the name of an existing file or directory', option)


class _Rules:
    """The rules as they were read, with a cache of their answers.

    A lookup in the cache is a hundred times faster than a check by
    oslo.policy. Nothing is cached if a rule asks an HTTP server or has a
    custom check.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._enforcer = read(conf)
        self._cacheable = not any(
            _UNCACHEABLE.search(str(rule.check_str))
            for rule in self._enforcer.file_rules.values())
        self._answers: dict[Any, tuple[bool, bool]] = {}

    def answer(
        self, context: RequestContext, rule: str, project_id: str
    ) -> tuple[bool, bool]:
        """Return whether the user is an administrator, and is allowed."""
        key = (rule, project_id, context.project_id, context.user_id,
               context.system_scope, context.domain_id,
               bool(context.is_admin), *(context.roles or ()))
        found = self._answers.get(key)
        if found is None:
            found = self._ask(context, rule, project_id)
            if self._cacheable and all(
                    not isinstance(each, str) or len(each) <= _LENGTH_MAX
                    for each in key):
                if len(self._answers) >= _ANSWERS_MAX:
                    self._answers.clear()
                self._answers[key] = found
        return found

    def _ask(
        self, context: RequestContext, rule: str, project_id: str
    ) -> tuple[bool, bool]:
        target = {'project_id': project_id, 'user_id': context.user_id or ''}
        # Unset values are removed: otherwise a user without a project would
        # match a resource of the project 'None'.
        values = {name: value for name, value
                  in context.to_policy_values().items()
                  if value is not None and value != ''}
        values['is_admin'] = bool(context.is_admin) or bool(
            self._enforcer.authorize(rules.CONTEXT_IS_ADMIN, target, values))
        return values['is_admin'], bool(
            self._enforcer.authorize(rule, target, values))


class PolicyAuthorizer(authorization.Authorizer):
    """Checks the rules; reads changed files within a second.

    If a changed file is invalid, one error is logged and the previous rules
    stay in force.

    :raises cellsched.exception.ConfigurationInvalid: see :func:`read`
    """

    def __init__(self, conf: cfg.ConfigOpts, clock: Clock) -> None:
        self._conf = conf
        self._clock = clock
        self._lock = threading.Lock()
        self._versions = _file_versions(conf)
        self._rules = _Rules(conf)
        self._next_check = clock.monotonic() + LOOK_S

    def authorize(
        self, context: RequestContext, rule: str,
        project_id: str | None = None,
    ) -> RequestContext:
        if self._clock.monotonic() >= self._next_check:
            self._reload()
        project = context.project_id if project_id is None else project_id
        is_admin, allowed = self._rules.answer(
            context, rule, str(project or ''))
        if not allowed:
            raise exception.PolicyNotAuthorized(action=rule)
        if is_admin and not context.is_admin:
            context = copy.copy(context)
            context.is_admin = True
        return context

    def _reload(self) -> None:
        """Read the files again if they changed, in one thread at a time."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            self._next_check = self._clock.monotonic() + LOOK_S
            versions = _file_versions(self._conf)
            if versions == self._versions:
                return
            self._versions = versions
            self._rules = _Rules(self._conf)
            LOG.info('Policy rules reloaded.')
        except exception.ConfigurationInvalid as exc:
            LOG.error('Policy rules not reloaded, the previous rules stay in '
                      'force: %s', exc)
        finally:
            self._lock.release()


def _file_versions(conf: cfg.ConfigOpts) -> list[Any]:
    """Return values that change when a file of rules changes."""
    options, versions = conf.oslo_policy, []
    for name in (options.policy_file, *options.policy_dirs):
        path = pathlib.Path(conf.find_file(name) or name)
        with contextlib.suppress(OSError):
            versions.append(_version(path))
            versions += map(_version, sorted(path.iterdir()))
    return versions


def _version(path: pathlib.Path) -> Any:
    state = path.stat()
    return path, state.st_ino, state.st_size, state.st_mtime_ns


def _invalid(
    problem: str, expected: str, option: str = 'policy_file'
) -> exception.ConfigurationInvalid:
    return exception.ConfigurationInvalid(
        field=_field(option), problem=problem, expected=expected)


def _field(option: str) -> str:
    return f'[oslo_policy] {option}'
