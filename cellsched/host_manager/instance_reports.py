# SPDX-License-Identifier: Apache-2.0
"""Reports of compute services to schedulers about their instances."""

from collections.abc import Iterable
from collections.abc import Mapping

from cellsched.hosts import view

#: Instances that are remembered; older ones go when there are more.
INSTANCES_MAX = 1_000_000


class InstanceReports:
    """Remembers which host said that it has an instance.

    Who calls it sees to it that nobody else does at the time.
    """

    def __init__(self) -> None:
        self._hosts: dict[str, str] = {}
        self._instances: dict[str, set[str]] = {}

    def update(self, host: str, instances: Iterable[str]) -> None:
        """Take over that a host has these instances, among others."""
        for each in instances:
            self.forget(each)
            self._hosts[each] = host
            self._instances.setdefault(host, set()).add(each)
        while len(self._hosts) > INSTANCES_MAX:
            self.forget(next(iter(self._hosts)))

    def replace(self, host: str, instances: Iterable[str]) -> None:
        """Take over that a host has these instances and no others."""
        for each in tuple(self._instances.get(host, ())):
            self.forget(each)
        self.update(host, instances)

    def forget(self, instance: str) -> None:
        """Forget where an instance is."""
        host = self._hosts.pop(instance, None)
        if host is not None:
            self._instances[host].discard(instance)
            if not self._instances[host]:
                del self._instances[host]

    def host(self, instance: str) -> str | None:
        """Return the host of an instance, if one told."""
        return self._hosts.get(instance)

    def hosts(self, instances: Iterable[str]) -> dict[str, str]:
        """Return the hosts of those instances of which one told."""
        return {each: self._hosts[each] for each in instances
                if each in self._hosts}


def nodes(reported: Mapping[str, str], hosts: view.Hosts) -> dict[str, str]:
    """Return the nodes of instances, as far as their hosts are known.

    :param reported: names of hosts by instance
    """
    rows = {each: hosts.named(host) for each, host in reported.items()}
    return {each: hosts['uuid'][found[0]]
            for each, found in rows.items() if found}
