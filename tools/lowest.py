# SPDX-License-Identifier: Apache-2.0
"""Print constraints that have pip install the lowest versions.

    lowest.py REQUIREMENTS SETUP_CFG TESTED

Each library that the file REQUIREMENTS or an extra of SETUP_CFG names is held
to its lower bound. Of what these need in turn pip takes the newest version
that goes with them, up to the one in TESTED, so that what is released later
changes nothing.
"""

import configparser
import sys

from packaging import requirements
from packaging import utils


def main(path: str, setup_cfg: str, tested: str) -> None:
    setup = configparser.RawConfigParser()
    setup.read(setup_cfg, encoding='utf-8')
    lowest = {}
    for required in (*_requirements(_lines(path)), *(
            each for extra in setup['extras'].values()
            for each in _requirements(extra.splitlines()))):
        [bound] = [each.version for each in required.specifier
                   if each.operator == '>=']
        lowest[utils.canonicalize_name(required.name)] = bound
    for name, bound in sorted(lowest.items()):
        print(f'{name}=={bound}')
    for required in _requirements(_lines(tested)):
        name = utils.canonicalize_name(required.name)
        if name not in lowest:
            print(f'{name}{required.specifier}'.replace('==', '<='))


def _lines(path: str) -> list[str]:
    with open(path, encoding='utf-8') as lines:
        return lines.readlines()


def _requirements(lines: list[str]) -> list[requirements.Requirement]:
    return [requirements.Requirement(line) for line in (
        line.partition('#')[0].strip() for line in lines) if line]


if __name__ == '__main__':
    main(*sys.argv[1:])
