# SPDX-License-Identifier: Apache-2.0
"""Checks of input, whose errors name the field and the expectation.

* ``json_schema``: values, by JSON schemas.
* ``yaml_file``: YAML files of users.
* ``uuids``: the form of uuids.
* ``files``: files that options name.
"""
