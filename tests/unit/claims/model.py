# SPDX-License-Identifier: Apache-2.0
"""A simple claim store to compare other stores with."""

import itertools

import hypothesis
from hypothesis import strategies

from cellsched.claims import base
from cellsched import exception
from cellsched.testing.suite import claim_cases
from tests import profile

_RESOURCES = ('DISK_GB', 'VCPU')

_numbers = strategies.integers(0, 2)
_amounts = strategies.dictionaries(
    strategies.sampled_from(_RESOURCES), strategies.integers(1, 4),
    min_size=1)
_inventories = strategies.dictionaries(
    strategies.sampled_from(_RESOURCES), strategies.builds(
        base.Inventory, total=strategies.integers(0, 9),
        reserved=strategies.integers(0, 2),
        allocation_ratio=strategies.sampled_from((1.0, 1.5)),
        min_unit=strategies.integers(1, 2),
        max_unit=strategies.integers(2, 4),
        step_size=strategies.integers(1, 2)))
_consumers = strategies.integers(0, 4)

#: What a consumer is: policy, members that a host may have, number of a host.
#: Its group is that of the policy.
_joins = strategies.none() | strategies.tuples(
    strategies.sampled_from(base.HARD_POLICIES), strategies.integers(1, 2),
    _numbers)

#: Whom a consumer is for: its project and user.
_owners = strategies.tuples(*(
    strategies.sampled_from((None, 'a', 'b')) for _ in range(2)))

#: Alternative batches of one consumer: of one provider each, as schedulers
#: name them, or of several.
_alternatives = strategies.one_of(
    strategies.tuples(
        strategies.permutations(range(3)), _amounts, strategies.integers(1, 3),
    ).map(lambda drawn: [[(number, drawn[1])] for number in drawn[0]][
        :drawn[2]]),
    strategies.lists(strategies.lists(
        strategies.tuples(_numbers, _amounts), min_size=1, max_size=2,
        unique_by=lambda claim: claim[0]), min_size=1, max_size=3))

#: Requests with alternatives: of different consumers, mostly alike.
_requests = strategies.one_of(
    strategies.dictionaries(
        _consumers, _alternatives, min_size=1, max_size=3),
    strategies.tuples(
        strategies.sets(_consumers, min_size=1, max_size=3), _amounts,
        strategies.permutations(range(3)),
    ).map(lambda drawn: {
        consumer: [[(number, drawn[1])] for number in drawn[2]]
        for consumer in drawn[0]}))

#: Calls of a store: (name, arguments), with numbers for uuids.
CALLS = strategies.lists(strategies.one_of(
    strategies.tuples(strategies.just('claim'), strategies.lists(
        strategies.tuples(_consumers, _numbers, _amounts), max_size=4,
        unique_by=lambda claim: claim[:2]),
        strategies.lists(_joins, min_size=5, max_size=5),
        strategies.lists(_owners, min_size=5, max_size=5)),
    strategies.tuples(
        strategies.just('claim_each'), _requests,
        strategies.lists(_joins, min_size=5, max_size=5),
        strategies.lists(_owners, min_size=5, max_size=5)),
    strategies.tuples(
        strategies.just('release'), strategies.lists(_consumers, max_size=3)),
    strategies.tuples(strategies.just('transfer'), strategies.lists(
        _consumers, min_size=2, max_size=2, unique=True)),
    strategies.tuples(
        strategies.just('set_inventory'), _numbers, _inventories),
    strategies.tuples(strategies.just('poll')),
), max_size=14)

_examples = itertools.count()


