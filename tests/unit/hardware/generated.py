# SPDX-License-Identifier: Apache-2.0
"""Random hosts, servers and devices, in the form of ``cases``.

All keys of a host's cell, a pool and a request for devices are present. Two
more keys describe the guest cells: ``cells`` has the vCPUs and the memory of
each, and ``dedicated`` has the dedicated vCPUs. The module needs no other of
this project, so that tests in Nova's environment can load it.
"""

import random

PAGE_SIZES = 4, 2048, 1048576

PHYSNETS = 'red', 'blue'


def case(seed):
    """Return the random case of a seed."""
    chance = random.Random(seed)
    host = _host(chance)
    pools = _pools(chance, host)
    requests = _requests(chance, pools or ())
    return {
        'name': f'seed {seed}', 'host': host, 'pools': pools, 'pci': requests,
        'candidates': [_mappings(chance, requests, pools or ())],
        'network': {
            'physnets': [each for each in PHYSNETS if _rarely(chance)],
            'tunneled': _rarely(chance)},
        'ratios': [chance.choice([1.0, 1.0, 1.5, 4.0, 16.0]),
                   chance.choice([1.0, 1.0, 1.5])],
        'conf': {'pack': _rarely(chance)}, **_server(chance, host)}


def _rarely(chance):
    return chance.random() < 0.2


def _host(chance):
    count = chance.choice([1, 1, 2, 2, 2, 3, 3, 4, 4, 5, 6, 8])
    equal, step = chance.random() < 0.4, chance.choice([1, 1, 1, 2])
    shape, sockets = _shape(chance), chance.choice([1, 2, 2, 3, 4])
    has_sockets, has_networks = chance.random() < 0.8, _rarely(chance)
    cells, first = [], 0
    for number in range(count):
        if not equal:
            shape = {**shape, 'cores': chance.randint(1, 8),
                     'memory_mb': 512 * chance.randint(1, 24)}
        cell = _cell(chance, first, shape)
        first = 1 + max(map(max, cell['siblings']))
        cells.append({
            'id': number * step, **cell,
            'socket': number * sockets // count if has_sockets else None,
            'physnets': [each for each in PHYSNETS
                         if has_networks and chance.random() < 0.5],
            'tunneled': has_networks and chance.random() < 0.5})
    if has_sockets and chance.random() < 0.1:
        chance.choice(cells)['socket'] = None
    return cells


def _shape(chance):
    """Return the facts that the cells of a host have in common."""
    return {
        'threads': chance.choice([1, 2, 2, 2, 4]), 'hybrid': _rarely(chance),
        'cores': chance.randint(2, 8), 'adjacent': chance.random() < 0.5,
        'memory_mb': 512 * chance.randint(2, 24),
        'use': chance.choice([0, 0.5, 1]), 'cpus': chance.choice([
            'all', 'all', 'shared', 'dedicated', 'dedicated', 'cores',
            'threads']),
        'pages': chance.choice([(), (4,), (4, 2048), (4, 2048), PAGE_SIZES,
                                PAGE_SIZES, (2048, 1048576)])}


def _cell(chance, first, shape):
    cores, threads = shape['cores'], shape['threads']
    siblings = [[first + (core * threads + thread if shape['adjacent']
                          else core + thread * cores)
                 for thread in range(threads)] for core in range(cores)]
    if shape['hybrid']:
        # The second half of the cores has one thread each.
        siblings = [each if number <= cores // 2 else each[:1]
                    for number, each in enumerate(siblings)]
    every = [cpu for core in siblings for cpu in core]
    cpus, pcpus = {
        'all': (every, every), 'shared': (every, []), 'dedicated': ([], every),
        'cores': ([cpu for core in siblings[::2] for cpu in core],
                  [cpu for core in siblings[1::2] for cpu in core]),
        'threads': (every[::2], every[1::2])}[shape['cpus']]
    use, memory_mb = shape['use'] * chance.random(), shape['memory_mb']
    used_mb = int(memory_mb * use)
    return {
        'cpus': cpus, 'pcpus': pcpus, 'siblings': siblings,
        'memory_mb': memory_mb, 'memory_usage': used_mb - used_mb % 64,
        'cpu_usage': int(len(cpus) * use * chance.choice([1, 2])),
        'pinned': [cpu for cpu in pcpus if chance.random() < use],
        'pages': _pages(chance, shape['pages'], memory_mb * 1024, use)}


