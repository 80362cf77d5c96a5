# SPDX-License-Identifier: Apache-2.0
"""Keep hosts whose aggregates match the properties of the image."""

from oslo_config import cfg

from cellsched.filters import base
from cellsched.hosts import metadata
from cellsched.hosts import view
from cellsched import objects
from cellsched.objects import keys


class AggregateImagePropertiesIsolation(base.Filter):
    """Reject a host whose aggregates are for other images.

    The filter compares the metadata of the host's aggregates with the image
    properties of the same names. The property must be one of the
    comma-separated values that the aggregates have for the key, as it is
    written or as Nova writes it: ``amd64`` is ``x86_64`` too, and ``yes`` is
    ``True``. Properties that are not set, false or zero are ignored.
    ``[filter_scheduler] aggregate_image_properties_isolation_namespace``
    restricts the filter to keys that begin with this namespace, followed by
    ``aggregate_image_properties_isolation_separator``.
    """

    reason = 'is kept for other images'
    run_filter_once_per_request = True
    run_on_rebuild = True

    @classmethod
    def opts(cls) -> list[cfg.Opt]:
        return [
            cfg.StrOpt('aggregate_image_properties_isolation_namespace',
                       mutable=True, help="""
Prefix of the metadata keys that are compared with images' properties.

Without one all keys are compared, those that mean something else too.

Related options:

* ``[filter_scheduler] aggregate_image_properties_isolation_separator``
"""),
            cfg.StrOpt('aggregate_image_properties_isolation_separator',
                       default='.', mutable=True, help="""
What stands between the namespace and the rest of a metadata key.

Related options:

* ``[filter_scheduler] aggregate_image_properties_isolation_namespace``
"""),
        ]

    def applies(self, request: objects.RequestSpec) -> bool:
        image = request.get('image')
        return bool(image and image.get('properties'))

    def keep(
        self, hosts: view.Hosts, request: objects.RequestSpec
    ) -> view.Mask | None:
        prefix = ''
        if self.options.aggregate_image_properties_isolation_namespace:
            prefix = (
                self.options.aggregate_image_properties_isolation_namespace
                + self.options.aggregate_image_properties_isolation_separator)
        known = metadata.keys(hosts)
        return metadata.agree(hosts, [
            (key, _verdict({str(value), str(canonical)}))
            for key, value in request.image.properties.items()
            if key in known and key.startswith(prefix)
            and (canonical := keys.PROPERTIES.canonical(key, value))])


def _verdict(texts: set[str]) -> metadata.Verdict:
    return lambda values: not values or not texts.isdisjoint(values)
