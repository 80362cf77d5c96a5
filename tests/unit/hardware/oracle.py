# SPDX-License-Identifier: Apache-2.0
"""A second, plain implementation of Nova's rules for cells and devices.

It is written from the rules, not from the product. Cases are ``generated``.
"""

import collections
import itertools


class Misfit(Exception):
    """A rule is not met."""


def need(condition):
    """Raise an error if a rule is not met."""
    if not condition:
        raise Misfit


def guest_cells(case):
    """Return the guest cells that a flavor asks for."""
    specs = case['flavor']['extra_specs']
    isolates = specs.get('hw:emulator_threads_policy') == 'isolate'
    return [{
        'cpus': set(cpus).difference(case['dedicated']),
        'pcpus': set(cpus).intersection(case['dedicated']),
        'memory_mb': memory_mb, 'policy': specs.get('hw:cpu_policy'),
        'threads': specs.get('hw:cpu_thread_policy'),
        'size': specs.get('hw:mem_page_size'),
        'extra': isolates and number == 0,
    } for number, (cpus, memory_mb) in enumerate(case['cells'])]


def place(case, host, pools):
    """Return the placed cells, and cells and pools after it; None if none."""
    cells = guest_cells(case)
    for chosen in itertools.permutations(
            ordered(case, cells, host, pools), len(cells)):
        nodes, remaining = [cell['id'] for cell in chosen], pools
        try:
            placed = [place_cell(cell, wanted, case['ratios'])
                      for cell, wanted in zip(chosen, cells)]
            # A filter of its own refuses a host without a list of devices.
            if case['pci'] and pools is not None:
                remaining = take(case, pools, nodes, host)
            check_networks(case['network'], nodes, host)
        except Misfit:
            continue
        after = {cell['id']: use(cell, wanted, *each) for cell, wanted, each
                 in zip(chosen, cells, placed)}
        return ([(node, *each) for node, each in zip(nodes, placed)],
                [after.get(cell['id'], cell) for cell in host], remaining)
    return None


def ordered(case, cells, host, pools):
    """Return the host's cells in the order of trials."""
    if len(cells) == len(host):
        return host
    pack = case['conf']['pack']
    tried = sorted(host, key=lambda cell: (
        cell['memory_mb'] - cell['memory_usage']), reverse=not pack)
    if cells[0]['policy'] in ('dedicated', 'mixed'):
        tried.sort(key=lambda cell: len(free_pcpus(cell)), reverse=not pack)
    else:
        tried.sort(key=lambda cell: cell['cpu_usage'], reverse=pack)
    if pools is not None:
        tried.sort(key=lambda cell: devices(
            pool for pool in pools if pool['numa_node'] == cell['id']),
            reverse=bool(case['pci']))
    return tried


def free_pcpus(cell):
    """Return the dedicated CPUs that no server uses."""
    return set(cell['pcpus']) - set(cell['pinned'])


def place_cell(cell, wanted, ratios):
    """Return page size, pinned CPUs, and the CPUs of the emulator."""
    pinned = wanted['policy'] in ('dedicated', 'mixed')
    size = page_size(cell, wanted, pinned)
    count, cpus = len(wanted['pcpus']), len(wanted['cpus'])
    pins, reserved = [], []
    if pinned:
        need(count + wanted['extra'] <= len(free_pcpus(cell)))
        pins, reserved = pack_cpus(
            cell, count, wanted['threads'], wanted['extra'])
    if wanted['policy'] != 'dedicated':
        need(cpus <= len(cell['cpus']))
        need(cell['cpu_usage'] + cpus <= len(cell['cpus']) * ratios[0])
        need(cell['memory_usage'] + wanted['memory_mb']
             <= cell['memory_mb'] * ratios[1])
    return size, pins, reserved


def page_size(cell, wanted, pinned):
    """Return the size of the pages in KiB, None if none is asked for."""
    memory_mb, asked = wanted['memory_mb'], wanted['size']
    total = {size: number for size, number, _, _ in cell['pages']}
    free = {size: number - used - reserved
            for size, number, used, reserved in cell['pages']}

    def fits(size, pages):
        kib = memory_mb * 1024
        return kib <= pages.get(size, -1) * size and kib % size == 0

    if asked:
        sizes = sorted(total, reverse=True)
        known = {'small': sizes[-1:], 'large': sizes[:-1], 'any': sizes}
        tried = known[asked] if asked in known else [int(asked)]
        fitting = [size for size in tried if fits(size, free)]
        need(fitting)
        return fitting[0]
    if total:
        need(fits(min(total), free if pinned else total))
    else:
        used_mb = cell['memory_usage'] if pinned else 0
        need(memory_mb <= cell['memory_mb'] - used_mb)
    return None