def _pages(chance, sizes, memory_kb, use):
    pages = []
    for size in sorted(sizes, reverse=True):
        total = memory_kb // size
        if size != min(sizes):
            total = chance.randint(0, total)
        memory_kb -= total * size
        pages.append([size, total, int(total * use * chance.random()),
                      chance.choice([0, 0, 0, total // 8, 1])])
    if chance.random() < 0.8:
        pages.reverse()
    return pages


def _server(chance, host):
    count = min(chance.choice([1, 1, 1, 2, 2, 2, 3, 4]),
                len(host) + (chance.random() < 0.05))
    policy = chance.choice(
        ['dedicated', 'dedicated', 'mixed', 'mixed'] * any(
            cell['pcpus'] for cell in host)
        + [None, 'shared', 'mixed'] * any(cell['cpus'] for cell in host))
    # Most servers ask for pages that some cell has.
    size = chance.choice([
        None, None, None, 'any', 'small', 'large', '16384',
        *(str(each[0]) for each in host[0]['pages'])])
    most = max(1, max(len(cell['siblings']) for cell in host))
    memory_mb = chance.choice([64, 128, 256, 512, 1024])
    cells = _guest_cells(chance, count, most, memory_mb)
    specs = {'hw:numa_nodes': str(count)}
    every = sorted(cpu for cpus, _ in cells for cpu in cpus)
    dedicated = every if policy == 'dedicated' else []
    if policy == 'mixed' and len(every) < 2:
        policy = None
    if policy:
        specs['hw:cpu_policy'] = policy
    if policy == 'mixed':
        dedicated = sorted(chance.sample(
            every, chance.randint(1, len(every) - 1)))
        specs['hw:cpu_dedicated_mask'] = _listed(dedicated)
    if policy in ('dedicated', 'mixed'):
        threads = chance.choice([None, None, None, 'prefer', 'isolate',
                                 'require'])
        emulator = chance.choice([None, None, None, 'share', 'isolate'])
        if threads:
            specs['hw:cpu_thread_policy'] = threads
        if emulator:
            specs['hw:emulator_threads_policy'] = emulator
    if size:
        specs['hw:mem_page_size'] = size
    if len({(len(cpus), memory) for cpus, memory in cells}) > 1 or [
            cpu for cpus, _ in cells for cpu in cpus] != every:
        for number, (cpus, memory) in enumerate(cells):
            specs[f'hw:numa_cpus.{number}'] = _listed(cpus)
            specs[f'hw:numa_mem.{number}'] = str(memory)
    return {'cells': cells, 'dedicated': dedicated, 'flavor': {
        'vcpus': len(every), 'memory_mb': sum(each for _, each in cells),
        'extra_specs': specs}}


def _guest_cells(chance, count, most, memory_mb):
    """Return the vCPUs and the memory of each guest cell."""
    if chance.random() < 0.5:
        each = chance.randint(1, most)
        return [(list(range(number * each, (number + 1) * each)), memory_mb)
                for number in range(count)]
    numbers = list(range(chance.randint(count, count * most)))
    if _rarely(chance):
        chance.shuffle(numbers)
    cuts = [0, *sorted(chance.sample(range(1, len(numbers)), count - 1)),
            len(numbers)]
    return [(sorted(numbers[start:end]), memory_mb * chance.randint(1, 3))
            for start, end in zip(cuts, cuts[1:])]


def _listed(numbers):
    return ','.join(map(str, numbers))


def _pools(chance, host):
    if _rarely(chance):
        return None
    nodes = [None, *(cell['id'] for cell in host)]
    return [_pool(chance, number, chance.choice(nodes))
            for number in range(chance.choice([0, 1, 2, 3, 4, 6]))]


def _pool(chance, number, node):
    tags = {
        'physical_network': chance.choice(PHYSNETS),
        'remote_managed': chance.choice(['false', 'true', 'True']),
        'live_migratable': chance.choice(['true', 'false']),
        'rp_uuid': f'rp-{number if chance.random() < 0.9 else 0}'}
    return {'vendor_id': chance.choice(['8086', '8086', '15b3']),
            'product_id': chance.choice(['154c', '154c', '1572']),
            'numa_node': node, 'count': chance.randint(1, 8),
            'dev_type': chance.choice(
                ['type-VF'] * 4 + ['type-PCI', 'type-PF', 'vdpa']),
            **{key: tags[key] for key in tags if _rarely(chance)}}


def _requests(chance, pools):
    if chance.random() < (0.5 if pools else 0.95):
        return []
    pools = pools or [{'vendor_id': '8086', 'product_id': '154c'}]
    return [{
        'count': chance.choice([1, 1, 1, 1, 2, 3]),
        'spec': [_spec(chance, chance.choice(pools))
                 for _ in range(chance.choice([1, 1, 1, 2]))],
        'alias': chance.choice(['device', 'device', None]),
        'request_id': f'00000000-0000-4000-8000-00000000000{number}',
        'numa_policy': chance.choice(
            [None, 'legacy', 'preferred', 'required', 'socket', 'socket']),
    } for number in range(chance.choice([1, 1, 2, 3]))]


def _spec(chance, pool):
    spec = {key: pool[key] for key in ('vendor_id', 'product_id')
            if chance.random() < 0.7}
    for key in 'dev_type', 'physical_network', 'remote_managed':
        if key in pool and chance.random() < 0.4:
            spec[key] = pool[key]
    if _rarely(chance):
        spec['vendor_id'] = pool['vendor_id'].upper()
    if chance.random() < 0.05:
        spec['live_migratable'] = chance.choice(['true', 'false'])
    if chance.random() < 0.1:
        spec['resource_class'] = 'CUSTOM_DEVICE'
    if chance.random() < 0.05:
        spec['physical_network'] = None
    return spec


def _mappings(chance, requests, pools):
    """Return the resource providers of a candidate by request; maybe none."""
    providers = [pool['rp_uuid'] for pool in pools if 'rp_uuid' in pool]
    if not providers or chance.random() < 0.6:
        return {}
    return {f'{each["request_id"]}-{number}': [chance.choice(providers)]
            for each in requests for number in range(each['count'])}
