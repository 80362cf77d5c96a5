# SPDX-License-Identifier: Apache-2.0
"""The HTML page of runs."""

from html import parser

import hypothesis
from hypothesis import strategies as st

from cellsched.simulator.capacity import page
from tests.unit import base


def document(name='story', seed=1, summary=None, projects=(), **series):
    return {'scenario': {'name': name, 'hosts': [{'count': 3}]},
            'seed': seed, 'summary': summary or {'placed': 3, 'lost': None},
            'series': series, 'projects': list(projects)}


class Elements(parser.HTMLParser):
    """Collects the elements and the texts of a page."""

    def __init__(self, text):
        super().__init__()
        self.found, self.texts, self.open = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in ('meta', 'br', 'polyline'):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag != 'polyline':
            assert self.open.pop() == tag, tag

    def handle_data(self, data):
        self.texts.append(data.strip())

    def lines(self):
        return [attrs['points'] for tag, attrs in self.found
                if tag == 'polyline']


class TestPage(base.TestCase):

    def made(self, *documents):
        made = Elements(page.html(documents))
        self.assertEqual([], made.open)
        return made

    def test_each_measure_is_drawn_with_a_line_for_each_run(self):
        made = self.made(
            document(at_s=[0, 10], servers=[0, 4]),
            document(seed=2, at_s=[0, 20], servers=[2, 1]))

        self.assertEqual(
            ['0.0,150.0 240.0,30.0', '0.0,90.0 480.0,120.0'], made.lines())
        self.assertIn('story, seed 1', made.texts)
        self.assertIn('story, seed 2', made.texts)

    def test_missing_value_is_a_gap(self):
        made = self.made(document(
            at_s=[0, 1, 2, 3, 4], time_to_place_s=[None, 1, None, 1, 0.5]))

        self.assertEqual(['120.0,0.0 120.0,0.0', '360.0,0.0 480.0,75.0'],
                         made.lines())

    def test_counts_are_shown_for_each_interval(self):
        made = self.made(document(at_s=[0, 1, 2], placed=[0, 10, 15]))

        self.assertEqual(['0.0,150.0 240.0,0.0 480.0,75.0'], made.lines())

    def test_long_series_are_averaged(self):
        times = [*range(5 * page.POINTS_MAX)]
        made = self.made(document(
            at_s=times, servers=[at % 5 + 1 for at in times],
            placed=[3 * at for at in times]))

        servers, placed = made.lines()
        self.assertEqual(page.POINTS_MAX, len(servers.split()))
        self.assertEqual(
            {f'{150 * (1 - 3 / 5):.1f}'},
            {point.partition(',')[2] for point in servers.split()})
        # All but the first have five intervals of three servers.
        self.assertEqual({f'{150 * (1 - 15 / 20):.1f}'}, {
            point.partition(',')[2] for point in placed.split()[1:]})

    def test_measure_of_constant_0_has_no_chart(self):
        self.assertEqual([], self.made(
            document(at_s=[0, 1], lost=[0, 0])).lines())

    def test_run_without_samples_is_a_page(self):
        self.assertIn('No samples.', self.made(document()).texts)

    def test_names_of_users_are_escaped(self):
        text = page.html([document('<b>', projects=[{
            'project': '<i>', 'asked': 1, 'placed': 1, 'refused': 0,
            'time_to_place_s': None}])])

        self.assertNotIn('<b>', text)
        self.assertNotIn('<i>', text)
        self.assertIn('&lt;i&gt;', text)

    def test_equal_runs_have_numbers(self):
        self.assertIn('story, seed 1 (2)',
                      self.made(document(), document()).texts)

    @hypothesis.example([5e-324])
    @hypothesis.given(values=st.lists(
        st.none() | st.floats(0, 1e12), min_size=1, max_size=9))
    def test_lines_stay_in_the_chart(self, values):
        made = self.made(document(at_s=[*range(len(values))], servers=values))

        for line in made.lines():
            for point in line.split():
                at, height = map(float, point.split(','))
                self.assertTrue(0 <= at <= page.WIDTH)
                self.assertTrue(0 <= height <= page.HEIGHT)
