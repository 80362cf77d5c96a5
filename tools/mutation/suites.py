# SPDX-License-Identifier: Apache-2.0
"""Which tests are run against a change of a module."""

import pathlib

#: Tests that come to most of a package within a minute or two. What only
#: PostgreSQL does is tested there; without the server these skip, and notice
#: nothing.
BEYOND_UNIT = {
    'cellsched/audit': (
        'functional.test_audit',
    ),
    'cellsched/claims': (
        'functional.test_concurrent_decisions',
        'functional.test_group_races',
        'functional.test_moves',
        'integration.claims.test_at_once',
        'integration.claims.test_grouping',
    ),
    'cellsched/conductor': (
        'functional.test_deletion',
        'functional.test_moves',
        'functional.test_interrupted_moves',
        'functional.test_networks',
        'functional.test_quota',
        'functional.test_recovery',
        'functional.test_reschedule',
    ),
    'cellsched/scheduler': (
        'functional.test_decision_page',
        'functional.test_moves',
        'functional.test_no_valid_host',
        'functional.test_reasons',
        'functional.test_server_groups',
        'functional.test_servers_land_in_cells',
    ),
}


def stages(root: pathlib.Path, module: str) -> list[list[str]]:
    """Return test modules, those first that are the module's own.

    The next ones are only for changes that have survived these: unit tests of
    the package, then larger ones.

    :param module: its path from the root of the tree
    """
    package = '/'.join(pathlib.PurePosixPath(module).parts[:2])
    beyond = [f'tests.{name}'
              for name in BEYOND_UNIT.get(package, ())]
    return [stage for stage in (
        _own(root, module), _of_package(root, package), beyond) if stage]


def _own(root: pathlib.Path, module: str) -> list[str]:
    """Return the tests that stand where the module stands."""
    path = pathlib.PurePosixPath(module).with_suffix('')
    if path.name == '__init__':
        path = path.parent
    where = root / 'tests/unit' / path.parent.relative_to('cellsched')
    return _named(root, [*where.glob(f'test_{path.name}.py'),
                         *where.glob(f'test_{path.name}_*.py')])


def _of_package(root: pathlib.Path, package: str) -> list[str]:
    name = pathlib.PurePosixPath(package).name
    unit = root / 'tests/unit'
    return _named(root, [*(unit / name).rglob('test_*.py'),
                         *unit.glob(f'test_{name}*.py')])


def _named(
    root: pathlib.Path, paths: list[pathlib.Path]
) -> list[str]:
    """Return tests by their dotted names."""
    return sorted('.'.join(path.relative_to(root).with_suffix('').parts)
                  for path in paths)
