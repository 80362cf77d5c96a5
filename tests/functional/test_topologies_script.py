# SPDX-License-Identifier: Apache-2.0
"""``tools/topologies.sh`` and its page, without servers."""

import contextlib
import io
import re

from tests.integration import pages
from tests.integration.topologies import example
from tests.unit import base
from tools import topologies

#: Sections whose servers are in no package of Debian.
NOT_EXECUTED = {'ProxySQL in front of Galera'}


class TestTopologies(base.TestCase):

    def test_each_example_of_the_page_has_a_story(self):
        text = (pages.SOURCE / example.PAGE).read_text()
        headings = re.findall(r'^(\S.*)\n=+$', text, re.MULTILINE)

        sections = {heading for heading in headings[1:]
                    if pages.blocks(example.PAGE, heading)}

        self.assertEqual(
            {kind.section for kind in topologies.STORIES.values()},
            sections - NOT_EXECUTED)

    def test_results_above_their_bars_are_named(self):
        figures = {'topology': 'etcd', 'story': 'killed_leader', 'lost': 1,
                   'over': 0, 'p99 s': 9.9, 'gap s': 20}

        self.assertEqual(
            ['etcd, killed_leader: lost is 1; expected at most 0'],
            topologies.exceeded([figures]))
        self.assertEqual([], topologies.exceeded([{**figures, 'lost': 0}]))

    def test_worst_round_of_each_story_is_shown(self):
        killed = {'topology': 'etcd', 'story': 'killed_leader'}
        speed = {'topology': 'etcd', 'story': 'claims_a_second'}

        self.assertEqual(
            [{**speed, 'ratio': 0.6}, {**killed, 'p99 s': 9.9}],
            topologies.worst([
                {**killed, 'p99 s': 6.0}, {**speed, 'ratio': 0.7},
                {**killed, 'p99 s': 9.9}, {**speed, 'ratio': 0.6},
                {**killed, 'p99 s': 8.0}]))

    def test_error_for_an_unknown_story_lists_stories(self):
        error = io.StringIO()

        with contextlib.redirect_stderr(error):
            self.assertRaises(SystemExit, topologies.main, ['oracle'])

        self.assertIn('oracle is unknown; expected galera', error.getvalue())
