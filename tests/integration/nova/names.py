# SPDX-License-Identifier: Apache-2.0
"""The names by which requests of Nova's may say where servers go, as JSON.

This is run by the python of Nova's environment, and nothing else here imports
it. What it prints is kept in ``tests/unit/scheduler/nova_names.json``::

    ~/.cache/cellsched/nova-34/bin/python tests/integration/nova/names.py

Extra specs are those of Nova's validators, and those that its code reads and
the validators do not know. ``{…}`` in a name stands for a part that is open.
"""

import ast
from importlib import metadata
import json
import pathlib
import re

import nova
from nova.api.validation.extra_specs import validators
from nova import objects

#: What reads an extra spec and the image property of the same key.
READERS = ('_get_flavor_image_meta', '_get_unique_flavor_image_meta')

#: Extra specs where Nova's code spells them out; their prefixes are none.
SPELT = re.compile(r'(accel|hw|hw_rng|hw_video|pci_passthrough|quota|'
                   r'vmware):[a-z0-9_]*[a-z0-9]')

#: Objects whose fields are parts of a request, by its field.
PARTS = {'flavor': 'Flavor', 'image': 'ImageMeta',
         'request_level_params': 'RequestLevelParams',
         'requested_destination': 'Destination', 'retry': 'SchedulerRetries'}


def main():
    objects.register_all()
    known = {*validated()}
    numbered = {name.partition('.')[0] for name in known if '.' in name}
    print(json.dumps({
        'nova': metadata.version('nova'),
        'extra_specs': sorted(known | {*read()} - numbered),
        'image_properties': sorted(objects.ImageMetaProps.fields),
        'request_fields': sorted(fields())}, indent=1))


def validated():
    """Yield the names that have a validator; one stands for all traits."""
    validators.load_validators()
    for name in validators.VALIDATORS:
        yield re.sub(r'^(trait\{group\}:|resources\{group\}:).*',
                     r'\1{name}', name)


def read():
    """Yield the names that Nova's code reads of flavors."""
    for path in pathlib.Path(nova.__file__).parent.rglob('*.py'):
        if 'tests' in path.parts or 'extra_specs' in path.parts:
            continue
        text = path.read_text()
        if 'extra_specs' in text:
            for node in ast.walk(ast.parse(text)):
                yield from read_at(node)


def read_at(node):
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        if SPELT.fullmatch(node.value):
            yield node.value
    elif isinstance(node, ast.Call) and (
            getattr(node.func, 'id', None) in READERS
            and isinstance(node.args[0], ast.Constant)):
        scope = next((each.value.value for each in node.keywords
                      if each.arg == 'prefix'), 'hw')
        yield f'{scope}:{node.args[0].value}'


def fields():
    """Yield the fields of requests, and of the objects in them."""
    for name in objects.RequestSpec.fields:
        if name in PARTS:
            for part in getattr(objects, PARTS[name]).fields:
                yield f'{name}.{part}'
        else:
            yield name


if __name__ == '__main__':
    main()
