# SPDX-License-Identifier: Apache-2.0
"""Child providers of a compute node, as stored in its row in the cell.

The row has a JSON list of them, sorted by name, or NULL if there are none.
Their inventories are in the claim store, under their uuids.
"""

from collections.abc import Iterable
import json
from typing import NamedTuple
from uuid import UUID
from uuid import uuid5


class Child(NamedTuple):
    """A provider below a compute node, such as a GPU or a NUMA node.

    :param name: unique in the node
    :param parent: uuid of its parent provider, None directly below the node
    :param traits: names of traits
    """

    uuid: str
    name: str
    parent: str | None = None
    traits: frozenset[str] = frozenset()


def uuid_of(node: str, name: str) -> str:
    """Return the uuid of a child, derived from the node's and its name.

    :param node: uuid of the node
    """
    return str(uuid5(UUID(node), name))


def dump(children: Iterable[Child]) -> str | None:
    """Return the JSON text of a node's children, None without any."""
    records = [{'uuid': child.uuid, 'name': child.name,
                'parent': child.parent, 'traits': sorted(child.traits)}
               for child in sorted(children, key=lambda child: child.name)]
    return json.dumps(records) if records else None


def load(text: str | None) -> list[Child]:
    """Return the children in a JSON text, by name.

    Another program may have written the text: an entry without a uuid and a
    name is skipped, and a text that is no list has no children.
    """
    try:
        records = json.loads(text) if text else ()
    except (RecursionError, ValueError):
        records = ()
    children = []
    for each in records if isinstance(records, list) else ():
        if (isinstance(each, dict) and isinstance(each.get('uuid'), str)
                and isinstance(each.get('name'), str)):
            parent, traits = each.get('parent'), each.get('traits')
            children.append(Child(
                each['uuid'], each['name'],
                parent if isinstance(parent, str) else None,
                frozenset(map(str, traits)) if isinstance(traits, list)
                else frozenset()))
    return children
