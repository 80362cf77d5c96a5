# SPDX-License-Identifier: Apache-2.0
"""Keep hosts that can run the image."""

from collections.abc import Hashable
from typing import Any

from oslo_config import cfg

from cellsched.filters import attributes
from cellsched.filters import base
from cellsched.filters import image_needs
from cellsched.hosts import view
from cellsched import objects

#: Properties that are compared with a number of the host.
_NUMBERS = (('img_hv_requested_version', None), ('hw_maxphysaddr_bits', None))


class ImagePropertiesFilter(base.Filter):
    """Reject a host that does not support the requirements of the image.

    The host must support the image properties ``hw_architecture``,
    ``img_hv_type`` and ``hw_vm_mode``. The version of its hypervisor must
    match ``img_hv_requested_version``, for example ``>=6.0,<8``. Its CPUs
    must address ``hw_maxphysaddr_bits``, if the host reports their number.
    """

    reason = 'lacks support for this kind of image'
    reads = frozenset({
        'image.properties.hw_architecture',
        'image.properties.hw_maxphysaddr_bits',
        'image.properties.hw_vm_mode',
        'image.properties.img_hv_requested_version',
        'image.properties.img_hv_type'})
    run_filter_once_per_request = True
    run_on_rebuild = True

    @classmethod
    def opts(cls) -> list[cfg.Opt]:
        return [cfg.StrOpt('image_properties_default_architecture',
                           choices=image_needs.ARCHITECTURES, mutable=True,
                           help="""
Architecture of images that have no property ``hw_architecture``.

Related options:

* ``[filter_scheduler] enabled_filters`` must name ``ImagePropertiesFilter``.
""")]

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        default = options.image_properties_default_architecture
        self._kinds = (('hw_architecture', default), ('img_hv_type', None),
                       ('hw_vm_mode', None))

    def applies(self, request: objects.RequestSpec) -> bool:
        properties = request.image_properties()
        return any(properties.get(name, default) is not None
                   for name, default in (*self._kinds, *_NUMBERS))

    def cache_key(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> Hashable:
        return repr([request.image_property(*each)
                     for each in (*self._kinds, *_NUMBERS)])

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask | None:
        kinds = frozenset(
            image_needs.kind(name, value) for name, default in self._kinds
            if (value := request.image_property(name, default)) is not None)
        # Usually all hosts support the same values.
        mask = None if not kinds else hosts.memo(
            ('can run', kinds), lambda whole: _able(whole, kinds))
        if mask is not None and not hosts.is_whole:
            mask = mask.take(hosts.rows)
        if version := request.image_property('img_hv_requested_version'):
            fits = image_needs.versions(version)
            mask = _both(mask, attributes.Attribute(
                hosts, 'hypervisor_version').each(fits))
        bits = image_needs.bits(request.image_property('hw_maxphysaddr_bits'))
        if bits:
            reported = attributes.Attribute(
                hosts, 'cpu_info', 'maxphysaddr', 'bits')
            mask = _both(mask, reported.each(lambda size: not (
                isinstance(size, (int, float)) and 0 < size < bits)))
        return mask


def _able(hosts: view.Hosts, kinds: frozenset[str]) -> view.Mask | None:
    """Return a mask of the hosts that support a value; None for all."""
    mask = hosts.each('supported_instances', lambda tuples: any(
        kinds <= image_needs.supported(each) for each in tuples))
    mask.flags.writeable = False
    return None if mask.all() else mask


def _both(mask: view.Mask | None, other: view.Mask) -> view.Mask:
    return other if mask is None else mask & other
