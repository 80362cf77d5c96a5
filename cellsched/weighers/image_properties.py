# SPDX-License-Identifier: Apache-2.0
"""Prefer the hosts that run servers of similar images."""

from collections.abc import Mapping
from typing import Any

from oslo_config import cfg

from cellsched.conf import metrics
from cellsched.hosts import state
from cellsched.hosts import view
from cellsched import objects
from cellsched.weighers import base

#: The most of one host that is a count.
_COUNT_MAX = 2 ** 31 - 1


class ImagePropertiesWeigher(base.Weigher):
    """Score a host by its servers whose images are like the request's.

    Each server counts once for every property that its image has in common
    with the image of the request. ``[filter_scheduler]
    image_props_weight_setting`` gives properties ratios; those that it does
    not name then do not count. Set ``image_props_weight_multiplier`` above
    zero to pack such servers, below zero to spread them out. Unset, it counts
    nothing.

    Hosts report the images of their servers in their statistics:
    ``{"image_props": {"os_distro": {"windows": 3}}}``.
    """

    multiplier_name = 'image_props_weight_multiplier'
    multiplier_default = 0.0
    local = True

    @classmethod
    def opts(cls) -> list[cfg.Opt]:
        return [
            *super().opts(),
            cfg.ListOpt('image_props_weight_setting', default=[],
                        item_type=metrics.Ratio(), help="""
Properties of images to weigh hosts by, each with its ratio.

``os_distro=1, hw_machine_type=-1``. Without any, all properties count alike.

Related options:

* ``[filter_scheduler] image_props_weight_multiplier`` must not be zero.
"""),
        ]

    def applies(self, request: objects.RequestSpec) -> bool:
        return bool(_properties(request))

    def score(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Column:
        setting = dict(self.options.image_props_weight_setting)
        other = 0.0 if setting else 1.0
        wanted = {name: (str(value), setting.get(name, other))
                  for name, value in _properties(request).items()}
        return hosts.each('stats', lambda text: _sum(text, wanted), 'float64')


def _properties(request: objects.RequestSpec) -> dict[str, Any]:
    image = request.get('image')
    properties = image.get('properties') if image else None
    return dict(properties.items()) if properties else {}


def _sum(text: str, wanted: Mapping[str, tuple[str, float]]) -> float:
    """Return the ratios of the properties, each times its servers."""
    stats = state.parsed(text) if text else None
    there = stats.get('image_props') if isinstance(stats, dict) else None
    total = 0.0
    for name, counts in (there if isinstance(there, dict) else {}).items():
        if name in wanted and isinstance(counts, dict):
            value, ratio = wanted[name]
            count = counts.get(value)
            # Other figures than these are no counts of servers.
            if isinstance(count, int) and 0 <= count <= _COUNT_MAX:
                total += ratio * count
    return total
