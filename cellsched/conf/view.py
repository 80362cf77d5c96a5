# SPDX-License-Identifier: Apache-2.0
"""The configuration of one of several services in a process."""

from collections.abc import Mapping
from typing import Any
from typing import cast

from oslo_config import cfg


def view(
    conf: cfg.ConfigOpts, values: Mapping[str, Mapping[str, Any]]
) -> cfg.ConfigOpts:
    """Return a configuration in which some options have other values.

    A view is cheap: to read a separate configuration takes as long as to
    start a service. Options that are registered or changed in one are
    registered or changed in both.

    :param values: values by group and name, of the types of the options
    """
    return cast(cfg.ConfigOpts, _View(conf, values))


class _View:

    def __init__(
        self, conf: cfg.ConfigOpts, values: Mapping[str, Mapping[str, Any]]
    ) -> None:
        self._conf = conf
        self._values = values

    def __getattr__(self, name: str) -> Any:
        return self[name] if name in self else getattr(self._conf, name)

    def __getitem__(self, name: str) -> Any:
        own = self._values.get('DEFAULT', {})
        if name in own:
            return own[name]
        found = self._conf[name]
        if name in self._values:
            return _GroupView(found, self._values[name])
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._conf

    def __iter__(self) -> Any:
        return iter(self._conf)

    def __len__(self) -> int:
        return len(self._conf)


class _GroupView:

    def __init__(self, group: Any, values: Mapping[str, Any]) -> None:
        self._group = group
        self._own = values

    def __getattr__(self, name: str) -> Any:
        return self[name]

    def __getitem__(self, name: str) -> Any:
        return self._own[name] if name in self._own else self._group[name]

    def __contains__(self, name: object) -> bool:
        return name in self._group

    def __iter__(self) -> Any:
        return iter(self._group)

    def __len__(self) -> int:
        return len(self._group)
