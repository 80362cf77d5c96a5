# SPDX-License-Identifier: Apache-2.0
"""The loader of configuration files, which rejects unknown names.

oslo.config ignores unknown names, and parses a value when it is first read.
The loader checks all names and values before a service starts, so that a
mistyped name is reported at once.

Loading takes two steps: an option names the enabled plug-ins, and their
options are registered after it is read. A service names the kinds of plug-ins
that it uses. Plug-ins of other kinds are imported only if a file sets a name
that may be one of their options. The same holds for oslo.messaging if no
message is sent.
"""

import argparse
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import difflib
import functools
import glob
from importlib import metadata
import io
import math
import os
import pathlib
import sys
from typing import Any

from oslo_config import cfg
from oslo_config import iniparser
from oslo_log import log
from oslo_service import opts as service_opts

from cellsched.conf import enabled
from cellsched.conf import opts
from cellsched.conf import pci
from cellsched.conf import refusals
from cellsched import exception
from cellsched import plugins

_PROJECT = 'cellsched'

#: The environment variable that names the configuration files.
VARIABLE = 'CELLSCHED_CONFIG'

#: Groups of libraries that read their own options.
_FOREIGN = ('oslo_concurrency', 'profiler')

LOG = log.getLogger(__name__)

_METRICS = [
    cfg.BoolOpt('metrics_enabled', default=False,
                help='Send metrics of RPC to oslo.metrics.'),
    cfg.IntOpt('metrics_buffer_size', default=1000,
               help='Metrics that can wait to be sent.'),
    cfg.StrOpt('metrics_socket_file',
               default='/var/tmp/metrics_collector.sock',  # nosec
               help='Unix domain socket of oslo.metrics.'),
    cfg.StrOpt('metrics_process_name', default='',
               help='Name of this process in metrics.'),
    cfg.IntOpt('metrics_thread_stop_timeout', default=10,
               help='Seconds without metrics after which the thread that '
                    'sends them ends.'),
]

_TRACING = [
    cfg.BoolOpt('tracing_enabled', default=False,
                help='Trace RPC by OpenTelemetry, at the callers.'),
    cfg.StrOpt('tracing_service_name', default='openstack',
               help='Name of the service in traces.'),
    cfg.StrOpt('otel_exporter_otlp_endpoint', default='http://localhost:4318',
               help='URL that traces are sent to.'),
    cfg.StrOpt('otlp_protocol', default='http/protobuf',
               choices=['http/protobuf', 'grpc'],
               help='Protocol by which traces are sent.'),
    cfg.BoolOpt('insecure', default=False,
                help='Send traces by gRPC without TLS.'),
]

#: Options that oslo.messaging registers on the global configuration only, by
#: group. It reads them from the configuration of the transport, and does not
#: list them. Names, types and defaults are those of version 18.3.
UNLISTED = (('oslo_messaging_metrics', _METRICS),
            ('oslo_messaging_tracing', _TRACING))

#: The names of the options of oslo.messaging that most files have. A list of
#: all names would import its drivers.
MESSAGING_NAMES = frozenset({
    'control_exchange', 'executor_thread_pool_size', 'rpc_response_timeout',
    'transport_url'})

#: The begin of the names of its groups.
MESSAGING_PREFIX = 'oslo_messaging_'

#: Options of oslo.messaging with other defaults: name, group and default.
_MESSAGING_DEFAULTS = [
    # Without a bound, a process that is stopped holds unacknowledged messages
    # until the broker closes its connection.
    ('rabbit_qos_prefetch_count', 'oslo_messaging_rabbit', 10),
    # A caller that has died leaves no queue for its reply. Until then a
    # thread tries to send it.
    ('kombu_missing_consumer_retry_timeout', 'oslo_messaging_rabbit', 3),
    # RabbitMQ 4.3 and newer refuse transient queues that are not exclusive,
    # which are what the library declares by default.
    ('rabbit_quorum_queue', 'oslo_messaging_rabbit', True),
    ('rabbit_transient_quorum_queue', 'oslo_messaging_rabbit', True),
    ('rabbit_stream_fanout', 'oslo_messaging_rabbit', True),
]

