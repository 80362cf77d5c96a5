# SPDX-License-Identifier: Apache-2.0
"""Prefer the hosts that run servers of similar images."""

from oslo_config import cfg

from cellsched.conf import metrics
from cellsched.hosts import view
from cellsched import objects
from cellsched.weighers import base

#: Characters of a value that are compared, as cells keep no more.
_LENGTH_MAX = 255


class ImagePropertiesWeigher(base.Weigher):
    """Score a host by its servers whose images are like the request's.

    Each server counts once for every property that its image has in common
    with the image of the request. ``[filter_scheduler]
    image_props_weight_setting`` gives properties ratios; those that it does
    not name then do not count. Set ``image_props_weight_multiplier`` above
    zero to pack such servers, below zero to spread them out. Unset, it counts
    nothing.

    Agents report what the images of their servers say, each time that these
    change; of long values the first 255 characters count.
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
        return bool(request.image_properties())

    def score(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Column:
        setting = dict(self.options.image_props_weight_setting)
        other = 0.0 if setting else 1.0
        ratios = {(name, str(value)[:_LENGTH_MAX]): setting.get(name, other)
                  for name, value in request.image_properties().items()}
        return hosts.each('image_props', lambda servers: sum(
            ratios.get((name, value), 0.0) * count
            for name, value, count in servers), 'float64')
