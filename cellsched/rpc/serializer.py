# SPDX-License-Identifier: Apache-2.0
"""Serialization of objects and contexts for messages."""

from typing import Any

import oslo_messaging

from cellsched import context as request_context
from cellsched.objects import base

_NAME = f'{base.Object.OBJ_SERIAL_NAMESPACE}.name'

#: Object classes by name.
_KNOWN = base.Registry.obj_classes()


class Serializer(oslo_messaging.Serializer):
    """Converts objects to envelopes and back, at any depth.

    An object of an unknown class stays as it came, so that it can be passed
    on. The target cell of a context is not sent.
    """

    def serialize_entity(self, ctxt: Any, entity: Any) -> Any:
        return entity if type(entity) in base.PLAIN else _written(entity)

    def deserialize_entity(self, ctxt: Any, entity: Any) -> Any:
        return entity if type(entity) in base.PLAIN else _read(entity)

    def serialize_context(
        self, ctxt: request_context.RequestContext
    ) -> dict[str, Any]:
        return ctxt.to_dict()

    def deserialize_context(
        self, ctxt: dict[str, Any]
    ) -> request_context.RequestContext:
        # The server calls this in the working thread. From here on, the log
        # messages of that thread belong to this request.
        return request_context.RequestContext.from_dict(ctxt, overwrite=True)


def _written(entity: Any) -> Any:
    if isinstance(entity, base.Object):
        return entity.obj_to_primitive()
    if isinstance(entity, dict):
        return {key: value if type(value) in base.PLAIN else _written(value)
                for key, value in entity.items()}
    if isinstance(entity, (list, tuple, set, frozenset)):
        return [value if type(value) in base.PLAIN else _written(value)
                for value in entity]
    return entity


def _read(entity: Any) -> Any:
    if isinstance(entity, list):
        return [value if type(value) in base.PLAIN else _read(value)
                for value in entity]
    if not isinstance(entity, dict):
        return entity
    if _NAME not in entity:
        return {key: value if type(value) in base.PLAIN else _read(value)
                for key, value in entity.items()}
    if entity[_NAME] in _KNOWN:
        return base.Object.obj_from_primitive(entity)
    return entity
