# SPDX-License-Identifier: Apache-2.0
"""The page of a report, from its data alone."""

import copy
import datetime
import html.parser
import re
import shutil
import subprocess

from cellsched.cli import report
from cellsched.cli import report_page
from tests import profile
from tests.unit import base

#: A name that no page may take for markup.
HOSTILE = '"\'><script>document.title="owned"</script><b onclick=x>&amp;\u202e'

SECTIONS = ('cells', 'services', 'hosts', 'builds', 'refusals', 'decision')

BROWSERS = ('chromium', 'chromium-browser', 'google-chrome')

#: Elements of HTML that have no end.
VOID = {'meta', 'br'}

UUID = '0f871c89-5fff-4c6c-b91d-f2da9f02876a'


def resources():
    return {'VCPU': {'total': 1100, 'reserved': 100, 'used': 250,
                     'free': 700, 'unavailable': 50},
            'CUSTOM_X': {'total': 2, 'reserved': 0, 'used': 3, 'free': 0,
                         'unavailable': 0}}


def share(by, weight):
    return {'by': by, 'raw': 512.5, 'scaled': 0.25, 'multiplier': 1.0,
            'weight': weight}


def place(host, weight):
    return {'host': host, 'node': host, 'cell': UUID, 'weight': weight,
            'shares': [share('RAMWeigher', weight), share('IoOps', -0.0)]}


def decision(**changes):
    return {
        'version': 1, 'decided_at': '2026-11-26T20:59:58.120Z',
        'request_id': HOSTILE, 'hosts': 3, 'reason': None,
        'stages': [{'by': 'ComputeFilter', 'entered': 3, 'left': 2,
                    'reason': 'is down'}],
        'picks': [{'instance': UUID, 'candidates': 2,
                   'first': place('chosen', 1.5),
                   'second': place('second', 1.25)}],
        'rejections': [], 'examples': {}, 'way': None, 'instances': [UUID],
        'request': {'instances': 1, 'flavor': HOSTILE, 'resources': {
            'VCPU': 1}, 'hints': {HOSTILE: [HOSTILE]}},
        'why_not_second': 'second weighs less.', **changes}


def data(**changes):
    """Return the data of a report with a silent cell and hostile names."""
    cell = {'uuid': UUID, 'disabled': True, 'state': 'up', 'reason': '',
            'hosts': 12345, 'hosts_up': 12000, 'hosts_disabled': 1,
            'servers': 7, 'resources': resources()}
    series = {
        'read': 5, 'limited': True, 'refused': 3, 'earlier': 1, 'step_s': 300,
        'reasons': [{'reason': HOSTILE, 'about': HOSTILE, 'count': 3,
                     'latest': '2026-11-26T20:59:58Z'}],
        'bars': [{'at': '2026-11-26T20:50:00Z', 'counts': [0]},
                 {'at': '2026-11-26T20:55:00Z', 'counts': [3]}]}
    return {
        'version': report.VERSION, 'taken_at': '2026-11-26T21:00:00Z',
        'limit': 1000, 'problems': [{'part': 'builds', 'problem': HOSTILE}],
        'cells': [
            {**cell, 'name': HOSTILE},
            {**cell, 'name': 'quiet-cell', 'uuid': 'x', 'state': 'down',
             'hosts_up': None, 'reason': HOSTILE, 'resources': {}}],
        'resources': resources(),
        'shared_providers': [{'name': HOSTILE, 'aggregate': HOSTILE,
                              'resources': resources()}],
        'hosts': {
            'up': 12000, 'down': 45, 'disabled': 1, 'unknown': 300, 'full': 1,
            'listed': 46, 'rows': [{
                'host': f'{HOSTILE}{number}', 'cell': HOSTILE,
                'state': 'down', 'disabled': True, 'reason': HOSTILE,
                'forced_down': True, 'seen_at': None, 'full': ['VCPU']}
                for number in range(45)]},
        'services': {
            'up': 4, 'down': 30, 'stopped': 1, 'listed': 31, 'rows': [{
                'binary': 'cellsched-scheduler', 'host': f'{HOSTILE}{number}',
                'cell': HOSTILE, 'state': 'down', 'seen_at': None}
                for number in range(30)]},
        'builds': {
            'servers': 1, 'limited': True,
            'states': [{'state': 'spawning', 'servers': 1,
                        'oldest_s': 93784}],
            'rows': [{'uuid': UUID, 'name': HOSTILE, 'project_id': HOSTILE,
                      'state': 'spawning', 'cell': HOSTILE, 'host': HOSTILE,
                      'attempts': 2, 'created_at': '2026-11-25T19:00:00Z',
                      'age_s': 93784, 'reason': HOSTILE}]},
        'refusals': {'decisions': {'kept_s': 3600, **series},
                     'failures': copy.deepcopy(series)},
        'decision': decision(), **changes}


