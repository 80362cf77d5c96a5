# SPDX-License-Identifier: Apache-2.0
"""Requests that several providers of a host may meet, on columns."""

import itertools
import uuid

import hypothesis
from hypothesis import strategies as st

from cellsched.hosts.providers import SharingProvider
from cellsched.scheduler.decision import allocation
from cellsched.scheduler.decision import capacity
from cellsched.scheduler.decision import pipeline
from cellsched.scheduler.decision import required_traits
from cellsched.testing import builders
from tests import profile
from tests.unit import base

CLASSES = ('CUSTOM_A', 'CUSTOM_B')
TRAITS = ('CUSTOM_S', 'CUSTOM_T')

#: Aggregates, which have a sharing provider each.
ZONES = tuple(builders.aggregate(number) for number in (1, 2))
POOLS = tuple(str(uuid.UUID(int=number)) for number in (901, 902))


def uuid_of(host, child=0):
    return str(uuid.UUID(int=host + 1 + child * 100))


class Provider:
    """A provider as it is said to a table."""

    def __init__(self, amounts=(), traits=(), parent=0, units=()):
        self.amounts = dict(zip(CLASSES, amounts))
        self.traits = frozenset(traits)
        self.parent = parent
        self.said = (amounts, sorted(traits), parent, units)
        self.units = {CLASSES[0]: units} if units else {}

    def __repr__(self):
        return 'Provider({}, {}, {}, {})'.format(*self.said)


def make(hosts, zones=(), pools=(), **columns):
    """Return a table.

    :param hosts: of each the root and its children
    :param zones: of each the aggregates, as numbers
    :param pools: the sharing providers of the aggregates, in order
    :param columns: what else is said of hosts
    """
    table = builders.table(
        len(hosts), uuid=[uuid_of(host) for host in range(len(hosts))],
        traits=[root.traits for root, *_ in hosts],
        children=[tuple((child.parent, child.traits) for child in children)
                  for _, *children in hosts],
        child_uuids=[tuple(uuid_of(host, number) for number in range(
            1, len(children) + 1)) for host, (_, *children)
            in enumerate(hosts)],
        aggregates=[tuple(ZONES[number] for number in numbers)
                    for numbers in zones] or ((),) * len(hosts),
        sharing=[tuple(POOLS[number] for number in numbers
                       if number < len(pools))
                 for numbers in zones] or ((),) * len(hosts), **columns)
    table.set_sharing({
        POOLS[number]: SharingProvider(
            f'pool{number}', ZONES[number].uuid, pool.traits)
        for number, pool in enumerate(pools)})
    for host, providers in enumerate(hosts):
        for number, each in enumerate(providers):
            amounts = each.amounts if number else {
                'VCPU': 8, 'MEMORY_MB': 8192, 'DISK_GB': 100, **each.amounts}
            table.set_usage(uuid_of(host, number), amounts, {}, 0, each.units)
    for number, pool in enumerate(pools):
        table.set_usage(POOLS[number], pool.amounts, {}, 0, pool.units)
    return table


def ask(amounts=(), groups=(), policy='none', near=(), traits=()):
    """Return a request of its own amounts, and groups beside."""
    specs = {f'resources:{resource}': str(amount)
             for resource, amount in dict(amounts).items() if amount}
    specs |= {f'trait:{name}': value for name, value in dict(traits).items()}
    return builders.request(
        extra_specs={**specs, 'group_policy': policy},
        requested_resources=[
            {'requester_id': str(number), **group}
            for number, group in enumerate(groups)],
        request_level_params={'same_subtree': [
            [str(number) for number in numbers] for numbers in near]})


def passing(table, request):
    """Return the rows of the hosts that may take a request."""
    hosts = table.view(builders.NOW)
    everyone = pipeline.FilteredHosts(hosts, None, len(hosts))
    stages = [required_traits.Traits(options=None),
              *capacity.stages(hosts, request)]
    return everyone.through(stages, request).rows.tolist()


