# SPDX-License-Identifier: Apache-2.0
"""The file with the figures of ``exactness.py``."""

import csv
import io

#: Figures of a store with a number of schedulers.
COLUMNS = ('store', 'server', 'schedulers', 'clients', 'hosts', 'places',
           'claims', 'oversold', 'refused_although_it_fitted', 'gave_up',
           'conflicts', 'claims_per_second', 'p50_ms', 'p99_ms', 'cpus')

#: Columns that are not numbers.
TEXTS = COLUMNS[:2]


def read(file):
    """Return the rows of a file."""
    with open(file, encoding='utf-8', newline='') as lines:
        return [{name: value if name in TEXTS else number(value)
                 for name, value in row.items()}
                for row in csv.DictReader(lines)]


def number(text):
    return float(text) if '.' in text else int(text)


def as_csv(rows):
    """Return the text of a file."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator='\n')
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
