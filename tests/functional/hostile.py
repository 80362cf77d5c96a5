# SPDX-License-Identifier: Apache-2.0
"""Requests of attackers."""

import json
import uuid

ID = str(uuid.UUID(int=0xabcdef))

#: What no terminal and no log should ever show as it is.
CRLF = 'a\r\nINFO root logged in'

#: Texts that are no uuid.
NO_IDS = ('x' * 10_000_000, ID.replace('a', '\u0430'), f'{ID}\0', CRLF,
          '\ud800')

COUNTS = (None, 0, -1, 2 ** 31, 2 ** 63, 10 ** 9, True, '1', 1.5, [1])

#: Wrong wishes, by the field that has to be named.
WISHES = {
    'hints': [{'hints': {name: ['x']}} for name in (
        '_nova_check_type', '__class__', '$__init__.__globals__',
        '_anything', 'unknown', 'query\0')] + [{'hints': 'x'}],
    'min_count': [{'min_count': count} for count in COUNTS],
    'max_count': [{'max_count': count} for count in COUNTS[1:]] + [
        {'min_count': 3, 'max_count': 2}],
    'name': [{'name': name} for name in (*NO_IDS[:1], *NO_IDS[2:], '', 5)],
    'flavor': [{'flavor': name} for name in (None, 5, CRLF, 'x' * 256)],
    'availability_zone': [
        {'availability_zone': name} for name in (5, '', CRLF, 'x' * 256)],
    'image_ref': [{'image_ref': name} for name in (5, '', CRLF)],
    'hints.query': [{'hints': {'query': values}} for values in (
        [], 'x', None, ['[' * 10_000 + ']' * 10_000],
        ['["and", "' + 'x' * 1_000_000 + '"]'])],
    'hints.different_host': [{'hints': {'different_host': values}} for values
                             in ([ID] * 100_000, [5], [CRLF], [None])],
    'hints.group': [{'hints': {'group': values}}
                    for values in ([ID] * 2, [CRLF], [''])],
}

#: What else a hint needs to be read at all.
BESIDE = {'cidr': {'build_near_host_ip': ['10.0.0.1']},
          'max_skew': {'spread': ['host']}}

QUERIES = (
    '[' * 5000 + ']' * 5000, '["not",' * 2000 + '1' + ']' * 2000, '[]', '{}',
    '5', 'x', '["xor", 1]', '[1, 2]', '[[], 1]', '["=", NaN, 1]',
    '["=", 1e400, 1]', '["=", "$free_ram_mb", null]',
    '["=", "$__class__", 1]', '["=", "$__init__.__globals__", 1]',
    '["=", "$_anything", 1]',
    json.dumps(['in', *['$host'] * 500]),
    json.dumps(['=', '$host', 'x' * 256]))

#: A query that only a filter can refuse, as it knows the kinds of columns.
ORDER = '["<", "$host", 5]'

#: Values that no hint has.
HINTS = [
    *(('query', [query]) for query in QUERIES), ('query', ['["and"]'] * 2),
    ('different_host', ['x']), ('same_host', ['%s%n', ID]),
    ('same_host', ['../']), ('build_near_host_ip', ["' OR 1=1 --"]),
    ('build_near_host_ip', ['10.0.0.1'] * 2), ('cidr', ['/99']),
    ('cidr', ['24']), ('spread', ['galaxy']), ('max_skew', ['0']),
    ('max_skew', ['9' * 200]), ('max_skew', ['\u0661'])]

#: Those that are too long for the API to take.
LONG_HINTS = [
    ('query', ['[' * 10_000 + ']' * 10_000]),
    ('query', ['["and", "' + 'x' * 1_000_000 + '"]']), ('query', 'notalist'),
    ('different_host', [str(uuid.UUID(int=number))
                        for number in range(100_000)]),
    *(('same_host', [text]) for text in NO_IDS)]

#: What is taken as it is said, and fits nowhere.
ODD = [
    {'availability_zone': zone} for zone in ('%', "' OR 1=1 --", '../')] + [
    {'hints': {'query': [json.dumps(['=', '$host_ip', "' OR 1=1 --"])]}},
    {'hints': {'query': [json.dumps(['=', '$host', '%s%n'])]}},
    {'hints': {'same_host': [ID]}}]

