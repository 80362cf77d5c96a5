# SPDX-License-Identifier: Apache-2.0
"""The files of hosts and of a request that both sides read."""

import json
import math

NUMBER = (int, float)
NONE = type(None)

HOSTS = {'now': NUMBER, 'hosts': list, 'aggregates': list}

HOST = {
    'host': str,
    'nodename': str,
    'uuid': str,
    'cell_uuid': str,
    'vcpus_total': NUMBER,
    'vcpus_used': NUMBER,
    'cpu_allocation_ratio': NUMBER,
    'total_usable_ram_mb': NUMBER,
    'free_ram_mb': NUMBER,
    'ram_allocation_ratio': NUMBER,
    'total_usable_disk_gb': NUMBER,
    'free_disk_mb': NUMBER,
    'disk_mb_used': NUMBER,
    'disk_allocation_ratio': NUMBER,
    'num_instances': int,
    'num_io_ops': int,
    'failed_builds': int,
    'hypervisor_type': (str, NONE),
    'hypervisor_version': (int, NONE),
    'cpu_info': (str, NONE),
    'supported_instances': list,
    'stats': dict,
    'disabled': bool,
    'forced_down': bool,
    'last_seen_up': (*NUMBER, NONE),
    'aggregates': list,
    'instances': list,
}

AGGREGATE = {'id': int, 'uuid': str, 'name': str, 'metadata': dict}

REQUEST = {
    'project_id': str,
    'user_id': str,
    'flavor': dict,
    'image': (dict, NONE),
    'availability_zone': (str, NONE),
    'scheduler_hints': dict,
    'instance_group': (dict, NONE),
    'instance_uuid': str,
    'ignore_hosts': list,
    'num_instances': int,
}

FLAVOR = {
    'name': str,
    'vcpus': int,
    'memory_mb': int,
    'root_gb': int,
    'ephemeral_gb': int,
    'swap': int,
    'extra_specs': dict,
}

IMAGE = {'id': str, 'properties': dict}

GROUP = {'uuid': str, 'policy': str, 'members': list, 'hosts': list,
         'rules': dict}


def load_hosts(path):
    """Return the hosts in a file.

    :raises ValueError: the file is invalid; the text has the file, the field
        and the expected value
    """
    contents = load(path, HOSTS)
    for number, aggregate in enumerate(contents['aggregates']):
        check(aggregate, AGGREGATE, f'{path}: aggregates[{number}]')
    ids = {aggregate['id'] for aggregate in contents['aggregates']}
    names = set()
    for number, host in enumerate(contents['hosts']):
        where = f'{path}: hosts[{number}]'
        check(host, HOST, where)
        if host['host'] in names:
            raise ValueError(f'{where}: host: duplicate name {host["host"]}')
        names.add(host['host'])
        for aggregate in host['aggregates']:
            if aggregate not in ids:
                raise ValueError(
                    f'{where}: aggregates: unknown id {aggregate!r}')
    return contents


def load_request(path):
    """Return the request in a file.

    :raises ValueError: the file is invalid; the text has the file, the field
        and the expected value
    """
    contents = load(path, REQUEST)
    check(contents['flavor'], FLAVOR, f'{path}: flavor')
    if contents['image'] is not None:
        check(contents['image'], IMAGE, f'{path}: image')
    if contents['instance_group'] is not None:
        check(contents['instance_group'], GROUP, f'{path}: instance_group')
    for name, values in contents['scheduler_hints'].items():
        if not isinstance(values, list):
            raise ValueError(
                f'{path}: scheduler_hints: {name}: expected a list')
    return contents


def load(path, fields):
    try:
        with open(path, encoding='utf-8') as file:
            contents = json.load(file)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as exc:
        raise ValueError(f'{path}: expected JSON: {exc}') from exc
    check(contents, fields, path)
    return contents


def check(values, fields, where):
    if not isinstance(values, dict):
        raise ValueError(f'{where}: expected an object')
    for name, kinds in fields.items():
        if name not in values:
            raise ValueError(f'{where}: {name}: missing')
        kinds = kinds if isinstance(kinds, tuple) else (kinds,)
        value = values[name]
        if not isinstance(value, kinds) or (
                isinstance(value, bool) and bool not in kinds) or (
                isinstance(value, float) and not math.isfinite(value)):
            expected = ' or '.join(
                'null' if kind is NONE else kind.__name__ for kind in kinds)
            raise ValueError(f'{where}: {name}: expected {expected}')