class Model:
    """Keeps all claims, and adds them up on each read."""

    def __init__(self):
        self.held = {}
        self.inventories = {}
        #: Group, member and host of consumers.
        self.members = {}
        #: Project and user of consumers.
        self.owners = {}

    def claim(self, claims, joins, owners):
        """Return None, ``conflict``, or the possible refusals.

        :param joins: membership of each consumer, by its number
        :param owners: owner of each consumer, by its number
        """
        claimed = {}
        for consumer, provider, resources in claims:
            claimed.setdefault(consumer, {})[provider] = resources
        for consumer in claimed:
            if self.held.get(consumer, claimed[consumer]) != claimed[consumer]:
                return 'conflict'
        refused = {self._violation(claims, joins), self._refusal(claims)}
        refused.discard(None)
        if not refused:
            for consumer, provider, resources in claims:
                if joins[consumer] and consumer not in self.held:
                    policy, _, host = joins[consumer]
                    self.members[consumer] = policy, consumer, host
                self.owners.setdefault(consumer, owners[consumer])
            self.held = {**claimed, **self.held}
        return refused or None

    def claim_any(self, consumer, batches, joins, owners):
        """Return ``conflict``, or position, number of new claims, refusals.

        The refusals are the possible ones of each batch before the position.
        """
        if consumer in self.held:
            for position, batch in enumerate(batches):
                if self.held[consumer] == dict(batch):
                    return position, 0, []
            return 'conflict'
        refusals = []
        for position, batch in enumerate(batches):
            refused = self.claim([(consumer, *each) for each in batch],
                                 joins, owners)
            if refused is None:
                return position, len(batch), refusals
            refusals.append(refused)
        return None, 0, refusals

    def copy(self):
        copy = Model()
        vars(copy).update({
            name: dict(value) for name, value in vars(self).items()})
        return copy

    def _violation(self, claims, joins):
        existing = set(self.members.values())
        for consumer, _, _ in claims:
            if consumer in self.held or not joins[consumer]:
                continue
            policy, most, host = joins[consumer]
            rest = [where for group, member, where in existing
                    if group == policy and member != consumer]
            if (rest.count(host) >= most if policy == base.ANTI_AFFINITY
                    else {host, *rest} != {host}):
                return consumer, 'group'
            existing.add((policy, consumer, host))
        return None

    def _refusal(self, claims):
        before, self.held = self.held, dict(self.held)
        try:
            return self._room(claims, before)
        finally:
            self.held = before

    def _room(self, claims, before):
        for consumer, provider, resources in claims:
            if consumer in before:
                continue
            self.held.setdefault(consumer, {})
            self.held[consumer] = {
                **self.held[consumer], provider: resources}
            for resource, amount in sorted(resources.items()):
                has = self.inventories.get(provider, {}).get(resource)
                if (has is None or not has.admits(amount)
                        or self.used(provider)[resource] > has.capacity):
                    return consumer, provider, resource, amount
        return None

    def release(self, consumers):
        for consumer in consumers:
            self.held.pop(consumer, None)
            self.members.pop(consumer, None)
            self.owners.pop(consumer, None)

    def transfer(self, source, target):
        if source in self.held:
            self.held = {**self.held, target: self.held[source]}
            del self.held[source]
            self.owners[target] = self.owners.pop(source)
            self.members.pop(target, None)
            if source in self.members:
                # It stays the member that it was.
                self.members[target] = self.members.pop(source)
            return True
        return False

    def used(self, provider):
        return {resource: sum(
            holds.get(provider, {}).get(resource, 0)
            for holds in self.held.values()) for resource in _RESOURCES}

    def usage(self, provider):
        """Return capacity, used, consumers; None where it is unknown."""
        if provider not in self.inventories:
            return None
        has = self.inventories[provider]
        return (
            {resource: has[resource].capacity if resource in has else 0
             for resource in _RESOURCES}, self.used(provider),
            sum(provider in holds for holds in self.held.values()))


