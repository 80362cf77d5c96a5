# SPDX-License-Identifier: Apache-2.0
"""Prefer hosts that run servers with similar images."""

from typing import Any

from oslo_config import cfg

from cellsched.conf import metrics
from cellsched.hosts import view
from cellsched import objects
from cellsched.objects import keys
from cellsched.weighers import base

#: Maximum compared length of a value; cells store no more.
_LENGTH_MAX = 255


class ImagePropertiesWeigher(base.Weigher):
    """Score a host by its servers with images similar to the request's.

    Each server counts once for each property that its image and the image of
    the request have in common. ``[filter_scheduler]
    image_props_weight_setting`` sets a weight for each property; if it is
    set, other properties do not count. Set ``image_props_weight_multiplier``
    above zero to pack similar servers, and below zero to spread them. The
    default disables the weigher.

    Agents report the image properties of their servers when they change. Only
    the first 255 characters of a value are compared.
    """

    multiplier_name = 'image_props_weight_multiplier'
    multiplier_default = 0.0
    local = True

    @classmethod
    def opts(cls) -> list[cfg.Opt]:
        return [
            *super().opts(),
            cfg.ListOpt('image_props_weight_setting', default=[],
                        item_type=metrics.Ratio(), mutable=True, help="""
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
        ratios = {_compared(name, value): setting.get(name, other)
                  for name, value in request.image_properties().items()}
        return hosts.each('image_props', lambda servers: sum(
            ratios.get(_compared(name, value), 0.0) * count
            for name, value, count in servers), 'float64')


def _compared(name: str, value: Any) -> tuple[str, str]:
    canonical = str(keys.PROPERTIES.canonical(name, value))
    return name, canonical[:_LENGTH_MAX]
