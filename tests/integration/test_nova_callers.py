# SPDX-License-Identifier: Apache-2.0
"""The page "Serve callers that use Nova's RPC", to the letter."""

import configparser
import os
import re

import psycopg2

from cellsched.conf import loader
from cellsched.wiring import services
from tests.integration import base
from tests.integration.nova import base as nova_base
from tests.integration.nova import caller
from tests.integration import pages
from tests.integration import processes
from tests.integration import test_first_deployment
from tests import profile

PAGE = 'user/nova-callers.rst'


@profile.full_only(
    'whole Novas: by default its client makes the calls of the page')
class TestNovaCallers(pages.Following):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # To install Nova first is not of the test's time.
        cls.python = base.installed(caller.python)

    def setUp(self):
        super().setUp()
        # Nova has it already.
        self.make('rabbitmqctl add_vhost', 'nova')
        self.server, self.other = nova_base.new(2)

    def test_page_has_callers_get_their_answers(self):
        files = {block.caption: block for block in pages.blocks(PAGE)
                 if block.language == 'ini'}
        for block in pages.blocks(test_first_deployment.PAGE):
            if block.caption == 'services':
                break
            self.follow(files.get(block.caption, block))
        for block in pages.blocks(PAGE):
            self.follow(block)

        # The page has been read, and not some other one.
        for word in ('host list', 'ping', 'explain', 'Each: small'):
            self.assertIn(word, ' '.join(self.followed))

    def follow(self, block):
        if block.language == 'sql':
            self.execute(block)
        elif block.caption == "the service's environment":
            self.type(block, PATH=os.pathsep.join(
                (str(self.python.parent), os.environ['PATH'])))
        elif block.caption == 'explain':
            self.ask_as_nova()
            self.explain(block)
            self.tell_as_nova()
        else:
            super().follow(block)
        if block.caption == 'etc/service.conf':
            # It takes seconds to be ready.
            self.nova = self.useFixture(caller.Caller(
                self.python, self.directory / block.caption))

    def execute(self, block):
        """Run a statement in the database of the caption's name."""
        url = self.make('createdb', block.caption)
        connection = psycopg2.connect(url.replace('+psycopg2', ''))
        self.addCleanup(connection.close)
        with connection, connection.cursor() as cursor:
            cursor.execute(block.text)
            self.assertEqual(1, cursor.rowcount)
        self.cell = re.findall(r"uuid = '(.*)'", block.text)[0]

    def ask_as_nova(self):
        """Do with Nova's client what the page says of Nova's conductors."""
        self.nova.wait()

        [[selection]] = self.ask(self.server)['result']
        self.assertEqual(
            ('compute1', 'compute1', self.cell),
            tuple(selection['fields'][name] for name in (
                'service_host', 'nodename', 'cell_uuid')))
        # Nova names the cell by its own uuid.
        [[selection]] = self.ask(self.other, destination={
            'host': '', 'cell': self.cell})['result']
        self.assertEqual('compute1', selection['fields']['service_host'])

        error = self.ask(*nova_base.new(1), flavor=nova_base.GIANT)['error']
        self.assertIn('nova.exception.NoValidHost', error['mro'])
        self.assertRegex(error['message'], r'\bhost is too small in memory')
        self.assertNotIn('compute1', error['message'])
        for hint in ('_nova_check_type', 'hue'):
            error = self.ask(*nova_base.new(1), scheduler_hints={
                hint: ['rebuild']})['error']
            self.assertIn('nova.exception.NoValidHost', error['mro'])
            self.assertIn(hint, error['message'])
        self.check_log()

    def tell_as_nova(self):
        """Have a server's claim released as the page says of computes."""
        parts = services.Components(loader.load(
            files=[str(self.directory / 'etc/api.conf')], dirs=[]))
        self.addCleanup(parts.close)
        self.assertIn(self.server, parts.claims.claims_of([self.server]))

        self.nova.call('delete_instance_info', host_name='compute1',
                       instance_uuid=self.server)

        processes.wait_until(
            lambda: not parts.claims.claims_of([self.server]), 'the release')
        self.assertIn(self.other, parts.claims.claims_of([self.other]))

    def ask(self, uuid, **request):
        return self.nova.call(
            'select_destinations', instance_uuids=[uuid],
            return_objects=True, return_alternates=True,
            spec_obj={'flavor': nova_base.SMALL, 'instance_uuid': uuid,
                      **request})

    def check_log(self):
        """Find the lines in the scheduler's log that the page shows."""
        scheduler, *_ = self.services.values()
        text = (pages.SOURCE / PAGE).read_text()
        [shown] = re.findall(r'^    … (INFO .*)$', text, re.MULTILINE)
        for line in (re.escape(shown).replace('…', '.*') + r'\n',
                     r'Refused select_destinations: .*_nova_check_type'):
            scheduler.wait_for(line)

    def explain(self, block):
        """Type it until the decision is written, within a second or so."""
        def explained():
            try:
                self.type(block, SERVER=self.server)
            except processes.ProcessFailed:
                return False
            return True

        processes.wait_until(explained, 'the decision')


class TestPage(base.TestCase):

    def test_files_of_both_sides_agree(self):
        ours, theirs = (self.options(name) for name in (
            'etc/api.conf', 'etc/service.conf'))

        self.assertEqual(theirs['DEFAULT']['transport_url'],
                         ours['DEFAULT']['transport_url'])
        self.assertEqual(dict(theirs['oslo_messaging_rabbit']),
                         dict(ours['oslo_messaging_rabbit']))

    def test_every_url_of_the_page_is_replaced(self):
        self.assertEqual([], pages.unknown_urls(PAGE))

    def options(self, name):
        [text] = [block.text for block in pages.blocks(PAGE)
                  if block.caption == name]
        parser = configparser.RawConfigParser(default_section='')
        parser.read_string(text)
        return parser