class ModelTests(claim_cases.ClaimStoreCase):
    """Tests that any sequence of calls has the outcome of the model.

    ``store`` is shared by all examples.
    """

    @hypothesis.given(calls=CALLS)
    @hypothesis.settings(
        profile.few_examples,
        suppress_health_check=profile.SHARED)
    def test_calls_have_the_outcome_of_the_model(self, calls):
        # Names are uuids, which some stores insist on.
        prefix = f'{next(_examples):08x}-0000-4000-8000-'
        model, followed = Model(), {}
        token = self.store.usages().token
        for name, *args in calls:
            if name in ('claim', 'claim_each') and not self._has(
                    base.Capability.GROUPS):
                args[1] = [None] * len(args[1])
            if name == 'poll':
                token = self._follow(token, followed, prefix, model)
            elif name == 'claim':
                expected = model.claim(*args)
                outcome = self._claim(prefix, *args)
                if isinstance(expected, set):
                    self.assertIn(outcome, expected)
                else:
                    self.assertEqual(expected, outcome)
            elif name == 'claim_each':
                model = self._claim_each(prefix, model, *args)
            elif name == 'release':
                model.release(*args)
                self.store.release(
                    _consumer(prefix, number) for number in args[0])
            elif name == 'transfer':
                self.assertEqual(
                    model.transfer(*args[0]), self.store.transfer(
                        *(_consumer(prefix, number) for number in args[0])))
            else:
                model.inventories[args[0]] = args[1]
                self.store.set_inventory(_provider(prefix, args[0]), args[1])
            self._compare(prefix, model)
        self._follow(token, followed, prefix, model)

    def test_feed_has_changed_providers_only(self):
        providers = [self.make_provider(self.store, VCPU=8)
                     for _ in range(10)]
        token = self.store.usages().token

        self.store.claim([self.make_claim(providers[4], VCPU=1)])
        self.store.claim([self.make_claim(providers[2], VCPU=1)])
        self.store.set_inventory(
            providers[7], {'VCPU': base.Inventory(total=8)})

        self.assertEqual(
            {providers[2], providers[4]},
            {usage.provider for usage in self.store.usages(token).usages})

    def _has(self, trait):
        return trait in self.store.capabilities

    def _claim(self, prefix, claims, joins, owners):
        try:
            self.store.claim(_claims(prefix, claims, joins, owners))
        except exception.ClaimConflict:
            return 'conflict'
        except exception.ClaimRefused as refusal:
            return _refused(refusal)
        return None

    def _claim_each(self, prefix, model, requests, joins, owners):
        """Claim; return the model after the requests in a possible order."""
        batches = [
            [_claims(prefix, [(consumer, *each) for each in batch], joins,
                     owners) for batch in alternatives]
            for consumer, alternatives in requests.items()]
        try:
            outcomes = (self.store.claim_each(batches) if len(batches) > 1
                        else [self.store.claim_any(batches[0])])
        except exception.ClaimConflict as exc:
            outcomes = [exc]
        for order in itertools.permutations(requests):
            after = model.copy()
            expected = {each: after.claim_any(
                each, requests[each], joins, owners) for each in order}
            if all(_agree(expected[consumer], outcome)
                   for consumer, outcome in zip(requests, outcomes)):
                return after
        self.fail(f'{outcomes} of {requests} with {vars(model)}')

    def _compare(self, prefix, model):
        consumers = [_consumer(prefix, number) for number in range(5)]
        reported = self.store.claims_of(consumers)
        held = {
            int(consumer[-1]): {int(claim.provider[-1]): claim.resources
                                for claim in claims}
            for consumer, claims in reported.items()}
        self.assertEqual(model.held, held)
        self.assertEqual(
            {consumer: {owner} for consumer, owner in model.owners.items()},
            {int(consumer[-1]): {(claim.project_id, claim.user_id)
                                 for claim in claims}
             for consumer, claims in reported.items()})
        if self._has(base.Capability.CONSUMER_LIST):
            # Nobody comes between these in the order of bytes.
            self.assertEqual(
                [_consumer(prefix, number) for number in sorted(held)],
                [consumer for consumer in self.store.consumers(prefix, 6)
                 if consumer.startswith(prefix)])
        usages = self.store.usages(providers=[
            _provider(prefix, number) for number in range(3)]).usages
        known = {int(usage.provider[-1]): _plain(usage) for usage in usages}
        self.assertEqual(
            [model.usage(number) for number in range(3)],
            [known.get(number) for number in range(3)])

    def _follow(self, token, followed, prefix, model):
        changes = self.store.usages(token)
        for usage in changes.usages:
            if usage.provider.startswith(prefix):
                followed[int(usage.provider[-1])] = _plain(usage)
        self.assertEqual(
            [model.usage(number) for number in range(3)],
            [followed.get(number) for number in range(3)])
        return changes.token


def _claims(prefix, claims, joins, owners):
    groups = [each and base.Membership(
        f'{prefix}{each[0][:2]}', f'h{each[2]}', each[0], each[1])
        for each in joins]
    return [
        base.Claim(
            _consumer(prefix, consumer), _provider(prefix, provider),
            resources, groups[consumer], *owners[consumer])
        for consumer, provider, resources in claims]


def _refused(refusal):
    if isinstance(refusal, exception.GroupPolicyViolated):
        return int(refusal.consumer[-1]), 'group'
    return (int(refusal.consumer[-1]), int(refusal.provider[-1]),
            refusal.resource, refusal.amount)


def _agree(expected, outcome):
    """Return whether a store's outcome is that of the model."""
    if expected == 'conflict':
        return isinstance(outcome, exception.ClaimConflict)
    if not isinstance(outcome, base.AnyOf):
        return False
    position, most, refusals = expected
    named = {place: _refused(each)
             for place, each in outcome.refusals.items()}
    return (
        # If other requests hold claims, too few may be counted as new.
        outcome.chosen == position and outcome.new <= most
        and all(place < len(refusals) and each in refusals[place]
                for place, each in named.items())
        and (position is not None or len(named) == len(refusals)))


def _consumer(prefix, number):
    return f'{prefix}{0xc:011x}{number}'


def _provider(prefix, number):
    return f'{prefix}{0xa:011x}{number}'


def _plain(usage):
    return ({resource: usage.capacity.get(resource, 0)
             for resource in _RESOURCES},
            {resource: usage.used.get(resource, 0)
             for resource in _RESOURCES}, usage.consumers)
