# SPDX-License-Identifier: Apache-2.0
"""Reserve hosts for some images, and restrict these images to the hosts."""

from typing import Any

import numpy as np
from oslo_config import cfg

from cellsched.filters import base
from cellsched.hosts import view
from cellsched import objects


class IsolatedHostsFilter(base.Filter):
    """Reject a host that is not meant for the image.

    Images in ``[filter_scheduler] isolated_images`` run only on the hosts in
    ``isolated_hosts``. Other images do not run on these hosts, unless
    ``restrict_isolated_hosts_to_isolated_images`` is off.
    """

    reason = 'is not meant for the image'
    run_filter_once_per_request = True
    run_on_rebuild = True

    @classmethod
    def opts(cls) -> list[cfg.Opt]:
        return [
            cfg.ListOpt('isolated_images', default=[], mutable=True, help="""
Ids of the images that are built on ``isolated_hosts`` only.

Related options:

* ``[filter_scheduler] enabled_filters`` must name ``IsolatedHostsFilter``.
"""),
            cfg.ListOpt('isolated_hosts', default=[], mutable=True, help="""
Names of the hosts that are for ``isolated_images``.
"""),
            cfg.BoolOpt('restrict_isolated_hosts_to_isolated_images',
                        default=True, mutable=True, help="""
Build no other images than ``isolated_images`` on ``isolated_hosts``.
"""),
        ]

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self._images = frozenset(options.isolated_images)
        self._names = frozenset(options.isolated_hosts)
        self._restricts = options.restrict_isolated_hosts_to_isolated_images

    def applies(self, request: objects.RequestSpec) -> bool:
        # Other images are restricted only if there are isolated hosts.
        return self._is_isolated(request) or (
            self._restricts and bool(self._names))

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask:
        names = self._names
        isolated = hosts.memo(
            ('isolated hosts', names),
            lambda whole: np.fromiter(
                (host in names for host in whole['host']), bool, len(whole)))
        if not hosts.is_whole:
            isolated = isolated.take(hosts.rows)
        return isolated.copy() if self._is_isolated(request) else ~isolated

    def _is_isolated(self, request: objects.RequestSpec) -> bool:
        image = request.get('image')
        return image is not None and image.get('id') in self._images