def pack_cpus(cell, count, policy, extra):
    """Return the pinned CPUs, and those of the emulator."""
    threads = max(map(len, cell['siblings']), default=0)
    need(threads)
    cores = [sorted(free_pcpus(cell).intersection(core))
             for core in cell['siblings']]
    if policy == 'isolate':
        whole = [core for core in cores if len(core) == threads]
        need(len(whole) >= max(1, count))
        need(threads == 1 or set(cell['cpus']) == set(cell['pcpus']))
        pins = [core[0] for core in whole][:count]
        cores = [core for core in cores if not set(core).intersection(pins)]
    else:
        need(policy != 'require' or threads > 1)
        ways = [[core[:each] for core in cores if len(core) >= each]
                for each in range(threads, policy == 'require', -1)]
        if policy != 'require':
            ways.append(cores)
        fitting = [way for way in ways if way and sum(map(len, way)) >= count]
        need(fitting)
        pins = list(itertools.chain(*fitting[0]))[:count]
    spare = [cpu for core in cores for cpu in core if cpu not in pins]
    need(len(spare) >= extra)
    # A cell without dedicated vCPUs has neither isolation nor an emulator.
    need(pins or not extra and policy != 'isolate')
    return pins, spare[:extra]


def use(cell, wanted, size, pins, reserved):
    """Return a host cell after a guest cell took its part."""
    taken = {*pins, *reserved}
    if wanted['threads'] == 'isolate':
        taken.update(*(core for core in cell['siblings']
                       if taken.intersection(core)))
    size = size or min((each[0] for each in cell['pages']), default=None)
    pages = [[each, total, used + (each == size) * (
              wanted['memory_mb'] * 1024 // each), reserved]
             for each, total, used, reserved in cell['pages']]
    return {**cell, 'cpu_usage': cell['cpu_usage'] + len(wanted['cpus']),
            'memory_usage': cell['memory_usage'] + wanted['memory_mb'],
            'pinned': sorted(taken.union(cell['pinned'])), 'pages': pages}


def take(case, pools, nodes, host):
    """Return the pools after all requests; nodes is None without topology."""
    pools = sorted(({**pool} for pool in pools), key=len)
    for request in case['pci']:
        specs = request['spec']
        providers = mapped(request, case['candidates'][0])
        found = [pool for pool in pools
                 if any(matches(pool, spec) for spec in specs)]
        if nodes is not None:
            found = near(found, request, nodes, host)
        kinds = {spec.get('dev_type') for spec in specs}
        found = [each for each in found if each['dev_type'] in kinds
                 or each['dev_type'] not in ('type-PF', 'vdpa')]
        if not any(map(is_remote, specs)):
            found = [each for each in found if not is_remote(each)]
        if providers:
            found = [each for each in found if each.get('rp_uuid') in providers
                     and each['count'] >= providers[each['rp_uuid']]]
        count = request['count']
        need(devices(found) >= count)
        known = [each['rp_uuid'] for each in pools if 'rp_uuid' in each]
        need(not providers or len(known) == len(set(known)))
        for pool in found:
            taken = (providers[pool['rp_uuid']] if providers
                     else min(count, pool['count']))
            pool['count'] -= taken
            count -= taken
        pools = [pool for pool in pools if pool['count']]
    return pools


def mapped(request, mappings):
    """Return the number of devices by resource provider."""
    if request['alias'] is None:
        return {}
    listed = request['spec'][0].get('rp_uuids')
    return collections.Counter(itertools.chain(*(
        providers for key, providers in mappings.items()
        if key.startswith(request['request_id']))) if mappings
        else listed.split(',') if listed else ())


def devices(pools):
    """Return the number of devices of some pools."""
    return sum(pool['count'] for pool in pools)


def is_remote(values):
    """Return whether a pool or a specification is of remote devices."""
    return str(values.get('remote_managed')).lower() == 'true'


def matches(pool, spec):
    """Return whether a pool has all values of a device specification."""
    return all(str(pool.get(key)).lower() == str(value).lower()
               for key, value in spec.items()
               if key not in ('resource_class', 'traits', 'rp_uuids'))


def near(found, request, nodes, host):
    """Return the pools that the affinity of a request accepts, in order."""
    policy = request['numa_policy'] or 'legacy'
    inside = [pool for pool in found if pool['numa_node'] in nodes]
    if policy == 'required' or devices(inside) >= request['count']:
        return inside
    if policy == 'socket':
        need(all(cell['socket'] is not None for cell in host))
        sockets = {cell['socket'] for cell in host if cell['id'] in nodes}
        near_by = [cell['id'] for cell in host if cell['socket'] in sockets]
        return [pool for pool in found if pool['numa_node'] in near_by]
    inside = [pool for pool in found if pool['numa_node'] in (*nodes, None)]
    if policy == 'legacy' or devices(inside) >= request['count']:
        return inside
    return sorted(found, key=lambda pool: pool not in inside)


def check_networks(network, nodes, host):
    """Raise an error if no chosen cell is near to an asked network."""
    near_by = [{cell['id'] for cell in host if name in cell['physnets']}
               for name in network['physnets']]
    if network['tunneled']:
        near_by.append({cell['id'] for cell in host if cell['tunneled']})
    need(all(not each or each & set(nodes) for each in near_by))
