# SPDX-License-Identifier: Apache-2.0
"""Changes that no test notices, and why each of them may stay."""

from collections.abc import Sequence
import csv
import dataclasses
import pathlib

import mutants

#: From the root of the tree; the contributor's guide shows it.
EXPLAINED = 'doc/source/contributor/mutation-survivors.csv'

#: Of so many changes one may survive.
ONE_IN = 10


@dataclasses.dataclass(frozen=True)
class Survivor:
    """A change that survived all tests that were run against it."""

    mutant: mutants.Mutant
    told: str

    @property
    def key(self) -> tuple[str, str, str]:
        return self.mutant.module, self.mutant.function, self.told


def explained(root: pathlib.Path) -> dict[tuple[str, str, str], str]:
    """Return why a change stays, by module, function and what is changed."""
    with (root / EXPLAINED).open(encoding='utf-8', newline='') as file:
        return {
            (row['module'].strip('`'), row['function'].strip('`'),
             row['change'].strip('`')): row['reason']
            for row in csv.DictReader(file)}


def passed(
    count: int, found: Sequence[Survivor],
    reasons: dict[tuple[str, str, str], str],
) -> bool:
    """Whether few enough survived, and each of them is explained."""
    return (len(found) * ONE_IN <= count
            and all(each.key in reasons for each in found))