class Reader(html.parser.HTMLParser):
    """Reads the elements of a page; complains of one that does not end."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.ids, self.open, self.text = [], [], [], ''
        self.attributes = set()
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.ids += [value for name, value in attrs if name == 'id']
        self.attributes.update(name for name, _ in attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if (last := self.open.pop()) != tag:
            raise AssertionError(f'</{tag}> ends <{last}>')

    def handle_data(self, text):
        if 'style' not in self.open:
            self.text += text


class TestPage(base.TestCase):

    def read(self, **changes):
        self.page = report_page.render(data(**changes))
        return Reader(self.page)

    def test_page_has_all_sections_and_ends_each_element(self):
        found = self.read()

        self.assertEqual([], found.open)
        for name in SECTIONS:
            self.assertIn(name, found.ids)
        for text in ('quiet-cell is silent', '12\u202f345',
                     '1\u202fd 2\u202fh', 'over capacity', '25 more',
                     'second weighs less.',
                     'Not read: builds.'):
            self.assertIn(text, found.text)

    def test_names_are_text_and_never_markup(self):
        found = self.read()

        self.assertNotIn('script', found.tags)
        self.assertNotIn('onclick', found.attributes)
        self.assertIn('<script>document.title="owned"</script>', found.text)
        # A name with a mark of direction does not turn the text around it.
        self.assertIn('bdi', found.tags)

    def test_page_contains_no_script_and_no_external_resource(self):
        found = self.read()

        self.assertLessEqual(set(found.tags), {
            'html', 'head', 'meta', 'title', 'style', 'body', 'header', 'h1',
            'h2', 'h3', 'p', 'nav', 'a', 'ul', 'li', 'span', 'b', 'small',
            'main', 'section', 'i', 'div', 'article', 'bdi', 'table', 'thead',
            'tbody', 'tfoot', 'tr', 'th', 'td', 'br', 'code', 'details',
            'summary', 'figure', 'figcaption', 'dl', 'dt', 'dd', 'footer'})
        self.assertNotIn('src', found.attributes)
        self.assertNotRegex(self.page, r'(?i)url\(|@import|https?://')
        self.assertEqual({f'#{name}' for name in SECTIONS}, set(
            re.findall(r'href="([^"]*)"', self.page)))
        self.assertIn("default-src 'none'", self.page)

    def test_bars_are_shares_of_the_whole(self):
        self.read()

        for width in ('22.7273%', '9.0909%', '63.6364%', '100.0000%'):
            self.assertIn(f'style="width:{width}"', self.page)

    def test_refused_decision_shows_the_rejections(self):
        found = self.read(decision=decision(
            picks=[], reason='No hosts.', why_not_second=None, rejections=[
                {'by': 'capacity:VCPU', 'hosts': 2, 'reason': 'lacks CPUs',
                 'nearest': {'hosts': 1, 'amount': 4.0, 'unit': 'VCPU'}},
                {'by': 'cells', 'hosts': 0, 'reason': 'does not answer',
                 'cells': [HOSTILE]}],
            examples={'capacity:VCPU': ['n1', 'n2']}))

        for text in 'refused', 'No hosts.', '1 by 4 VCPU', 'n1', 'n2':
            self.assertIn(text, found.text)
        self.assertNotIn('Weights', found.text)

    def test_empty_deployment_has_a_page(self):
        series = {'read': 0, 'limited': False, **report._series(
            [], datetime.datetime(2026, 11, 26))}
        found = self.read(
            cells=[], resources={}, shared_providers=[], decision=None,
            problems=[],
            hosts={**data()['hosts'], 'rows': [], 'listed': 0},
            services={'up': 0, 'down': 0, 'stopped': 0, 'listed': 0,
                      'rows': []},
            builds={'servers': 0, 'limited': False, 'states': [], 'rows': []},
            refusals={'decisions': {'kept_s': 0, **series},
                      'failures': series})

        for text in 'No decision is recorded', 'Decisions are not recorded':
            self.assertIn(text, found.text)
        self.assertNotIn('problems', found.ids)

    def test_only_candidate_and_kept_host_are_shown(self):
        alone = {**decision()['picks'][0], 'second': None}

        self.assertIn('no second candidate',
                      self.read(decision=decision(picks=[alone])).text)
        self.assertIn('kept the host', self.read(
            decision=decision(picks=[])).text)

    def test_axis_ends_at_an_even_round_number(self):
        for number, expected in ((0, 2), (1, 2), (3, 4), (9, 10), (10, 10),
                                 (21, 30), (99, 100), (1234, 2000)):
            self.assertEqual(expected, report_page._round_up(number))


class TestBrowser(base.TestCase):

    @profile.full_only('the elements of the page are read by default')
    def test_browser_shows_the_sections_and_no_error(self):
        browser = next(filter(None, map(shutil.which, BROWSERS)), None)
        if browser is None:
            self.skipTest(f'none of {", ".join(BROWSERS)} is installed')
        directory = self.temporary_directory()
        path = directory / 'report.html'
        path.write_text(report_page.render(data()))

        ran = subprocess.run(
            [browser, '--headless', '--no-sandbox', '--disable-gpu',
             '--disable-dev-shm-usage', '--no-first-run',
             f'--user-data-dir={directory}/profile', '--enable-logging=stderr',
             '--proxy-server=127.0.0.1:9', '--dump-dom', path.as_uri()],
            capture_output=True, text=True, timeout=120)

        self.assertEqual(0, ran.returncode, ran.stderr)
        # The browser logs errors of the page and of its policy there.
        self.assertNotIn('CONSOLE', ran.stderr)
        found = Reader(ran.stdout)
        for name in SECTIONS:
            self.assertIn(name, found.ids)
        self.assertNotIn('script', found.tags)
        self.assertIn('<title>cellsched report', ran.stdout)
