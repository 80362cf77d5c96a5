# SPDX-License-Identifier: Apache-2.0
"""Reading configuration files, strictly.

oslo.config ignores a name that nobody registered and looks at a value only
when it is asked for. An operator who mistypes a name should hear of it at
once, so all is looked at here, before a service starts.

It takes two steps: which plug-ins are enabled is an option, and options of
plug-ins are registered for what is enabled. A service names the kinds of
plug-ins that it uses; others are not imported, unless a file sets a name that
may be theirs. So it is with oslo.messaging where no message is sent.
"""

import argparse
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import functools
import glob
import io
import os
import sys
from typing import Any

from oslo_config import cfg
from oslo_config import iniparser
from oslo_log import log
from oslo_service import opts as service_opts

from cellsched.conf import enabled
from cellsched.conf import messaging
from cellsched.conf import opts
from cellsched import exception
from cellsched import plugins

_PROJECT = 'cellsched'

#: Groups of libraries that nobody registers here.
_FOREIGN = ('oslo_concurrency', 'oslo_reports', 'profiler')

LOG = log.getLogger(__name__)

#: The names that a file may use, by group.
_Names = dict[str, set[str]]

#: The last file that sets a name of a group.
_Settings = dict[tuple[str, str], str]


def load(
    args: Sequence[str] | None = None,
    files: Sequence[str] | None = None,
    dirs: Sequence[str] | None = None,
    kinds: Collection[str] = plugins.WITH_OPTIONS, messages: bool = True,
) -> cfg.ConfigOpts:
    """Return a configuration of its own, with everything registered.

    ``args`` are command line arguments (``--config-file``, ``--debug``, …).
    Without ``files`` and ``dirs`` the usual places are read.

    :param kinds: namespaces of the plug-ins that are used
    :param messages: whether messages are sent or received

    :raises cellsched.exception.ConfigurationInvalid: names file and field,
        and quotes nothing that may be secret
    """
    conf = cfg.ConfigOpts()
    for problem in _read(conf, args, files, dirs, kinds, messages):
        raise problem
    return conf


def examine(
    args: Sequence[str] | None = None,
    files: Sequence[str] | None = None,
    dirs: Sequence[str] | None = None,
    foreign: Collection[str] = (),
) -> tuple[cfg.ConfigOpts, enabled.Problems]:
    """Return a configuration, and all for which :func:`load` refuses it.

    A group that nothing here reads is a problem too. Where files cannot be
    read there may be more problems.

    :param foreign: groups that are somebody else's
    """
    conf = cfg.ConfigOpts()
    problems = _read(conf, args, files, dirs, plugins.WITH_OPTIONS,
                     foreign={*_FOREIGN, *foreign})
    # A group is one problem, whatever is in it.
    return conf, list({str(each): each for each in problems}.values())


def _read(
    conf: cfg.ConfigOpts, args: Sequence[str] | None,
    files: Sequence[str] | None, dirs: Sequence[str] | None,
    kinds: Collection[str], messages: bool = True,
    foreign: Collection[str] | None = None,
) -> Iterator[exception.ConfigurationInvalid]:
    """Read a configuration and yield its problems.

    :param foreign: groups that are somebody else's; None for all that are
        not called nearly as one of ours
    """
    args = list(args or ())
    files = cfg.find_config_files(_PROJECT) if files is None else list(files)
    dirs = cfg.find_config_dirs(_PROJECT) if dirs is None else list(dirs)
    register(conf, messages)
    known = _known(conf, messages)
    try:
        named = [(path, group, name) for path in _paths(args, files, dirs)
                 for group, name in _names_in(path)]
        settings = {(group, name): path for path, group, name in named}
        _parse(conf, settings, args, files, dirs)
    except exception.ConfigurationInvalid as exc:
        # Nobody knows what else there may be.
        yield exc
        return
    for group, name in enabled.OPTIONS:
        problem = _problem(conf if group == 'DEFAULT' else conf[group], group,
                           name, settings)
        if problem is not None:
            # It says which options there may be.
            yield problem
            return
    _add_names(known, enabled.register(conf, kinds))
    if not messages:
        named = _without_messaging(named, known)
    yield from _check_names(named, known, conf, kinds, foreign)
    yield from _check_values(conf, settings)


def register(conf: cfg.ConfigOpts, messages: bool = True) -> None:
    """Register the options of this project and of the libraries it uses.

    Those of plug-ins are registered when they are made.

    :param messages: whether oslo.messaging is one of these
    """
    opts.register_opts(conf)
    log.register_options(conf)
    service_opts.register_service_opts(conf)
    _register_listed(conf, 'oslo.policy')
    if messages:
        register_messaging(conf)


