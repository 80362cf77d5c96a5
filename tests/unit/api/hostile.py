# SPDX-License-Identifier: Apache-2.0
"""What users may send who mean no good."""

#: What is no name, for one reason or another.
NAMES = (
    None, 5, True, b'web', ['web'], {}, object(), '', ' ', '\t', 'a\nb',
    'a\r\nInjected: yes', 'a\0b', '\x1b[2J', 'a\u2028b', 'a\u202eb', '\ud800',
    'x' * 256, 'x' * 10_000_000)

#: What is no number of servers.
COUNTS = (
    None, 0, -1, 1001, 2 ** 31, 2 ** 63, -2 ** 63, 10 ** 5000, True, False,
    '1', 1.0, float('nan'), [1], 'x' * 10_000_000)

#: What may be in a list of hosts to be away from, and is not.
HINTS = (
    {'_nova_check_type': ['rebuild']}, {'_': ['x']}, {'__class__': ['x']},
    {'$__init__.__globals__': ['x']}, {'unknown': ['x']},
    {'different_host\n': ['x']}, {'DIFFERENT_HOST': ['x']}, {None: ['x']},
    {5: ['x']}, {'x' * 10_000_000: ['x']}, {'different_host': []},
    {'different_host': 'x'}, {'different_host': None},
    {'different_host': {'x': 1}}, {'different_host': ['x'] * 101},
    {'different_host': ['x'] * 100_000}, {'different_host': [5]},
    {'different_host': [None]}, {'different_host': [['x']]},
    {'different_host': ['a\0b']}, {'different_host': ['a\r\nb']},
    {'different_host': ['x' * 256]}, {'different_host': ['']},
    {'different_host': ['x'], 'other': ['y']}, 'different_host', 5,
    ['different_host'], [('different_host', ['x'])])
