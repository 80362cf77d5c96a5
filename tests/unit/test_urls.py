# SPDX-License-Identifier: Apache-2.0
"""URLs that hold passwords, made fit to be seen."""

from urllib import parse

import hypothesis
from hypothesis import strategies as st

from cellsched import urls
from tests.unit import base

MARK = 's3cr3t'

#: A password with all that may be mistaken for a part of the URL. Its every
#: part of it that means something has the mark.
PASSWORDS = st.lists(
    st.sampled_from([
        MARK, MARK, '@', ':', '/', '%', '#', '?', '&', "'", '"', ' ', ';',
        '=', ',', '[', ']', '\\', '\n', '\0', 'é', '漢', '://', '%40', '%3A',
        '1', 'password=', '?key=', '&token=', '@host', 'host:5'])
    | st.characters(), max_size=12,
).map(lambda parts: ''.join([*parts, MARK]))

SHAPES = (
    'rabbit://user:{}@host/vhost',
    'mysql+pymysql://user:{}@host:3306/db?charset=utf8',
    'postgresql://user:{}@[::1]:5432/db',
    'redis://:{}@host',
    'rabbit://user:{}@one:5672,other:{}@host:5672/vhost?heartbeat=1',
    'rabbit://one:5672,user:{}@host:5672/',
    'postgresql://user:{}@host/db?application_name=cells#part',
)
QUERIES = (
    'postgresql://host/db?password={}',
    'postgresql://host:5432/db?user=me&password={}&sslmode=require',
    'postgresql://host/db?sslmode=require;sslpassword={}',
    'kafka://host/?sasl_PASSWD={}&api_key={}',
    'postgresql://user@host/db?password={}#part',
)


class TestMask(base.TestCase):

    @hypothesis.given(
        st.sampled_from(SHAPES + QUERIES), PASSWORDS, st.booleans())
    def test_each_part_of_a_password_is_masked(self, shape, password, encoded):
        if encoded:
            password = parse.quote(password, safe='', errors='replace')

        masked = urls.mask(shape.replace('{}', password))

        self.assertNotIn(MARK, masked)
        self.assertIn('****', masked)
        self.assertTrue(masked.startswith(shape.partition('://')[0] + '://'))

    @hypothesis.given(PASSWORDS, PASSWORDS)
    def test_passwords_of_user_and_query_are_masked(self, one, other):
        masked = urls.mask(f'mysql://user:{one}@host/db?ssl_password={other}')

        self.assertNotIn(MARK, masked)

    @hypothesis.given(st.sampled_from(SHAPES), PASSWORDS)
    def test_last_host_stays_readable(self, shape, password):
        # Whether a raw question mark begins the query nobody can tell.
        password = password.replace('?', '')

        masked = urls.mask(shape.replace('{}', password))

        place = shape.rpartition('@')[2]
        self.assertEqual(f'****@{place}', masked[-len(place) - 5:])

    @hypothesis.given(st.sampled_from(QUERIES), PASSWORDS)
    def test_host_before_an_encoded_query_stays_readable(
            self, shape, password):
        password = parse.quote(password, safe='', errors='replace')

        masked = urls.mask(shape.replace('{}', password))

        self.assertEqual(shape.partition('{}')[0] + '****', masked)

    @hypothesis.given(PASSWORDS)
    def test_malformed_url_is_not_quoted(self, password):
        for text in (f'user:x{password}@host/db',
                     f'rabbit:/user:{password}@host/',
                     f'user:x{password}://host/'):
            self.assertNotIn(MARK, urls.mask(text))

    @hypothesis.given(PASSWORDS)
    def test_password_of_a_url_without_a_host_is_masked(self, password):
        password = parse.quote(password, safe='', errors='replace')

        masked = urls.mask(f'rabbit://user:{password}')

        self.assertEqual('rabbit://user:****', masked)

    def test_user_stays_readable(self):
        self.assertEqual('rabbit://me:****@host:5672/vhost',
                         urls.mask('rabbit://me:secret@host:5672/vhost'))
        self.assertEqual('rabbit://me@host/', urls.mask('rabbit://me@host/'))

    def test_url_without_a_password_is_unchanged(self):
        for url in ('sqlite:////var/lib/cell@1.sqlite', 'none:///',
                    'local://world/vhost', 'rabbit://one:5672,other:5672/',
                    'postgresql://[::1]:5432/db?sslmode=require',
                    'sqlite:///C:/cells/one.sqlite'):
            self.assertEqual(url, urls.mask(url))

    def test_missing_url_is_an_empty_text(self):
        self.assertEqual('', urls.mask(None))
        self.assertEqual('', urls.mask(''))


class TestMaskText(base.TestCase):

    @hypothesis.given(
        st.lists(st.sampled_from(SHAPES + QUERIES), min_size=1, max_size=3),
        PASSWORDS, st.booleans(), st.sampled_from(('', 'no way to ', '://')))
    def test_each_part_of_a_password_is_masked(
            self, shapes, password, encoded, before):
        if encoded:
            password = parse.quote(password, safe='', errors='replace')
        quoted = ' or '.join(
            shape.replace('{}', password) for shape in shapes)

        masked = urls.mask_text(f'{before}{quoted}: gone\nfor good')

        self.assertNotIn(MARK, masked)
        self.assertTrue(masked.startswith(before))

    def test_rest_of_the_text_stays_readable(self):
        for text, expected in (
                ('no way', 'no way'),
                ('see https://docs.test/x, please', None),
                ('no way to mysql://u:p@h/db: (1045) denied',
                 'no way to mysql://u:****@h/db: (1045) denied'),
                ('1rabbit://u:p@h', '1rabbit://u:****@h'),
                ('from x://u:p@h to y://v', 'from x://u:****@h to y://****'),
                ('from x://h/ to y://v', 'from x://h/ to y://****')):
            self.assertEqual(expected or text, urls.mask_text(text))

    def test_long_text_is_masked_at_little_cost(self):
        for text in ('a' * 10**6, 'a' * 10**6 + '://u:p@h',
                     'a://' + '?' * 10**6, '://' * 10**5):
            masked = urls.mask_text(text)

            self.assertLessEqual(len(masked), len(text) + 4)
