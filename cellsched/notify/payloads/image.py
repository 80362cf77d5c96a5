# SPDX-License-Identifier: Apache-2.0
"""The payload of an image."""

from typing import Any

from cellsched.notify.payloads import envelope
from cellsched import urls

IMAGE = envelope.Form('ImageMetaPayload', '1.0', (
    'id', 'name', 'status', 'visibility', 'protected', 'checksum', 'owner',
    'size', 'virtual_size', 'container_format', 'disk_format', 'created_at',
    'updated_at', 'tags', 'direct_url', 'min_ram', 'min_disk'))

#: Its fields are the properties that the image has.
PROPERTIES = ('ImageMetaPropsPayload', '1.20')


def versioned(image: Any) -> dict[str, Any] | None:
    """Return the payload of an image, or None without one."""
    fields = _shown(image)
    if fields is None:
        return None
    properties = fields.pop('properties')
    return IMAGE.fill(
        fields, properties=envelope.wrap(*PROPERTIES, properties))


def legacy(image: Any) -> dict[str, Any]:
    """Return the image as one dict; an empty one without an image."""
    fields = _shown(image) or {}
    for name in ('created_at', 'updated_at'):
        if name in fields:
            fields[name] = envelope.legacy_time(fields[name])
    return fields


def _shown(image: Any) -> dict[str, Any] | None:
    """Return what may be seen of an image.

    The URL in its store may hold a password, and a property may name where
    a key is kept.
    """
    fields = envelope.fields_of(image)
    if fields is None:
        return None
    shown = {name: envelope.plain(fields[name])
             for name in IMAGE.fields if name in fields}
    if shown.get('direct_url') is not None:
        shown['direct_url'] = urls.mask(shown['direct_url'])
    properties = envelope.fields_of(fields.get('properties')) or {}
    shown['properties'] = {
        name: envelope.plain(value) for name, value in properties.items()
        if 'secret' not in name}
    return shown
