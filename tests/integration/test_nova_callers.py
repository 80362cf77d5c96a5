# SPDX-License-Identifier: Apache-2.0
"""The commands of the page "Serve callers that use Nova's RPC"."""

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
        # The installation does not count as time of the test.
        cls.python = base.installed(caller.python)

    def setUp(self):
        super().setUp()
        # The existing Nova has created it.
        self.make('rabbitmqctl add_vhost', 'nova')
        self.server, self.other = nova_base.new(2)

    def test_page_serves_callers_of_nova(self):
        files = {block.caption: block for block in pages.blocks(PAGE)
                 if block.language == 'ini'}
        for block in pages.blocks(test_first_deployment.PAGE):
            if block.caption == 'services':
                break
            self.follow(files.get(block.caption, block))
        for block in pages.blocks(PAGE):
            self.follow(block)

        # The commands come from this page.
        for word in ('host list', 'ping', 'explain', 'Each: small'):
            self.assertIn(word, ' '.join(self.followed))

    def follow(self, block):
        if block.language == 'sql':
            self.execute(block)
        elif block.caption == "the service's environment":
            self.type(block, PATH=os.pathsep.join(
                (str(self.python.parent), os.environ['PATH'])))
        elif block.caption == 'explain':
            self.call_as_nova()
            self.explain(block)
            self.report_as_nova()
        else:
            super().follow(block)
        if block.caption == 'etc/service.conf':
            # The client takes seconds to start.
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

    def call_as_nova(self):
        """Call the scheduler as Nova's conductors do."""
        self.nova.wait()

        [[selection]] = self.ask(self.server)['result']
        self.assertEqual(
            ('compute1', 'compute1', self.cell),
            tuple(selection['fields'][name] for name in (
                'service_host', 'nodename', 'cell_uuid')))
        # Nova sends its own uuid of the cell.
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

    def report_as_nova(self):
        """Release the claim of a server as Nova's computes do."""
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
        """Find the log lines of the page in the scheduler's log."""
        scheduler, *_ = self.services.values()
        text = (pages.SOURCE / PAGE).read_text()
        [shown] = re.findall(r'^    … (INFO .*)$', text, re.MULTILINE)
        for line in (re.escape(shown).replace('…', '.*') + r'\n',
                     r'Refused select_destinations: .*_nova_check_type'):
            scheduler.wait_for(line)

    def explain(self, block):
        """Repeat the command until the decision is written."""
        def explained():
            try:
                self.type(block, SERVER=self.server)
            except processes.ProcessFailed:
                return False
            return True

        processes.wait_until(explained, 'the decision')


class TestPage(base.TestCase):

    def test_configuration_files_of_both_services_agree(self):
        own, service = (self.options(name) for name in (
            'etc/api.conf', 'etc/service.conf'))

        self.assertEqual(service['DEFAULT']['transport_url'],
                         own['DEFAULT']['transport_url'])
        self.assertEqual(dict(service['oslo_messaging_rabbit']),
                         dict(own['oslo_messaging_rabbit']))

    def test_every_url_of_the_page_is_replaced(self):
        self.assertEqual([], pages.unknown_urls(PAGE))

    def options(self, name):
        [text] = [block.text for block in pages.blocks(PAGE)
                  if block.caption == name]
        parser = configparser.RawConfigParser(default_section='')
        parser.read_string(text)
        return parser
