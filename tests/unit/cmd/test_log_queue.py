# SPDX-License-Identifier: Apache-2.0
"""Log lines that a thread of their own writes."""

import logging
import threading

from oslo_log import formatters

from cellsched.cmd import log_queue
from cellsched import context
from tests.unit import base


class Handler(logging.Handler):
    """Keeps lines, and who wrote them; waits first, where it is told to."""

    def __init__(self):
        super().__init__()
        self.lines = []
        self.threads = set()
        self.go_on = threading.Event()
        self.go_on.set()

    def emit(self, record):
        self.go_on.wait(600)
        self.lines.append(self.format(record))
        self.threads.add(threading.get_ident())


class TestLogQueue(base.TestCase):

    def setUp(self):
        super().setUp()
        self.handler = Handler()
        self.logger = logging.Logger('test')
        self.logger.addHandler(self.handler)
        self.queue = log_queue.LogQueue(self.logger)
        self.queue.start()
        self.addCleanup(self.queue.stop)
        self.addCleanup(self.handler.go_on.set)

    def written(self):
        self.queue.stop()
        return self.handler.lines

    def test_who_logs_does_not_wait_until_it_is_written(self):
        self.handler.go_on.clear()
        self.logger.info('one %s', 'line')
        self.assertEqual([], self.handler.lines)

        self.handler.go_on.set()
        self.assertEqual(['one line'], self.written())
        self.assertNotIn(threading.get_ident(), self.handler.threads)

    def test_nothing_is_lost_when_it_is_stopped(self):
        self.handler.go_on.clear()
        for number in range(1000):
            self.logger.info('%d', number)
        threading.Timer(0, self.handler.go_on.set).start()

        self.assertEqual(list(map(str, range(1000))), self.written())

    def test_line_has_the_values_of_the_moment(self):
        self.handler.go_on.clear()
        hosts = ['host1']
        self.logger.info('on %s', hosts)
        hosts.append('host2')
        self.handler.go_on.set()

        self.assertEqual(["on ['host1']"], self.written())

    def test_line_has_the_context_of_who_logged_it(self):
        self.handler.setFormatter(formatters.ContextFormatter(
            '%(message)s', config=_Options()))
        context.RequestContext(request_id='req-mine', overwrite=True)
        self.addCleanup(context.RequestContext, overwrite=True)
        self.logger.info('mine')
        self.logger.info('other', extra={
            'context': context.RequestContext(
                request_id='req-other', overwrite=False)})

        self.assertEqual(
            ['req-mine mine', 'req-other other'], self.written())

    def test_traceback_is_written_as_the_handler_formats_it(self):
        try:
            raise ValueError('wrong')
        except ValueError:
            self.logger.exception('Failed')

        [line] = self.written()
        self.assertEqual(
            ('Failed', 'ValueError: wrong'),
            (line.splitlines()[0], line.splitlines()[-1]))

    def test_handler_gets_what_its_level_allows(self):
        self.handler.setLevel(logging.WARNING)
        self.logger.info('fine')
        self.logger.warning('odd')

        self.assertEqual(['odd'], self.written())

    def test_who_logs_too_much_writes_it(self):
        self.patch(log_queue, 'WAITING_MAX', 0)
        self.logger.info('more')

        self.assertEqual(['more'], self.handler.lines)
        self.assertEqual({threading.get_ident()}, self.handler.threads)

    def test_stopped_queue_leaves_writing_to_who_logs(self):
        self.queue.stop()
        self.queue.stop()
        self.logger.info('late')

        self.assertEqual(['late'], self.handler.lines)

    def test_handlers_that_were_replaced_meanwhile_stay(self):
        other = Handler()
        self.logger.handlers = [other]

        self.queue.stop()

        self.assertEqual([other], self.logger.handlers)


class _Options:
    """What oslo.log's formatter asks its configuration."""

    logging_context_format_string = '%(request_id)s %(message)s'
    logging_default_format_string = '- %(message)s'
    logging_exception_prefix = ''
    logging_user_identity_format = '%(user)s'
    logging_debug_format_suffix = ''
