# SPDX-License-Identifier: Apache-2.0
"""Print the names of requirements in Nova's requests, as JSON.

The python of Nova's environment runs this script. Its output is stored in
``tests/unit/scheduler/nova_names.json``::

    ~/.cache/cellsched/nova-34/bin/python tests/integration/nova/names.py

The extra specs come from Nova's validators and from Nova's code. ``{…}`` in a
name stands for a variable part.
"""

import ast
from importlib import metadata
import json
import pathlib
import re

import nova
from nova.api.validation.extra_specs import validators
from nova import objects

#: Functions that read an extra spec and the image property of the same key.
READERS = ('_get_flavor_image_meta', '_get_unique_flavor_image_meta')

#: Complete names of extra specs in Nova's code.
SPELT = re.compile(r'(accel|hw|hw_rng|hw_video|pci_passthrough|quota|'
                   r'vmware):[a-z0-9_]*[a-z0-9]')

#: Objects with fields of a request, by the field of the request.
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
    """Yield the names with a validator; one name stands for all traits."""
    validators.load_validators()
    for name in validators.VALIDATORS:
        yield re.sub(r'^(trait\{group\}:|resources\{group\}:).*',
                     r'\1{name}', name)


def read():
    """Yield the names that Nova's code reads from flavors."""
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
