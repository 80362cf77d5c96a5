# SPDX-License-Identifier: Apache-2.0
"""Claims in the memory of one process."""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import threading
from typing import Any
from typing import Self

from oslo_config import cfg

from cellsched.claims import base


class MemoryClaims(base.ClaimStore):
    """Keep claims in a dictionary under a lock.

    The reference of what a store does. It forgets with its process, which
    alone sees it, so it serves tests and simulations only.
    """

    traits = frozenset({base.Trait.ATOMIC})

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[str, list[base.Claim]] = {}
        self._inventories: dict[str, dict[str, base.Inventory]] = {}
        self._used: dict[str, dict[str, int]] = {}
        self._consumers: dict[str, int] = {}
        #: When providers changed last, those of the latest change at the end.
        self._changed: dict[str, int] = {}
        self._changes = 0

    @classmethod
    def from_conf(cls, conf: cfg.ConfigOpts, parts: Any) -> Self:
        return cls()

    def claim(self, claims: Sequence[base.Claim]) -> int:
        base.check_claims(claims)
        with self._lock:
            taken = base.outstanding(
                claims, self._holdings(claim.consumer for claim in claims))
            refusal = base.find_refusal(taken, self._inventories, self._used)
            if refusal is not None:
                raise refusal
            for claim in taken:
                self._held.setdefault(claim.consumer, []).append(
                    dataclasses.replace(
                        claim, resources=dict(claim.resources)))
                self._count(claim, 1)
            self._note(claim.provider for claim in taken)
            return len(taken)

    def release(self, consumers: Iterable[str]) -> None:
        with self._lock:
            released = [claim for consumer in consumers
                        for claim in self._held.pop(consumer, ())]
            for claim in released:
                self._count(claim, -1)
            self._note(claim.provider for claim in released)

    def held(self, consumers: Iterable[str]) -> dict[str, list[base.Claim]]:
        with self._lock:
            return self._holdings(consumers)

    def set_inventory(
        self, provider: str, inventory: Mapping[str, base.Inventory]
    ) -> None:
        base.check_inventory(provider, inventory)
        with self._lock:
            if self._inventories.get(provider) != inventory:
                self._inventories[provider] = dict(inventory)
                self._note([provider])

    def usages(
        self, since: Any = None, providers: Iterable[str] | None = None
    ) -> base.Changes:
        with self._lock:
            if providers is not None:
                known = dict.fromkeys(providers)
                return base.Changes(since, [
                    self._usage(provider) for provider in known
                    if provider in self._inventories])
            return base.Changes(self._changes, [
                self._usage(provider) for provider in self._after(since or 0)])

    def _holdings(
        self, consumers: Iterable[str]
    ) -> dict[str, list[base.Claim]]:
        return {consumer: list(self._held[consumer]) for consumer in consumers
                if consumer in self._held}

    def _count(self, claim: base.Claim, sign: int) -> None:
        used = self._used.setdefault(claim.provider, {})
        for resource, amount in claim.resources.items():
            used[resource] = used.get(resource, 0) + sign * amount
        self._consumers[claim.provider] = (
            self._consumers.get(claim.provider, 0) + sign)

    def _note(self, providers: Iterable[str]) -> None:
        self._changes += 1
        for provider in providers:
            self._changed.pop(provider, None)
            self._changed[provider] = self._changes

    def _after(self, change: int) -> Iterator[str]:
        for provider in reversed(self._changed):
            if self._changed[provider] <= change:
                return
            yield provider

    def _usage(self, provider: str) -> base.Usage:
        inventory = self._inventories[provider]
        return base.Usage(
            provider=provider,
            capacity={name: has.capacity for name, has in inventory.items()},
            used=dict(self._used.get(provider, {})),
            consumers=self._consumers.get(provider, 0))
