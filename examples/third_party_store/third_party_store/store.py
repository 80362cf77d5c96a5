# SPDX-License-Identifier: Apache-2.0
"""A small claim store: dictionaries under a lock.

The methods are in the order in which the page "Write a claim store" adds them.
"""

import collections
import dataclasses
import threading

from cellsched.claims import base
from cellsched.claims import validation


class DictClaims(base.ClaimStore):
    """Keep claims in dictionaries of one process.

    The used amounts are counted from the claims, so no counter can be wrong.
    Each call reads all claims.
    """

    capabilities = frozenset({
        base.Capability.ATOMIC, base.Capability.CONSUMER_LIST,
        base.Capability.GROUPS})

    def __init__(self):
        self._lock = threading.Lock()
        self._inventories = {}
        #: The claims of each consumer, with their memberships.
        self._held = {}

    @classmethod
    def from_conf(cls, conf, parts):
        return cls()

    # 1. Providers.

    def set_inventory(self, provider, inventory):
        validation.check_inventory(provider, inventory)
        with self._lock:
            self._inventories[provider] = dict(inventory)

    def usages(self, since=None, providers=None):
        # An iterable may call this store, so it is read before the lock.
        names = None if providers is None else dict.fromkeys(providers)
        with self._lock:
            used = self._used()
            consumers = collections.Counter(
                claim.provider for claim in self._claims())
            # Without FEED, each call returns all providers.
            return base.UsageChanges(since, [
                _usage(name, self._inventories[name], used[name],
                       consumers[name])
                for name in (self._inventories if names is None else names)
                if name in self._inventories])

    # 2. Claims.

    def claim(self, claims):
        validation.check_claims(claims)
        with self._lock:
            # A repetition claims only what is not held, or nothing.
            new = validation.outstanding(
                claims, self._held_by(claim.consumer for claim in claims))
            error = (
                validation.find_violation(new, self._members())
                or validation.find_refusal(
                    new, self._inventories, self._used()))
            if error is not None:
                raise error
            for claim in new:
                # The caller may change its dictionary later.
                self._held.setdefault(claim.consumer, []).append(
                    dataclasses.replace(
                        claim, resources=dict(claim.resources)))
            return len(new)

    def claims_of(self, consumers):
        consumers = list(consumers)
        with self._lock:
            return {consumer: [dataclasses.replace(claim, group=None)
                               for claim in claims]
                    for consumer, claims in self._held_by(consumers).items()}

    # 3. Releases.

    def release(self, consumers):
        consumers = list(consumers)
        with self._lock:
            for consumer in consumers:
                self._held.pop(consumer, None)

    # 4. Consumers, for CONSUMER_LIST.

    def consumers(self, after='', limit=1000):
        validation.check_limit(limit)
        with self._lock:
            return sorted(name for name in self._held if name > after)[:limit]

    # 5. Transfers.

    def transfer(self, source, target):
        validation.check_transfer(source, target)
        with self._lock:
            if source not in self._held:
                return False
            self._held[target] = [
                dataclasses.replace(
                    claim, consumer=target, group=_moved(claim))
                for claim in self._held.pop(source)]
            return True

    # 6. Memberships, for GROUPS.

    def memberships(self, consumers):
        names = set(consumers)
        with self._lock:
            return {consumer: base.joined(group, host, member)
                    for group, consumer, member, host in self._members()
                    if consumer in names}

    def rename_host(self, former, name):
        with self._lock:
            for claims in self._held.values():
                claims[:] = [
                    dataclasses.replace(claim, group=dataclasses.replace(
                        claim.group, host=name))
                    if claim.group and claim.group.host == former else claim
                    for claim in claims]

    # Helpers, which the lock protects.

    def _claims(self):
        return (claim for claims in self._held.values() for claim in claims)

    def _held_by(self, consumers):
        return {consumer: self._held[consumer] for consumer in consumers
                if consumer in self._held}

    def _used(self):
        used = collections.defaultdict(collections.Counter)
        for claim in self._claims():
            used[claim.provider].update(claim.resources)
        return used

    def _members(self):
        """Return group, consumer, member and host of each member."""
        return [(joins.group, consumer, joins.member or consumer, joins.host)
                for consumer, claims in self._held.items()
                if (joins := claims[0].group) is not None]


def _usage(provider, inventory, used, consumers):
    return base.Usage(
        provider, {name: has.capacity for name, has in inventory.items()},
        dict(used), consumers,
        {name: has.units for name, has in inventory.items()
         if has.units != base.Units()})


def _moved(claim):
    """Return the membership of a claim that gets another consumer."""
    joins = claim.group
    return joins and dataclasses.replace(
        joins, member=joins.member or claim.consumer)
