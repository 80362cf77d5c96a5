# SPDX-License-Identifier: Apache-2.0
"""The tags of a server."""

from collections.abc import Iterable
from typing import Self

from oslo_versionedobjects import fields

from cellsched.objects import base


@base.Registry.register
class Tag(base.Object):
    """A tag; ``resource_id`` is the uuid of its server."""

    VERSION = '1.1'

    fields = {
        'resource_id': fields.StringField(),
        'tag': fields.StringField(),
    }


@base.Registry.register
class TagList(base.ObjectList):
    """Tags."""

    VERSION = '1.1'

    fields = {'objects': fields.ListOfObjectsField('Tag')}

    @classmethod
    def made(cls, uuid: str, tags: Iterable[str]) -> Self:
        """Return the tags of a server."""
        return cls(objects=[Tag(resource_id=uuid, tag=tag) for tag in tags])

    @property
    def names(self) -> list[str]:
        """The tags as texts."""
        return [each.tag for each in self.objects]