class PlainSearch:
    """Tries every way of giving groups and amounts to providers."""

    def __init__(self, hosts, zones, pools):
        self.hosts, self.zones, self.pools = hosts, zones, pools

    def fits(self, host, amounts, groups, policy, near, traits):
        root, *children = self.hosts[host]
        pools = [number for number in self.zones[host]
                 if number < len(self.pools)]
        places = [(uuid_of(host, number), each, set(self.zones[host]))
                  for number, each in enumerate((root, *children))]
        places += [(POOLS[number], self.pools[number], {number})
                   for number in pools]
        tree = {uuid_of(host, number) for number in range(len(children) + 1)}
        forbidden = {name for name, value in traits.items()
                     if value == 'forbidden'}
        required = {name for name, value in traits.items()
                    if value == 'required'}
        if root.traits & forbidden:
            return False
        wanted = [(resource, amount) for resource, amount
                  in amounts.items() if amount]
        return any(
            self.goes(chosen, given, places, tree, groups, wanted, policy,
                      near, required, forbidden, root)
            for chosen in itertools.product(
                range(len(places)), repeat=len(groups))
            for given in itertools.product(
                range(len(places)), repeat=len(wanted)))

    def goes(self, chosen, given, places, tree, groups, wanted, policy, near,
             required, forbidden, root):
        if policy == 'isolate' and len(set(chosen)) < len(chosen):
            return False
        left = [dict(each.amounts) for _, each, _ in places]
        has = set(root.traits)
        taken = [(number, group['resources'])
                 for number, group in zip(chosen, groups)]
        taken += [(number, {resource: amount})
                  for number, (resource, amount) in zip(given, wanted)]
        for number, amounts in taken:
            for resource, amount in amounts.items():
                left[number][resource] = (
                    left[number].get(resource, 0) - amount)
                least, most, step = places[number][1].units.get(
                    resource, (1, 1000, 1))
                if left[number][resource] < 0 or not (
                        least <= amount <= most and amount % step == 0):
                    return False
        for number in given:
            if places[number][1].traits & forbidden:
                return False
            has |= places[number][1].traits
        if not required <= has:
            return False
        for number, group in zip(chosen, groups):
            uuid_, each, zones = places[number]
            if not (set(group['required_traits']) <= each.traits
                    and each.traits.isdisjoint(group['forbidden_traits'])):
                return False
            inside = group['in_tree']
            if inside and inside != uuid_ and not (
                    uuid_ in tree and inside in tree):
                return False
            names = {ZONES[zone].uuid for zone in zones}
            if not all(names & set(one_of) for one_of in group['aggregates']):
                return False
            if names & set(group['forbidden_aggregates']):
                return False
        return all(self.is_near(places, {chosen[each] for each in numbers})
                   for numbers in near)

    def is_near(self, places, numbers):
        def above(number):
            found = {number}
            while number and number < len(places) and (
                    places[number][1].parent is not None):
                number = places[number][1].parent
                found.add(number)
            return found
        return any(all(one in above(each) for each in numbers)
                   for one in numbers)


amounts_ = st.lists(st.integers(0, 3), min_size=2, max_size=2)
traits_ = st.frozensets(st.sampled_from(TRAITS))
zones_ = st.sets(st.sampled_from((0, 1)))
units_ = st.sampled_from([(), (), (2, 3, 1), (1, 1, 1), (2, 2, 2)])


@st.composite
def trees(draw):
    root = Provider(draw(amounts_), draw(traits_), None, draw(units_))
    return [root, *(
        Provider(draw(amounts_), draw(traits_),
                 draw(st.integers(0, number)), draw(units_))
        for number in range(draw(st.integers(0, 3))))]


@st.composite
def groups_(draw):
    amounts = draw(st.dictionaries(
        st.sampled_from(CLASSES), st.integers(1, 2), min_size=1))
    return {
        'resources': amounts, 'required_traits': sorted(draw(
            st.sampled_from([set(), set(), {'CUSTOM_S'}]))),
        'forbidden_traits': sorted(draw(
            st.sampled_from([set(), set(), {'CUSTOM_T'}]))),
        'in_tree': draw(st.sampled_from(
            [None] * 5 + [uuid_of(0), uuid_of(0, 1), POOLS[0]])),
        'aggregates': draw(st.sampled_from(
            [[]] * 4 + [[[ZONES[0].uuid]], [[each.uuid for each in ZONES]]])),
        'forbidden_aggregates': draw(st.sampled_from(
            [[]] * 4 + [[ZONES[1].uuid]]))}


