# SPDX-License-Identifier: Apache-2.0
"""The pages of failures, of the audit and of states are complete."""

import importlib
import re

from cellsched.audit import findings
from cellsched.db.cell import states
from tests.unit import base
from tests.unit import tidy

PAGES = tidy.ROOT / 'doc' / 'source'


class TestFailures(base.TestCase):

    def test_each_test_of_a_failure_exists(self):
        text = (PAGES / 'admin' / 'failures.rst').read_text(encoding='utf-8')
        named = re.findall(r'``(tests\.[\w.]+)``', text)
        rows = text.count('\n   * - ') - 1

        self.assertEqual(rows, len(named))
        for name in named:
            module, _, kind = name.rpartition('.')
            if kind[0].isupper():
                tests = vars(getattr(importlib.import_module(module), kind))
            else:
                tests = {
                    method for each in
                    vars(importlib.import_module(name)).values()
                    if isinstance(each, type) for method in dir(each)}
            self.assertTrue(
                [each for each in tests if each.startswith('test_')], name)


class TestAudit(base.TestCase):

    def test_each_finding_is_documented_with_its_invariant(self):
        text = (PAGES / 'admin' / 'audit.rst').read_text(encoding='utf-8')
        sections = re.split(r'(?m)^([SL]\d+), ', text)
        told = {}
        for invariant, section in zip(sections[1::2], sections[2::2]):
            for row in re.findall(r'(?m)^   \* - (``.*)$', section):
                told.update(dict.fromkeys(
                    re.findall(r'``([\w-]+)(?:.…)?``', row), invariant))

        self.assertEqual(findings.KINDS, told)


class TestStates(base.TestCase):

    def test_every_transition_is_drawn(self):
        text = (PAGES / 'contributor' / 'states.rst').read_text(
            encoding='utf-8')

        for name in states.TRANSITIONS:
            self.assertRegex(text, rf'(─ |│ |\s){name}( ─|\n|\s)')

    def test_every_state_is_drawn(self):
        text = (PAGES / 'contributor' / 'states.rst').read_text(
            encoding='utf-8')

        for name, transition in states.TRANSITIONS.items():
            for state in transition.before or ():
                if state.task_state in states.NOVA_TASKS:
                    # The page has them as any task on a host that is down.
                    continue
                self.assertIn(
                    ', '.join(filter(None, state)), text, (name, state))