def register_messaging(conf: cfg.ConfigOpts) -> None:
    """Register what oslo.messaging reads; a second time changes nothing.

    It registers most by itself, but late, when a wrong value has no name.
    """
    _register_listed(conf, 'oslo.messaging')
    # These it registers on the global configuration only, and does not list.
    for group, options in messaging.list_opts():
        if group not in conf:
            conf.register_opts(options, group=group)
    for name, group, default in messaging.DEFAULTS:
        conf.set_default(name, default, group)


def _register_listed(conf: cfg.ConfigOpts, library: str) -> None:
    for group, options in _listed(library):
        conf.register_opts(options, group=group)


# Each time that it is asked, a library copies all of them.
@functools.cache
def _listed(library: str) -> list[tuple[str | None, list[cfg.Opt]]]:
    """Return the options of a library; nobody changes them."""
    return plugins.load('oslo.config.opts', library)()


def list_messaging() -> list[tuple[str | None, list[cfg.Opt]]]:
    """Return what oslo.messaging lists; this imports all of its drivers."""
    return _listed('oslo.messaging')


def _known(conf: cfg.ConfigOpts, messages: bool) -> _Names:
    """Return what files may set: what is registered, and its older names."""
    known: _Names = {'DEFAULT': set()}
    for name in conf:
        value = conf[name]
        if isinstance(value, cfg.ConfigOpts.GroupAttr):
            known[name] = set(value)
        else:
            known['DEFAULT'].add(name)
    _add_older_names(known, [
        *opts.list_core(), *_listed('oslo.log'), *_listed('oslo.policy'),
        *(list_messaging() if messages else [])])
    return known


def _without_messaging(
    named: Iterable[tuple[str, str, str]], known: _Names
) -> list[tuple[str, str, str]]:
    """Return the names in files less those in oslo.messaging's groups.

    Who sends messages looks at these. Its names elsewhere become known.
    """
    left = [each for each in named
            if not each[1].startswith(messaging.GROUPS)]
    known['DEFAULT'] |= messaging.EVERYDAY
    if not all(name in known.get(group, ()) for _, group, name in left):
        _add_names(known, [
            (group or 'DEFAULT', options) for group, options in (
                *list_messaging(), *messaging.list_opts())])
    return left


def _add_names(
    known: _Names, options: Iterable[tuple[str, list[cfg.Opt]]]
) -> None:
    """Add the names of options, and their older ones."""
    for group, each in options:
        known.setdefault(group, set()).update(opt.dest for opt in each)
    _add_older_names(known, options)


def _add_older_names(
    known: _Names, options: Iterable[tuple[Any, list[cfg.Opt]]]
) -> None:
    for group, each in options:
        for old in (old for opt in each for old in opt.deprecated_opts):
            known.setdefault(old.group or group or 'DEFAULT', set()).add(
                str(old.name))