class TestColumns(base.TestCase):

    @profile.many_examples
    @hypothesis.given(
        hosts=st.lists(trees(), min_size=1, max_size=4),
        zones=st.lists(zones_, min_size=4, max_size=4),
        pools=st.lists(st.builds(
            Provider, amounts_, traits_, st.none(), units_), max_size=2),
        amounts=st.fixed_dictionaries(
            {name: st.integers(0, 2) for name in CLASSES}),
        groups=st.lists(groups_(), max_size=3),
        policy=st.sampled_from(['none', 'isolate']), data=st.data(),
        traits=st.dictionaries(
            st.sampled_from(TRAITS),
            st.sampled_from(['required', 'forbidden'])))
    def test_passing_hosts_equal_a_plain_search(
            self, hosts, zones, pools, amounts, groups, policy, data, traits):
        near = data.draw(st.lists(st.sets(
            st.integers(0, len(groups) - 1), min_size=1), max_size=1)
        ) if groups else []
        zones = zones[:len(hosts)]
        request = ask(amounts, groups, policy, near, traits)
        table = make(hosts, zones, pools)
        search = PlainSearch(hosts, zones, pools)

        found = passing(table, request)

        self.assertEqual([
            host for host in range(len(hosts)) if search.fits(
                host, amounts, groups, policy, near, traits)], found)
        for host in found:
            self.check_allocated(table, host, request)

    def check_allocated(self, table, host, request):
        """Make sure that what is taken is what is asked for, and is there."""
        hosts = table.view(builders.NOW)
        wants = capacity.provider_demand(hosts, request, request.resources())
        if wants is None:
            return
        allocated = allocation.allocate(hosts, host, wants)
        total = {}
        for amounts in allocated.allocations.values():
            for resource, amount in amounts.items():
                total[resource] = total.get(resource, 0) + amount
        wanted = request.resources()
        for group in request.group_demand().groups:
            for resource, amount in group.resources:
                wanted[resource] = wanted.get(resource, 0) + amount
        self.assertEqual(wanted, total)
        for key, amount in allocated.resources.items():
            resource, _, place = key.partition('@')
            room = (hosts.shared_available(place, resource)
                    if place and not place.isdigit()
                    else hosts.available(key)[host])
            self.assertGreaterEqual(room, amount)
        for group in request.group_demand().groups:
            self.assertEqual(1, len(allocated.mappings[group.suffix]))


class TestShortfall(base.TestCase):

    def nearest(self, *hosts):
        """Return the nearest miss of 2 CUSTOM_A and 4 CUSTOM_B of one."""
        hosts = make(hosts).view(builders.NOW)
        request = ask(groups=[{
            'resources': {'CUSTOM_A': 2, 'CUSTOM_B': 4}}])
        stages = tuple(capacity.stages(hosts, request))
        found = pipeline.FilteredHosts(
            hosts, None, len(hosts)).through(stages, request)
        [rejection] = pipeline.Candidates(
            stages, found).rejections(request)
        return rejection.nearest

    def test_shortfall_is_the_least_of_a_class_or_a_provider(self):
        for nearest, hosts in (
                (pipeline.Nearest(1, 1, 'CUSTOM_B'), (
                    [Provider(), Provider((1, 4))],
                    [Provider(), Provider((9, 3))],
                    [Provider(), Provider((2, 2)), Provider((9, 0))])),
                # No provider has both classes.
                (pipeline.Nearest(2, 1, 'provider'), (
                    [Provider(), Provider((2, 0)), Provider((0, 4))],
                    [Provider(), Provider((1, 4))]))):
            self.assertEqual(nearest, self.nearest(*hosts))


class TestMany(base.TestCase):
    """What a tree of candidates would explode of."""

    def equal(self, rooms):
        """Return a table of hosts with children that differ in room only."""
        return make([[Provider((), (), None), *(
            Provider((room, 0), (), 0) for room in each)] for each in rooms])

    def test_devices_of_eight_equal_children_are_counted(self):
        table = self.equal([[1] * 8, [1] * 5 + [0] * 3, [0] * 8])
        groups = [{'resources': {'CUSTOM_A': 1}}] * 6

        self.assertEqual([0], passing(table, ask({}, groups, 'isolate')))
        self.assertEqual([0, 1], passing(
            table, ask({}, groups[:5], 'isolate')))

    def test_groups_with_the_same_children_are_distinguished(self):
        # The larger ones need all children that have room for two.
        table = self.equal([[2] * 4 + [1] * 4, [2] * 3 + [1] * 5])
        groups = [{'resources': {'CUSTOM_A': 2}}] * 4 + [
            {'resources': {'CUSTOM_A': 1}}] * 4

        self.assertEqual([0], passing(table, ask({}, groups, 'isolate')))

    def test_exponential_request_is_refused_in_bounded_time(self):
        # No two children are alike, and none is below another one.
        table = self.equal([[*range(10, 26)]])
        groups = [{'resources': {'CUSTOM_A': amount}}
                  for amount in range(1, 9)]

        self.assertEqual([0], passing(table, ask({}, groups, 'isolate')))
        self.assertEqual([], passing(table, ask(
            {}, groups, 'isolate', [range(8)])))

    def test_dedicated_and_shared_cpus_are_apart(self):
        table = builders.table(2)
        for row, dedicated in enumerate((0, 2)):
            table.set_usage(
                str(uuid.UUID(int=row + 1)),
                {'VCPU': 4, 'PCPU': dedicated, 'MEMORY_MB': 512,
                 'DISK_GB': 10}, {}, 0)

        for wanted, rows in (({'PCPU': 2}, [1]), ({'PCPU': 3}, []),
                             ({}, [0, 1])):
            request = builders.request(vcpus=4, extra_specs={
                f'resources:{name}': str(amount)
                for name, amount in wanted.items()})
            self.assertEqual(rows, passing(table, request), wanted)
