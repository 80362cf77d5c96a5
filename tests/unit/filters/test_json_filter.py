# SPDX-License-Identifier: Apache-2.0
"""JsonFilter."""

import json
import operator

import hypothesis
from hypothesis import strategies as st

from cellsched import exception
from cellsched.filters import json_filter
from cellsched.scheduler.decision import pipeline
from cellsched.testing import builders
from cellsched.testing.suite import filters
from tests.unit import base
from tests.unit.filters import agreeing
from tests.unit import strategies

SSD = json.dumps({'ssd': 'yes', 'count': 3, 'a': {'b': 1}, 'zero': 0})

COMPARES = {'=': operator.eq, '<': operator.lt, '>': operator.gt,
            '<=': operator.le, '>=': operator.ge}

NAMES = ['$host', '$nodename', '$cell_uuid', '$free_ram_mb', '$num_instances',
         '$service.disabled', '$stats.ssd', '$stats.count', '$stats.a',
         '$stats.a.b', '$stats.none', '$stats', '$nothing', '$host.x',
         '$hypervisor_type', '$host_ip', '$host_ip.x', '$available:VCPU',
         '$available:CUSTOM_X']

COLUMNS = {
    'host_ip': st.sampled_from([None, '192.0.2.1', 'alpha']),
    'hypervisor_type': st.sampled_from([None, 'qemu', 'fake'])}

HOSTS, TABLES = strategies.hosts(**COLUMNS), strategies.tables(**COLUMNS)

QUERIES = st.recursive(
    st.sampled_from([*NAMES, 0, 1, 3, 4096, 2.5, True, 'yes', '', 'alpha']),
    lambda each: st.tuples(
        st.sampled_from([*COMPARES, 'in', 'not', 'and', 'or']),
        st.lists(each, max_size=4)).map(lambda pair: [pair[0], *pair[1]]),
    max_leaves=8).filter(lambda query: isinstance(query, list))


def request(query):
    return builders.request(hints={'query': json.dumps(query)})


def value(text, host):
    """Return what a text stands for."""
    if not text.startswith('$'):
        return text or None
    name, *keys = text[1:].split('.')
    found = getattr(host, name, 0 if name.startswith('available:') else None)
    for key in keys:
        found = found.get(key) if hasattr(found, 'get') else None
    return found


def evaluated(query, host):
    """Return what a query says of one host."""
    sign, *arguments = query
    found = []
    for argument in arguments:
        if isinstance(argument, list):
            argument = evaluated(argument, host)
        elif isinstance(argument, str):
            argument = value(argument, host)
        if argument is not None:
            found.append(argument)
    if sign == 'and':
        return all(found)
    if sign == 'or':
        return any(found)
    if sign == 'not':
        return not all(found)
    if len(found) < 2:
        return False
    if sign == 'in':
        return found[0] in found[1:]
    return all(compared(sign, found[0], other) for other in found[1:])


def compared(sign, first, second):
    try:
        return COMPARES[sign](first, second)
    except TypeError:
        return False


