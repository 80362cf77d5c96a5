# SPDX-License-Identifier: Apache-2.0
"""The parts that decisions on requests of Nova's share."""

import dataclasses
from random import Random
from typing import Any

from cellsched.scheduler.drivers import filter_scheduler
from cellsched.scheduler import requirements
from cellsched.scheduler.selection import placer
from cellsched.scheduler.selection import selection
from cellsched_nova.claims import ClaimParts
from cellsched_nova import enabled_plugins
from cellsched_nova import source


def _forget(*decision: Any) -> None:
    """Keep no decision."""


@dataclasses.dataclass(frozen=True)
class Parts:
    """The parts that all decisions share until options change.

    :param host_manager: Nova's
    :param client: Nova's report client
    :param claims: what claims in Placement
    :param unread: finds what a request asks for that no column is read for
    :param conf: Nova's configuration
    :param record: is told each decision; must neither block nor fail
    """

    hosts: source.NovaHosts
    plugins: enabled_plugins.EnabledPlugins
    policy: selection.SelectionPolicy
    unread: requirements.UnsupportedRequirements
    host_manager: Any
    client: Any
    claims: ClaimParts
    conf: Any
    record: placer.Record = _forget


def make(
    conf: Any, random: Random, hosts: source.NovaHosts,
    host_manager: Any, client: Any, claims: ClaimParts,
    nova_conf: Any, record: placer.Record = _forget,
) -> Parts:
    """Return what decides as the options are now.

    :param conf: the product's configuration
    :param nova_conf: Nova's
    """
    plugins = enabled_plugins.EnabledPlugins(
        conf, host_manager.enabled_filters, host_manager.weighers)
    return Parts(
        hosts, plugins, filter_scheduler.selection_policy(conf, random),
        requirements.UnsupportedRequirements(plugins.reads), host_manager,
        client, claims, nova_conf, record)
