# SPDX-License-Identifier: Apache-2.0
"""Asking oslo.policy, with the rules here and those of operators' files."""

from collections.abc import Iterator
import contextlib
import copy
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
from cellsched.policies import base
from cellsched.policies import rules

LOG = log.getLogger(__name__)

#: Seconds after which files are looked at again.
LOOK_S = 1

#: What oslo.policy raises of a file that it cannot read, or that is no
#: mapping of names to rules.
_FILE_ERRORS = (cfg.ConfigFilesPermissionDeniedError, OSError, ValueError,
                AttributeError, TypeError)

#: What oslo.policy makes of a rule that it does not understand: nobody's.
_NOBODY = '!'

#: Answers that are remembered, and characters of what they are known by.
_ANSWERS_MAX = 1000
_LENGTH_MAX = 255

#: A check of something that is not in what answers are known by.
_OTHER = re.compile(
    r'\b(?!(?:role|rule|is_admin|project_id|user_id):)[\w.]+:')

#: Rules that are ours begin so; others may be of Nova's calls alone.
_OURS = 'cellsched:'


def make(conf: cfg.ConfigOpts) -> policy.Enforcer:
    """Return an enforcer that knows the rules; it has read no file yet."""
    made = policy.Enforcer(conf)
    made.register_defaults(rules.list_rules())
    return made


def of_command() -> policy.Enforcer:
    """Return the enforcer for the commands of oslo.policy.

    They have read the files that are named on their command line.
    """
    return make(cfg.CONF)


def read(conf: cfg.ConfigOpts) -> policy.Enforcer:
    """Return an enforcer that has read the operator's files.

    It does not read them again, so several threads may ask it.

    :raises cellsched.exception.ConfigurationInvalid: the file of the rules is
        not there, though one was named; one cannot be read; or a rule cannot
        be understood, refers to none or to itself, or is none of ours
    """
    made = make(conf)
    name = conf.oslo_policy.policy_file
    try:
        made.load_rules()
        made.check_rules(raise_on_violation=True)
    except policy.InvalidDefinitionError as exc:
        raise _invalid(
            f'rules in {name} that refer to others that there are, and not '
            f'to themselves: {exc}') from exc
    except _FILE_ERRORS as exc:
        raise _invalid(
            f'a mapping of names to rules in {name}: '
            + ' '.join(str(exc).split())) from exc
    location = conf.get_location('policy_file', 'oslo_policy')
    if made.policy_path is None and (
            location is not None and location.location.is_user_controlled):
        raise _invalid(f'a file that is there, not {name}')
    for rule in made.file_rules.values():
        if _NOBODY in str(rule.check) and _NOBODY not in rule.check_str:
            raise _invalid(f'rules in {name} that can be understood, as that '
                           f'of {rule.name} cannot')
        if rule.name.startswith(_OURS) and (
                rule.name not in made.registered_rules):
            raise _invalid(
                f'names of rules in {name} that there are, unlike {rule.name}')
    made.set_rules(dict(made.rules), use_conf=False)
    return made


class _Rules:
    """Rules as they were read, and what they answered.

    oslo.policy takes a hundred times as long for an answer as to look it up.
    Where a rule asks another server, or somebody's own check, nothing is
    remembered.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._enforcer = read(conf)
        self._remembers = not any(
            _OTHER.search(str(rule.check_str))
            for rule in self._enforcer.file_rules.values())
        self._answers: dict[Any, tuple[bool, bool]] = {}

    def answer(
        self, context: RequestContext, rule: str, project_id: str
    ) -> tuple[bool, bool]:
        """Return whether an administrator asks, and may do it."""
        key = (rule, project_id, context.project_id, context.user_id,
               context.system_scope, context.domain_id,
               bool(context.is_admin), *(context.roles or ()))
        found = self._answers.get(key)
        if found is None:
            found = self._ask(context, rule, project_id)
            if self._remembers and all(
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
        # Without a project nothing is one's own, not what is of 'None' either.
        values = {name: value for name, value
                  in context.to_policy_values().items()
                  if value is not None and value != ''}
        values['is_admin'] = bool(context.is_admin) or bool(
            self._enforcer.authorize(base.CONTEXT_IS_ADMIN, target, values))
        return values['is_admin'], bool(
            self._enforcer.authorize(rule, target, values))


class PolicyAuthorizer(authorization.Authorizer):
    """Asks the rules; changes of their files are seen within a second.

    Files that are wrong by then are logged once, and all rules stay as they
    were.

    :raises cellsched.exception.ConfigurationInvalid: see :func:`read`
    """

    def __init__(self, conf: cfg.ConfigOpts, clock: Clock) -> None:
        self._conf = conf
        self._clock = clock
        self._lock = threading.Lock()
        self._seen = _seen(conf)
        self._rules = _Rules(conf)
        self._due = clock.monotonic() + LOOK_S

    def authorize(
        self, context: RequestContext, rule: str,
        project_id: str | None = None,
    ) -> RequestContext:
        if self._clock.monotonic() >= self._due:
            self._look()
        project = context.project_id if project_id is None else project_id
        is_admin, allowed = self._rules.answer(
            context, rule, str(project or ''))
        if not allowed:
            raise exception.PolicyNotAuthorized(action=rule)
        if is_admin and not context.is_admin:
            context = copy.copy(context)
            context.is_admin = True
        return context

    def _look(self) -> None:
        """Read the files again if they changed; one thread does."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            self._due = self._clock.monotonic() + LOOK_S
            seen = _seen(self._conf)
            if seen == self._seen:
                return
            self._seen = seen
            self._rules = _Rules(self._conf)
            LOG.info('The rules of policies were read again.')
        except exception.ConfigurationInvalid as exc:
            LOG.error('The rules of policies stay as they were: %s', exc)
        finally:
            self._lock.release()


def _seen(conf: cfg.ConfigOpts) -> list[Any]:
    """Return what differs when a file of rules was changed."""
    found = []
    for path in _paths(conf):
        with contextlib.suppress(OSError):
            state = path.stat()
            found.append((path, state.st_ino, state.st_size,
                          state.st_mtime_ns))
    return found


def _paths(conf: cfg.ConfigOpts) -> Iterator[pathlib.Path]:
    options = conf.oslo_policy
    for name in (options.policy_file, *options.policy_dirs):
        found = conf.find_file(name)
        if found is None:
            continue
        path = pathlib.Path(found)
        yield path
        if path.is_dir():
            yield from sorted(path.iterdir())


def _invalid(expected: str) -> exception.ConfigurationInvalid:
    return exception.ConfigurationInvalid(
        field='[oslo_policy] policy_file', expected=expected)