#: Expected values, by the beginning of errors of Python's conversions.
_CONVERSIONS = {
    'invalid literal for int()': 'a whole number',
    'could not convert string to float': 'a number'}

#: The names that a file may use, by group.
_Names = dict[str, set[str]]

#: The least likeness of a mistyped name to the name that is meant. A name that
#: is less alike has another meaning. Who follows such a hint sets an option
#: that does something else.
_LIKENESS = 0.85

#: The last file, or the environment variable, that sets a name of a group.
_Settings = dict[tuple[str, str], str]


def load(
    args: Sequence[str] | None = None,
    files: Sequence[str] | None = None,
    dirs: Sequence[str] | None = None,
    kinds: Collection[str] = plugins.WITH_OPTIONS, messages: bool = True,
) -> cfg.ConfigOpts:
    """Return a new configuration with all options registered.

    :param args: command line arguments: ``--config-file``, ``--debug``
    :param files: configuration files; by default in the usual places
    :param dirs: directories of files; by default in the usual places
    :param kinds: namespaces of the plug-ins that are used
    :param messages: whether messages are sent or received

    :raises cellsched.exception.ConfigurationInvalid: names the file and the
        option, and shows no value that may be secret
    """
    conf = new_conf()
    for problem in _read(conf, args, files, dirs, kinds, messages):
        raise problem
    return conf


def examine(
    args: Sequence[str] | None = None,
    files: Sequence[str] | None = None,
    dirs: Sequence[str] | None = None,
    foreign: Collection[str] = (),
) -> tuple[cfg.ConfigOpts, enabled.Problems]:
    """Return a configuration and all its problems.

    An unknown group is a problem too. If a file cannot be read, only that
    problem is returned.

    :param foreign: groups of other programs
    """
    conf = new_conf()
    problems = _read(conf, args, files, dirs, plugins.WITH_OPTIONS,
                     foreign={*_FOREIGN, *foreign})
    # An unknown group with several options is one problem.
    return conf, list({str(each): each for each in problems}.values())


def files(args: Sequence[str]) -> list[str]:
    """Return the configuration files that a process reads.

    :param args: command line arguments
    :raises cellsched.exception.ConfigurationInvalid: a directory does not
        exist
    """
    return [*_paths(args, default_files(), cfg.find_config_dirs(_PROJECT))]


def check_files(
    args: Sequence[str], files: Sequence[str], dirs: Sequence[str]
) -> None:
    """Make sure that the configuration files of another program can be read.

    :param args: command line arguments, which may name files and directories
    :param files: the files if the arguments name none; likewise ``dirs``
    :raises cellsched.exception.ConfigurationInvalid: names the file and the
        line, and does not quote the line
    """
    for path in _paths(args, files, dirs):
        for _ in _names_in(path):
            pass


