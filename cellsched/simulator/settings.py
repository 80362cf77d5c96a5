# SPDX-License-Identifier: Apache-2.0
"""Configurations that are read fast, because they never change."""

from collections.abc import Iterator
import types
from typing import Any

from oslo_config import cfg


class _Group(types.SimpleNamespace):
    """A group of options; they are attributes, and found by name too."""

    def __getitem__(self, name: str) -> Any:
        return vars(self)[name]

    def __contains__(self, name: object) -> bool:
        return name in vars(self)

    def __iter__(self) -> Iterator[str]:
        return iter(vars(self))

    def get(self, name: str, default: Any = None) -> Any:
        return vars(self).get(name, default)


class Settings(_Group):
    """The values of a configuration.

    Libraries register what they read each time that they are used, and have
    oslo.config forget what it worked out. Here that costs nothing, unless it
    is something new.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        super().__init__()
        self.__dict__['_conf'] = conf
        self.__dict__['_known'] = set()
        self._read()

    def register_opts(self, opts: Any, group: Any = None) -> None:
        known = (id(opts), str(group))
        if known not in self._known:
            self._known.add(known)
            self._conf.register_opts(opts, group=group)
            self._read()

    def register_opt(self, opt: Any, group: Any = None) -> None:
        self._conf.register_opt(opt, group=group)
        self._read()

    def get_location(self, name: str, group: Any = None) -> Any:
        return self._conf.get_location(name, group)

    def find_file(self, name: str) -> Any:
        return self._conf.find_file(name)

    def _read(self) -> None:
        for name in self._conf:
            value = self._conf[name]
            if isinstance(value, cfg.ConfigOpts.GroupAttr):
                value = _Group(**{each: value[each] for each in value})
            vars(self)[name] = value
