#!/usr/bin/env bash
# Aliases of one name in [pci] alias are alternatives. Their device_type is
# optional, as Nova's schema says, and one alias without it works. Two aliases
# of one name without it are refused with an error that names neither the alias
# nor a problem. The API and the compute agents call the same function at their
# start.
#
# Guess, logged before the run: two aliases of one name without device_type are
# alternatives that match devices of any type.
# Seen: nova 34.0.0: get_alias_from_config() raises PciInvalidAlias with the
# text "Invalid PCI alias definition: 'dev_type'". With device_type in both,
# they are alternatives. With it in the second alone, the text is the same.
#
# Needs python3 of 3.11 or later with venv.
set -eu

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip --quiet --disable-pip-version-check install --no-compile \
    nova==34.0.0
OS_NOVA_DISABLE_EVENTLET_PATCHING=true venv/bin/python -W ignore - <<'PYTHON'
import importlib.metadata
import json
import sys

import nova.conf
from nova import exception
from nova import objects
from nova.pci import request

objects.register_all()
print('nova', importlib.metadata.version('nova'))


def read(*products):
    nova.conf.CONF.set_override('alias', [json.dumps({
        'name': 'gpu', 'vendor_id': '10de', **product})
        for product in products], 'pci')
    request.get_alias_from_config.cache_clear()
    try:
        _, specs = request.get_alias_from_config()['gpu']
    except exception.PciInvalidAlias as error:
        print(products, 'raise', error)
        return str(error)
    print(products, 'are', len(specs), 'alternatives')
    return len(specs)


first, second = {'product_id': '1db4'}, {'product_id': '1db5'}
typed = {'device_type': 'type-PCI'}
error = "Invalid PCI alias definition: 'dev_type'"
seen = [read(first), read(first, second), read(first, {**second, **typed}),
        read({**first, **typed}, {**second, **typed})]
if seen != [1, error, error, 2]:
    sys.exit('This differs from what the comment says.')
PYTHON