def file_text(*sources: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the text of a configuration file.

    :param sources: values by group and name; the last one of an option counts
    """
    merged: dict[str, dict[str, Any]] = {}
    for source in sources:
        for group, values in source.items():
            merged.setdefault(group, {}).update(values)
    lines = [line for group, values in merged.items() for line in (
        f'[{group}]', *(f'{name} = {_text(value)}'
                        for name, value in values.items()))]
    return '\n'.join(lines) + '\n'


def _text(value: Any) -> str:
    """Return a value as a configuration file has it."""
    if isinstance(value, (list, tuple)):
        return ','.join(map(str, value))
    if isinstance(value, dict):
        return ','.join(f'{key}:{each}' for key, each in value.items())
    return str(value).replace('$', '$$')


def problem_of(error: Exception) -> str:
    """Return why the value of an option cannot be read, in plain words."""
    if isinstance(error, (cfg.NoSuchOptError, cfg.TemplateSubstitutionError)):
        # The text of the error may quote a part of a password.
        return ('no option has the name after $; expected $$ for the '
                'character $')
    # The error of a value has that of its conversion as the context.
    return (_plain(str(error.__context__ or error))
            if isinstance(error, ValueError) else str(error))


def check_values(
    conf: cfg.ConfigOpts, options: Iterable[tuple[str, str]]
) -> None:
    """Make sure that options of another program are registered and valid.

    :param options: groups and names
    :raises cellsched.exception.ConfigurationInvalid: names the option and the
        value
    """
    if not isinstance(conf, cfg.ConfigOpts):
        raise _invalid('conf', 'it is no configuration',
                       'a ConfigOpts of oslo.config')
    for group, name in options:
        # Unlike other mappings, a configuration has no default for get().
        section = conf if group == 'DEFAULT' else (
            conf[group] if group in conf else ())
        if name not in section:
            raise _invalid(f'[{group}] {name}', 'it is not registered',
                           'a configuration with the options of this project')
        problem = _problem(conf, group, name, {})
        if problem is not None:
            raise problem


def new_conf(kind: type[cfg.ConfigOpts] = cfg.ConfigOpts) -> cfg.ConfigOpts:
    """Return a configuration without options and values.

    oslo.config adds ``--shell_completion``, which fails: the package lacks the
    templates that the option reads.
    """
    conf = kind()
    if 'shell_completion' in conf:
        conf.unregister_opt(cfg.StrOpt('shell_completion'))
        conf.supported_shell_completion = []
    return conf


def _read(
    conf: cfg.ConfigOpts, args: Sequence[str] | None,
    files: Sequence[str] | None, dirs: Sequence[str] | None,
    kinds: Collection[str], messages: bool = True,
    foreign: Collection[str] | None = None,
) -> Iterator[exception.ConfigurationInvalid]:
    """Read a configuration and yield its problems.

    :param foreign: groups of other programs; None accepts every unknown
        group unless its name resembles a known one
    """
    args = list(args or ())
    files = default_files() if files is None else list(files)
    dirs = cfg.find_config_dirs(_PROJECT) if dirs is None else list(dirs)
    register(conf, messages)
    known = {group: {*names} for group, names in _known(messages).items()}
    try:
        named = [*((path, group, name) for path in _paths(args, files, dirs)
                   for group, name in _names_in(path)), *_variables()]
        settings = {(group, name): path for path, group, name in named}
        _parse(conf, settings, args, files, dirs)
    except exception.ConfigurationInvalid as exc:
        # The file cannot be read, so there is nothing else to check.
        yield exc
        return
    for group, name in enabled.OPTIONS:
        problem = _problem(conf, group, name, settings)
        if problem is not None:
            # The option determines which other options exist.
            yield problem
            return
    _add_names(known, enabled.register(conf, kinds))
    yield from refusals.without_effect(named)
    named = [each for each in named if each[1:] not in refusals.REASONS]
    if not messages:
        # A service that sends messages checks the groups of oslo.messaging.
        # The names that it has in other groups become known.
        named = [each for each in named
                 if not each[1].startswith(MESSAGING_PREFIX)]
        known['DEFAULT'] |= MESSAGING_NAMES
        if not all(name in known.get(group, ()) for _, group, name in named):
            _add_names(known, [*list_messaging(), *UNLISTED])
    yield from _check_names(named, known, conf, kinds, foreign)
    wrong = [*_check_values(conf, settings)]
    yield from wrong
    if not wrong:
        refusals.adapt_defaults(conf)
        yield from refusals.contradictions(conf)
        yield from pci.problems(conf.pci.alias)


def default_files() -> list[str]:
    """Return the configuration files of a process that is given none.

    They are those of the environment variable :data:`VARIABLE`, separated as
    in ``PATH``, or else files in the usual directories.
    """
    named = os.environ.get(VARIABLE)
    return (named.split(os.pathsep) if named
            else cfg.find_config_files(_PROJECT))


def register(conf: cfg.ConfigOpts, messages: bool = True) -> None:
    """Register the options of this project and of its libraries.

    The options of a plug-in are registered when the plug-in is created.

    :param messages: whether to register the options of oslo.messaging
    """
    opts.register_opts(conf)
    log.register_options(conf)
    service_opts.register_service_opts(conf)
    _register_listed(conf, 'oslo.policy')
    _register_listed(conf, 'oslo.reports')
    if messages:
        register_messaging(conf)


def register_messaging(conf: cfg.ConfigOpts) -> None:
    """Register the options of oslo.messaging; may be called twice.

    oslo.messaging registers most of them itself, but too late for an error
    that names the option.
    """
    _register_listed(conf, 'oslo.messaging')
    # oslo.messaging registers these on the global configuration only.
    for group, options in UNLISTED:
        if group not in conf:
            conf.register_opts(options, group=group)
    for name, group, default in _MESSAGING_DEFAULTS:
        conf.set_default(name, default, group)


def _register_listed(conf: cfg.ConfigOpts, library: str) -> None:
    for group, options in _listed(library):
        section: Any = (conf if group is None else
                        conf[group] if group in conf else ())
        # A registration compares known options, and clears all cached values.
        missing = [each for each in options if each.dest not in section]
        if missing:
            conf.register_opts(missing, group=group)


# Each call of a library copies all its options.
@functools.cache
def _listed(library: str) -> list[tuple[str | None, list[cfg.Opt]]]:
    """Return the options of a library; the caller must not change them."""
    return plugins.load('oslo.config.opts', library)()


def list_messaging() -> list[tuple[str | None, list[cfg.Opt]]]:
    """Return the options of oslo.messaging; this imports its drivers."""
    return _listed('oslo.messaging')


@functools.cache
def _known(messages: bool) -> _Names:
    """Return the names of all options but those of plug-ins, by group.

    They include deprecated names. The caller must not change them.
    """
    conf = new_conf()
    # oslo.service does not list its options.
    service_opts.register_service_opts(conf)
    known = {'DEFAULT': {*conf}}
    _add_names(known, [
        *opts.list_core(), *_listed('oslo.log'), *_listed('oslo.policy'),
        *_listed('oslo.reports'),
        *((*list_messaging(), *UNLISTED) if messages else ())])
    return known


def _add_names(
    known: _Names, options: Iterable[tuple[str | None, list[cfg.Opt]]]
) -> None:
    """Add the names of options, and their deprecated names."""
    for group, each in options:
        for option in each:
            known.setdefault(group or 'DEFAULT', set()).add(option.dest)
            for old in option.deprecated_opts:
                known.setdefault(old.group or group or 'DEFAULT', set()).add(
                    str(old.name))


def _paths(
    args: Sequence[str], files: Sequence[str], dirs: Sequence[str]
) -> Iterator[str]:
    """Yield the configuration files; a later one overrides an earlier one."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument('--config-file', action='append', default=[])
    parser.add_argument('--config-dir', action='append', default=[])
    given, _ = parser.parse_known_args(args)
    yield from given.config_file or files
    for path in given.config_dir or dirs:
        directory = os.path.expanduser(path)
        if not os.path.isdir(directory):
            raise _invalid('--config-dir', f'{path} is not a directory',
                           'a directory')
        yield from sorted(glob.glob(os.path.join(directory, '*.conf')))


def _names_in(path: str) -> Iterator[tuple[str, str]]:
    if pathlib.Path(path).expanduser().is_fifo():
        # oslo.config would read it again, and find nothing or wait.
        raise _invalid(path, 'it is a pipe, which can be read only once',
                       'a regular file')
    sections: dict[str, dict[str, list[str]]] = {}
    try:
        cfg.ConfigParser(os.path.expanduser(path), sections).parse()
    except OSError as exc:
        raise _invalid(path, f'the file cannot be read ({exc.strerror})',
                       'a readable file') from None
    except UnicodeDecodeError:
        raise _invalid(path, 'the file is not text in UTF-8',
                       'a text file') from None
    except iniparser.ParseError as exc:
        # The text of the error quotes the line, which may be secret.
        raise _invalid(f'{path}: line {exc.lineno}', f'{exc.msg}',
                       'name = value, or [group]') from None
    for section, values in sections.items():
        group = section if section == 'DEFAULT' else section.lower()
        for name in values:
            yield group, name


def _variables() -> Iterator[tuple[str, str, str]]:
    """Yield the variables of the environment that oslo.config reads.

    Each has its place in errors, the group and the name.
    """
    for variable in sorted(os.environ):
        group, separator, name = variable.removeprefix('OS_').partition('__')
        if separator and variable.startswith('OS_'):
            if variable != variable.upper():
                # oslo.config reads only names in capitals.
                name = f'{name} (not in capitals)'
            group = group.lower()
            yield (f'environment variable {variable}',
                   'DEFAULT' if group == 'default' else group, name.lower())


def _check_names(
    named: Iterable[tuple[str, str, str]], known: _Names,
    conf: cfg.ConfigOpts, kinds: Collection[str],
    foreign: Collection[str] | None,
) -> Iterator[exception.ConfigurationInvalid]:
    """Yield the problems of unknown names.

    A group of plug-ins of another kind is checked by the services that use
    the kind. Plug-ins of other kinds, and plug-ins that are not enabled, are
    loaded only if a name is unknown without them. If a plug-in cannot be
    loaded, unknown names in its group are ignored, because they may be its
    options.
    """
    # 1. Skip the groups that another service checks.
    rest = [each for each in plugins.WITH_OPTIONS if each not in kinds]
    elsewhere = {enabled.GROUPS.get(each) for each in rest} - {
        enabled.GROUPS.get(each) for each in kinds}
    named = [each for each in named if each[1] not in elsewhere]
    problems: dict[str, enabled.Problems] = {}

    def are_known() -> bool:
        return not any(_refusal(*each, known, foreign) for each in named)

    # 2. Most often all names are known. If not, load more plug-ins.
    if are_known():
        return
    _add_names(known, enabled.register(conf, rest))
    for namespaces in kinds, rest:
        if are_known():
            return
        of_plugins, found = enabled.list_installed(namespaces)
        _add_names(known, of_plugins)
        for group, of_group in found.items():
            problems.setdefault(group, []).extend(of_group)
    # 3. Report the names that are still unknown.
    for each in named:
        refusal = _refusal(*each, known, foreign)
        if refusal is None:
            continue
        if each[1] not in problems:
            yield refusal
        else:
            LOG.warning('%s. The name is ignored: it may be an option of a '
                        'plug-in that cannot be loaded: %s', refusal,
                        '; '.join(map(str, problems[each[1]])))


def _refusal(
    path: str, group: str, name: str, known: _Names,
    foreign: Collection[str] | None,
) -> exception.ConfigurationInvalid | None:
    """Return the problem of a name in a file, or None.

    :param foreign: see :func:`_read`
    """
    if group in known and name in known[group]:
        return None
    if group not in known:
        near = difflib.get_close_matches(
            group, [*known, *_FOREIGN], 1, cutoff=_LIKENESS)
        # Another unknown group may belong to another program.
        if group not in (_FOREIGN if foreign is None else foreign) and (
                near or foreign is not None):
            hint = f'; did you mean [{near[0]}]?' if near else ''
            return exception.ConfigurationInvalid(
                field=f'{path}: [{group}]',
                problem=f'unknown option group{hint}')
    else:
        near = difflib.get_close_matches(
            name, known[group], 1, cutoff=_LIKENESS)
        hint = f'; did you mean {near[0]}?' if near else ''
        return exception.ConfigurationInvalid(
            field=f'{path}: [{group}] {name}',
            problem=f'unknown option{hint}')
    return None


def _parse(
    conf: cfg.ConfigOpts, settings: _Settings, args: list[str],
    files: list[str], dirs: list[str],
) -> None:
    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed):
            conf(args, project=_PROJECT, version=_version(),
                 default_config_files=files, default_config_dirs=dirs)
    except cfg.Error as exc:
        raise exception.ConfigurationInvalid(
            field='options', problem=str(exc)) from None
    except SystemExit as exc:
        # oslo.config converts the value of an option that is also an argument
        # here, and prints the error.
        option, colon, problem = printed.getvalue().removeprefix(
            'argument --').strip().partition(': ')
        if exc.code == 1 and colon:
            raise exception.ConfigurationInvalid(
                field=_where(settings, 'DEFAULT', option),
                problem=_plain(problem)) from None
        sys.stderr.write(printed.getvalue())
        raise


