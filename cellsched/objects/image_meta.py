# SPDX-License-Identifier: Apache-2.0
"""Images that servers are made from."""

from collections.abc import ItemsView
import copy
from typing import Any

from oslo_versionedobjects import fields

from cellsched import exception
from cellsched.objects import base


@base.Registry.register
class ImageMetaProps(base.Object):
    """Properties of an image: an open set.

    Properties are kept, and passed on, as they came; so is the version, since
    nothing of it is left out. They are given when the object is made, and
    are read by name: ``properties.hw_architecture``,
    ``properties.get('hw_architecture')``, ``'hw_architecture' in properties``.
    """

    VERSION = '1.44'

    def __init__(self, context: Any = None, /, **properties: Any) -> None:
        self._properties: dict[str, Any] = properties
        super().__init__(context)

    @classmethod
    def _obj_from_primitive(
        cls, context: Any, objver: str, primitive: dict[str, Any]
    ) -> 'ImageMetaProps':
        data = primitive[f'{cls.OBJ_SERIAL_NAMESPACE}.data']
        if not isinstance(data, dict):
            raise exception.InvalidField(
                where=cls.obj_name(), field='data',
                expected='properties by name')
        self = cls(context)
        self._properties = dict(data)
        self.VERSION = objver
        return self

    def obj_to_primitive(
        self, target_version: str | None = None,
        version_manifest: dict[str, str] | None = None,
    ) -> dict[str, Any]:
        primitive = super().obj_to_primitive(target_version, version_manifest)
        primitive[f'{self.OBJ_SERIAL_NAMESPACE}.data'] = dict(self._properties)
        return primitive

    def get(self, name: str, default: Any = None) -> Any:
        """Return a property, or the default where the image has none."""
        return self._properties.get(name, default)

    def items(self) -> ItemsView[str, Any]:
        """Return the properties with their names."""
        return self._properties.items()

    def __contains__(self, name: object) -> bool:
        return name in self._properties

    def __getattr__(self, name: str) -> Any:
        # A copy that is being made has no properties yet.
        if name in self.__dict__.get('_properties', ()):
            return self._properties[name]
        raise AttributeError(f'the image has no property {name!r}')

    def __deepcopy__(self, memo: dict[int, Any]) -> 'ImageMetaProps':
        result = type(self)(self.obj_context)
        result._properties = copy.deepcopy(self._properties, memo)
        result.VERSION = self.VERSION
        return result

    def __repr__(self) -> str:
        return f'ImageMetaProps({self._properties})'


@base.Registry.register
class ImageMeta(base.Object):
    """An image: what it is and what it needs; memory in MB, disk in GB.

    What nothing here reads is passed on as it came.
    """

    VERSION = '1.8'

    fields = {
        'id': fields.StringField(nullable=True),
        'name': fields.StringField(nullable=True),
        'status': fields.StringField(nullable=True),
        'visibility': base.RawField(nullable=True),
        'protected': base.RawField(nullable=True),
        'checksum': fields.StringField(nullable=True),
        'owner': fields.StringField(nullable=True),
        'size': fields.IntegerField(nullable=True),
        'virtual_size': base.RawField(nullable=True),
        'container_format': fields.StringField(nullable=True),
        'disk_format': fields.StringField(nullable=True),
        'created_at': base.RawField(nullable=True),
        'updated_at': base.RawField(nullable=True),
        'tags': base.RawField(nullable=True),
        'direct_url': base.RawField(nullable=True),
        'min_ram': fields.IntegerField(nullable=True),
        'min_disk': fields.IntegerField(nullable=True),
        'properties': fields.ObjectField('ImageMetaProps', nullable=True),
    }