ODD_FIELDS = [
    ('availability_zone', CRLF), ('availability_zone', 'x' * 10_000_000),
    ('force_hosts', [CRLF]), ('force_hosts', ["' OR 1=1 --"]),
    ('force_nodes', ['x' * 10_000_000, *map(str, range(10_000))]),
    ('flavor.extra_specs', {'capabilities:mro': 'x'}),
    ('flavor.extra_specs', {'capabilities:' + 'a:' * 10_000: 'x'}),
    ('flavor.extra_specs', {'x': '<or> ' * 200})]

AMOUNTS = (-1, 2 ** 31, 2 ** 63, 10 ** 400, float('nan'), float('inf'), 'x',
           'x' * 1_000_000, [], {})


def _envelope(name, data):
    return {'nova_object.name': name, 'nova_object.namespace': 'nova',
            'nova_object.version': '1.0', 'nova_object.data': data}


def _image(**properties):
    return _envelope('ImageMeta', {
        'properties': _envelope('ImageMetaProps', properties)})


#: Wrong values, by the field of a request spec.
FIELDS = {
    **{f'flavor.{name}': AMOUNTS for name in (
        'vcpus', 'memory_mb', 'root_gb', 'ephemeral_gb', 'swap')},
    'num_instances': (0, -1, 2 ** 31, 2 ** 63, 'x', []),
    'flavor': (None, 5, [], {}, _envelope('Flavor', {})),
    'flavor.extra_specs': (
        5, [], {'x': None}, {'x': 'y' * 1025},
        {'capabilities:__class__': 'x'}, {'capabilities:_x': 'x'},
        {'capabilities:free_ram_mb': '>= NaN'}, {'trait:' + CRLF: 'required'},
        {'trait:CUSTOM_SSD': 'Required'},
        {f'aggregate_instance_extra_specs:k{number}': 'x'
         for number in range(10_000)}),
    'scheduler_hints': (
        5, 'x', [], {'_nova_check_type': ['rebuild']}, {'__class__': ['x']},
        {f'_{CRLF}': ['x']}, {'_' + 'x' * 1_000_000: ['x']},
        {'query': None}, {'query': [None]}, {'query': [['=', 1, 1]]},
        {f'hint{number}': ['x'] for number in range(1001)}),
    'instance_uuid': NO_IDS,
    'project_id': ([], {}),
    'availability_zone': ([], {}),
    'ignore_hosts': ('a1', 5, [None], [[]], ['x'] * 100_001),
    'force_hosts': ('a1', 5, [None], ['x'] * 100_001),
    'force_nodes': ('a1', 5, [None], ['x'] * 100_001),
    'retry': (5, [], {}, _envelope('SchedulerLimits', {})),
    'limits': (5, _envelope('SchedulerRetries', {})),
    'requested_destination': (
        5, [], {}, _envelope('Destination', {
            'cell': _envelope('CellMapping', {})}),
        _envelope('Destination', {'aggregates': ['x'] * 100_001})),
    'image': (
        5, [], {}, _envelope('ImageMeta', {
            'properties': _envelope('ImageMetaProps', {
                f'p{number}': 'x' for number in range(1001)})}),
        *map(lambda said: _image(traits_required=said),
             (5, 'GPU', [5], [[]])),
        *map(lambda said: _image(hw_architecture=said),
             (5, ['x'], CRLF, 'x' * 1_000_000))),
}

#: Wrong values, by the field of a server group.
GROUP = {
    'policy': ('x', CRLF, 'x' * 1_000_000),
    'members': (5, ID, [None], *([text] for text in NO_IDS),
                [ID] * 100_001),
    'hosts': (5, 'a1', ['a1'] * 100_001),
    '_rules': ([], {'max_server_per_host': '0'},
               {'max_server_per_host': '9' * 1_000_000},
               {'spread': CRLF}, {'max_skew': 'NaN'}),
}

#: What are no instances.
UUIDS = ([], 5, 'x', {}, [None], [5], ['x'], [[]], [ID] * 2, [ID.upper()],
         [f'{ID}\n'], *([text] for text in NO_IDS),
         [str(uuid.UUID(int=number)) for number in range(100_000)])