class TestJsonFilter(agreeing.Agreeing, filters.FilterSuite, base.TestCase):

    plugin = json_filter.JsonFilter

    def make_requests(self):
        return [builders.request(), request(['>', '$free_ram_mb', 10000]),
                request(['not', ['in', '$host', 'host2', 'host3']])]

    def assertVerdicts(self, expected, query):
        hosts = builders.hosts(
            free_ram_mb=[1024, 2048, 4096], stats=['', SSD, '{"ssd": 5}'],
            service_disabled=[True, False, False])
        with self.subTest(query=query):
            self.assertKeeps(expected, hosts, request(query))

    def test_operators(self):
        yes, no = [True] * 3, [False] * 3
        for expected, query in (
                ([False, True, True], ['>=', '$free_ram_mb', 2048]),
                ([False, False, True], ['>', '$free_ram_mb', 2048]),
                ([True, True, False], ['<=', '$free_ram_mb', 2048]),
                ([True, False, False], ['<', '$free_ram_mb', 2048]),
                ([False, True, False], ['=', '$free_ram_mb', 2048]),
                ([False, True, True], ['<', 1024, '$free_ram_mb', 4096.5]),
                ([True, False, True], ['in', '$host', 'host1', 'host3']),
                ([True, False, True],
                 ['or', ['=', '$free_ram_mb', 1024],
                  ['=', '$free_ram_mb', 4096]]),
                ([False, True, False],
                 ['and', ['>', '$free_ram_mb', 1024],
                  ['<', '$free_ram_mb', 4096]]),
                ([True, True, False], ['not', ['=', '$host', 'host3']]),
                ([True, True, False],
                 ['and', ['not', ['=', '$host', 'host3']], True]),
                (yes, ['not', ['=', 1, 1], ['=', 1, 2]]),
                (yes, ['and']), (no, ['or']), (no, ['not']), (no, ['=']),
                (no, ['=', 1]), (yes, ['=', 1, True]), (no, ['=', 1, '1']),
                (yes, ['and', 'text', 1]), (no, ['and', 0])):
            self.assertVerdicts(expected, query)

    def test_missing_value_is_ignored(self):
        for expected, query in (
                ([False, True, False], ['=', '$stats.ssd', 'yes']),
                ([False, True, True], ['or', '$stats.ssd']),
                ([True, True, True], ['and', '$stats.ssd']),
                ([False, False, False], ['not', '$stats.ssd']),
                ([True, False, True], ['=', '$stats.count', 1, 1]),
                ([True, True, True], ['=', '$nothing', 1, 1]),
                ([False, False, False], ['=', '$nothing', 1]),
                ([False, False, False], ['=', '$free_ram_mb.real', 1024]),
                ([False, False, False], ['>', '$cell_free_share', 0]),
                ([False, False, False], ['=', '', '']),
                ([False, True, False], ['not', '$stats.zero'])):
            self.assertVerdicts(expected, query)

    def test_values_of_different_kinds_are_in_no_order(self):
        for expected, query in (
                ([False, False, True], ['<', '$stats.ssd', 6]),
                ([False, False, False], ['<', '$stats', '$free_ram_mb']),
                ([False, True, False], ['<', '$stats.count', '$free_ram_mb']),
                ([False, False, False], ['=', '$stats.ssd', '$stats.count']),
                ([False, True, True], ['=', '$stats.ssd', '$stats.ssd'])):
            self.assertVerdicts(expected, query)
        for query in (['<', '$host', 5], ['>', 1, '$host'], ['<', 'a', 1],
                      ['<', ['=', 1, 1], 'a']):
            error = self.refused(['and', 1, query])
            self.assertEqual('scheduler_hints.query[2]', error.field)

    def test_names_of_novas_host_state_are_known(self):
        for expected, query in (
                ([True, False, False], ['and', '$service.disabled']),
                ([True, False, False], ['=', '$service.host', 'host1']),
                ([True, False, False],
                 ['=', '$hypervisor_hostname', 'host1']),
                ([True, True, True], ['=', '$cell_uuid', builders.CELL])):
            self.assertVerdicts(expected, query)

    def refused(self, query):
        return self.assertRaises(
            exception.InvalidField, builders.plugin(self.plugin).applies,
            request(query))

    def test_request_without_a_query_is_not_filtered(self):
        plugin = builders.plugin(self.plugin)

        for hints in ({}, {'query': []}, {'query': ''}):
            self.assertFalse(plugin.applies(builders.request(hints=hints)))

    def test_second_query_is_refused(self):
        error = self.assertRaises(
            exception.InvalidField, builders.plugin(self.plugin).applies,
            builders.request(hints={'query': ['["and"]', '["or"]']}))

        self.assertEqual('scheduler_hints.query', error.field)

    def test_invalid_query_is_refused_with_any_hosts(self):
        # None of them has so little memory, so none meets the text.
        for query in (['<', '$free_ram_mb', -1, 'text'],
                      ['<', '$stats.ssd', 5, 'text'],
                      ['and', False, ['<', '$nodename', 1]]):
            self.assertIn('two numbers or two strings',
                          self.refused(query).detail)
            for hosts in (builders.hosts(0), builders.hosts(stats=[SSD])):
                found = pipeline.Pipeline(
                    [builders.plugin(self.plugin)], [])
                self.assertRaises(exception.InvalidField, found.candidates,
                                  hosts, request(query))

    def test_host_without_an_address_is_rejected(self):
        hosts = builders.hosts(
            host_ip=[None, '192.0.2.1'], hypervisor_type=[None, 'qemu'])
        for name in '$host_ip', '$hypervisor_type':
            for expected, query in (
                    ([False, True], ['or', name]),
                    ([False, False], ['not', name]),
                    ([False, True], ['=', name, name]),
                    ([False, False], ['<', name, 5])):
                with self.subTest(query=query):
                    self.assertKeeps(expected, hosts, request(query))

    def test_unreported_resource_has_zero_available(self):
        hosts = builders.hosts(2)

        self.assertKeeps([True, True], hosts,
                         request(['=', '$available:CUSTOM_X', 0]))

    @hypothesis.given(hosts=HOSTS, query=QUERIES)
    def test_column_verdict_equals_row_verdicts(self, hosts, query):
        try:
            self.assertAgrees(
                lambda host, _: evaluated(query, host), hosts, request(query))
        except exception.InvalidField as exc:
            # Numbers and texts are in no order.
            self.assertIn('two numbers or two strings', exc.detail)
            hypothesis.reject()

    @hypothesis.given(table=TABLES, query=QUERIES, data=st.data())
    def test_verdict_is_the_same_without_the_other_hosts(
        self, table, query, data
    ):
        plugin = builders.plugin(self.plugin)
        try:
            plugin.applies(request(query))
        except exception.InvalidField:
            hypothesis.reject()
        gone = data.draw(st.sets(st.sampled_from(range(len(table))))
                         if len(table) else st.just(set()))
        hosts = table.view(builders.NOW)
        whole = plugin.keep(hosts, request(query)).tolist()
        table.drop(hosts['uuid'][row] for row in gone)

        self.assertEqual(
            [kept for row, kept in enumerate(whole) if row not in gone],
            plugin.keep(table.view(builders.NOW), request(query)).tolist())
