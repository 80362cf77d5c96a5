# SPDX-License-Identifier: Apache-2.0
"""The set-up of logging, whose errors name the option and the file."""

from collections.abc import Iterator
import configparser
import contextlib
import logging
from logging import config
import pathlib

from oslo_config import cfg
from oslo_log import log

from cellsched import exception


def set_up(conf: cfg.ConfigOpts, product: str) -> None:
    """Set up logging as the options of oslo.log say.

    :param product: the name of the program in the log
    :raises cellsched.exception.ConfigurationInvalid: a file cannot be used, or
        a value is not valid
    """
    if conf.log_config_append:
        # oslo.log translates only some of the errors.
        load(conf.log_config_append)
    try:
        log.setup(conf, product)
    except (OSError, log.LogConfigError) as exc:
        raise exception.ConfigurationInvalid(
            field='[DEFAULT] log_file, log_dir or log_config_append',
            problem=f'a file cannot be used: {exc}',
            expected='writable log files, and a readable configuration of '
                     'logging') from None
    except (RuntimeError, TypeError, ValueError) as exc:
        # oslo.log checks neither levels nor facilities.
        raise exception.ConfigurationInvalid(
            field='[DEFAULT] default_log_levels, syslog_log_facility or '
                  'use_journal',
            problem=f'logging cannot be set up: {exc}',
            expected='MODULE=LEVEL for each module, a facility of syslog, and '
                     'the bindings of systemd for the journal') from None


def load(path: str) -> None:
    """Load a configuration of logging; after an error all loggers stay.

    :raises cellsched.exception.ConfigurationInvalid: the file cannot be used
    """
    parser = parse(path)
    try:
        with _restored_loggers():
            config.fileConfig(parser, disable_existing_loggers=False)
    except Exception as exc:
        # The file names classes, which may raise any error.
        raise _unusable(path, exception.describe(exc)) from None


def parse(path: str) -> configparser.ConfigParser:
    """Return the content of a configuration of logging.

    :raises cellsched.exception.ConfigurationInvalid: the file cannot be read,
        or has another format
    """
    if pathlib.Path(path).is_fifo():
        raise _unusable(path, 'it is a pipe, which can be read only once')
    parser = configparser.ConfigParser()
    try:
        with open(path) as file:
            parser.read_file(file)
    except configparser.ParsingError as exc:
        # The text of the error quotes lines, which may have a password.
        lines = [exc.lineno] if isinstance(
            exc, configparser.MissingSectionHeaderError) else [
                number for number, _ in exc.errors]
        raise _unusable(path, f'line {lines[0]} cannot be parsed') from None
    except (OSError, ValueError, configparser.Error) as exc:
        raise _unusable(path, exception.describe(exc)) from None
    return parser


@contextlib.contextmanager
def _restored_loggers() -> Iterator[None]:
    """Restore the handlers and levels of all loggers after an error."""
    root = logging.getLogger()
    known = [root, *(each for each in root.manager.loggerDict.values()
                     if isinstance(each, logging.Logger))]
    before = [(each, each.level, each.propagate, [*each.handlers])
              for each in known]
    try:
        yield
    except BaseException:
        # logging has closed the handlers, which open their files again.
        for logger, level, propagate, handlers in before:
            logger.setLevel(level)
            logger.propagate = propagate
            logger.handlers = handlers
        raise


def _unusable(path: str, problem: str) -> exception.ConfigurationInvalid:
    return exception.ConfigurationInvalid(
        field='[DEFAULT] log_config_append',
        problem=f'{path} cannot be used: {problem}',
        expected='a configuration of logging in the format of logging.config')