# Each call of the library parses the metadata of the package.
@functools.cache
def _version() -> str:
    return metadata.version(_PROJECT)


def _check_values(
    conf: cfg.ConfigOpts, settings: _Settings
) -> Iterator[exception.ConfigurationInvalid]:
    """Yield the problems of values.

    A default is valid, and to read all options takes longer than all other
    steps. So all are read only if it is not known which are set.
    """
    # Most often all options are set by their current names.
    if not conf.config_source and all(
            name in conf if group == 'DEFAULT' else
            group in conf and name in conf[group]
            for group, name in settings):
        yield from filter(None, (
            _problem(conf, group, name, settings) for group, name in settings))
        return
    for name in conf:
        problem = _problem(conf, 'DEFAULT', name, settings)
        if problem is not None:
            yield problem
        elif isinstance(conf[name], cfg.ConfigOpts.GroupAttr):
            yield from filter(None, (
                _problem(conf, name, each, settings) for each in conf[name]))


def _problem(
    conf: cfg.ConfigOpts, group: str, name: str, settings: _Settings
) -> exception.ConfigurationInvalid | None:
    """Return the problem of a value, or None."""
    section = conf if group == 'DEFAULT' else conf[group]
    try:
        value = section[name]
        if isinstance(value, float) and not math.isfinite(value):
            # It is neither below a minimum nor above a maximum.
            problem = f'{value} is not valid; expected a finite number'
        elif not (value is None or value == '' and (group, name) in _texts()):
            return None
        else:
            location = conf.get_location(
                name, None if group == 'DEFAULT' else group)
            if location is None or not location.location.is_user_controlled:
                # Neither a file nor the environment sets it.
                return None
            # oslo.config would use it in place of the default.
            problem = 'it has no value; expected a value, or no line for it'
    except (cfg.Error, ValueError) as exc:
        problem = problem_of(exc)
    return exception.ConfigurationInvalid(
        field=_where(settings, group, name), problem=problem)


@functools.cache
def _texts() -> frozenset[tuple[str, str]]:
    """Return the options of this project that have a text by default."""
    return frozenset(
        (group, option.dest) for group, options in opts.list_core()
        for option in options if option.default
        and isinstance(option.default, str)
        and option.dest != 'mysql_sql_mode')


def _where(settings: _Settings, group: str, name: str) -> str:
    path = settings.get((group, name))
    return f'{path}: [{group}] {name}' if path else f'[{group}] {name}'


def _plain(problem: str) -> str:
    """Return the problem of a value in plain words.

    oslo.config passes on the errors of Python's conversions.
    """
    for begin, expected in _CONVERSIONS.items():
        if problem.startswith(begin):
            value = problem.rpartition(': ')[2]
            return f'{value:.60} is not a number; expected {expected}'
    return problem


def _invalid(
    field: str, problem: str, expected: str
) -> exception.ConfigurationInvalid:
    return exception.ConfigurationInvalid(
        field=field, problem=problem, expected=expected)