def _paths(
    args: Sequence[str], files: Sequence[str], dirs: Sequence[str]
) -> Iterator[str]:
    """Give the files that are read, the later ones overriding the earlier."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument('--config-file', action='append', default=[])
    parser.add_argument('--config-dir', action='append', default=[])
    given, _ = parser.parse_known_args(args)
    yield from given.config_file or files
    for path in given.config_dir or dirs:
        directory = os.path.expanduser(path)
        if not os.path.isdir(directory):
            raise _invalid('--config-dir', f'a directory, not {path}')
        yield from sorted(glob.glob(os.path.join(directory, '*.conf')))


def _names_in(path: str) -> Iterator[tuple[str, str]]:
    sections: dict[str, dict[str, list[str]]] = {}
    try:
        cfg.ConfigParser(os.path.expanduser(path), sections).parse()
    except OSError as exc:
        raise _invalid(
            path, f'a file that can be read: {exc.strerror}') from None
    except UnicodeDecodeError:
        raise _invalid(path, 'a text file') from None
    except iniparser.ParseError as exc:
        # What the error says of itself quotes the line, which may be secret.
        raise _invalid(f'{path}: line {exc.lineno}',
                       f'name = value, or [group]: {exc.msg}') from None
    for section, values in sections.items():
        group = section if section == 'DEFAULT' else section.lower()
        for name in values:
            yield group, name


def _check_names(
    named: Iterable[tuple[str, str, str]], known: _Names,
    conf: cfg.ConfigOpts, kinds: Collection[str],
    foreign: Collection[str] | None,
) -> Iterator[exception.ConfigurationInvalid]:
    """Yield what is wrong with names that are nobody's.

    Groups of plug-ins of other kinds are left to who uses these. Those, and
    what is installed and not enabled, are looked at only for names that
    nothing else has. A name that a plug-in may have which cannot be loaded,
    and so cannot say its options, is ignored.
    """
    others = [each for each in plugins.WITH_OPTIONS if each not in kinds]
    # Who uses such plug-ins looks at these.
    elsewhere = {enabled.GROUPS.get(each) for each in others} - {
        enabled.GROUPS.get(each) for each in kinds}
    named = [each for each in named if each[1] not in elsewhere]
    problems: enabled.Problems = []

    def are_known() -> bool:
        return not any(_refusal(*each, known, foreign) for each in named)

    if are_known():
        return
    _add_names(known, enabled.register(conf, others))
    for namespaces in kinds, others:
        if are_known():
            return
        of_plugins, found = enabled.list_installed(namespaces)
        _add_names(known, of_plugins)
        problems += found
    for each in named:
        refusal = _refusal(*each, known, foreign)
        if refusal is not None and not problems:
            yield refusal
        elif refusal is not None:
            LOG.warning('%s. It is ignored, as it may be of a plug-in that '
                        'cannot be used: %s', refusal,
                        '; '.join(str(problem) for problem in problems))


def _refusal(
    path: str, group: str, name: str, known: _Names,
    foreign: Collection[str] | None,
) -> exception.ConfigurationInvalid | None:
    """Return what is wrong with a name in a file, None if nothing is.

    :param foreign: see :func:`_read`
    """
    if group in known and name in known[group]:
        return None
    import difflib  # Most often nothing is wrong.

    if group not in known:
        near = difflib.get_close_matches(
            group, [*known, *_FOREIGN], 1, cutoff=0.8)
        # Anything else may be somebody else's.
        if group not in (_FOREIGN if foreign is None else foreign) and (
                near or foreign is not None):
            hint = f'; did you mean {near[0]}?' if near else ''
            return _invalid(f'{path}: [{group}]', f'a name of a group{hint}')
    else:
        near = difflib.get_close_matches(name, known[group], 1)
        hint = f'; did you mean {near[0]}?' if near else ''
        return _invalid(f'{path}: [{group}] {name}',
                        f'a name of an option{hint}')
    return None


def _parse(
    conf: cfg.ConfigOpts, settings: _Settings, args: list[str],
    files: list[str], dirs: list[str],
) -> None:
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            conf(args, project=_PROJECT, default_config_files=files,
                 default_config_dirs=dirs)
    except cfg.Error as exc:
        raise _invalid('options', str(exc)) from None
    except SystemExit as exc:
        # An option that is also an argument is converted here already, and
        # what is wrong with its value is only printed.
        option, colon, problem = said.getvalue().removeprefix(
            'argument --').strip().partition(': ')
        if exc.code == 1 and colon:
            raise _invalid(
                _where(settings, 'DEFAULT', option), problem) from None
        sys.stderr.write(said.getvalue())
        raise


def _check_values(
    conf: cfg.ConfigOpts, settings: _Settings
) -> Iterator[exception.ConfigurationInvalid]:
    for name in conf:
        problem = _problem(conf, 'DEFAULT', name, settings)
        if problem is not None:
            yield problem
        elif isinstance(conf[name], cfg.ConfigOpts.GroupAttr):
            section = conf[name]
            yield from filter(None, (
                _problem(section, name, each, settings) for each in section))


def _problem(
    section: cfg.ConfigOpts | cfg.ConfigOpts.GroupAttr, group: str, name: str,
    settings: _Settings,
) -> exception.ConfigurationInvalid | None:
    """Return what is wrong with a value, None if nothing is."""
    try:
        section[name]
        return None
    except (cfg.NoSuchOptError, cfg.TemplateSubstitutionError):
        # The error quotes what follows the sign, which may be of a password.
        problem = 'a value in which each $ is doubled or begins a known name'
    except (cfg.Error, ValueError) as exc:
        problem = str(exc.__context__ or exc)
    return _invalid(_where(settings, group, name), problem)


def _where(settings: _Settings, group: str, name: str) -> str:
    path = settings.get((group, name))
    return f'{path}: [{group}] {name}' if path else f'[{group}] {name}'


def _invalid(field: str, expected: str) -> exception.ConfigurationInvalid:
    return exception.ConfigurationInvalid(field=field, expected=expected)
