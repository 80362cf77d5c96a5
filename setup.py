# SPDX-License-Identifier: Apache-2.0
import configparser
import os
import pathlib

import setuptools

# pbr would count the commits since the last tag: 1.0.0.dev1234. The version
# is the one that setup.cfg names, with tags and without.
_CFG = configparser.ConfigParser()
_CFG.read(pathlib.Path(__file__).with_name('setup.cfg'))
os.environ.setdefault('PBR_VERSION', _CFG['metadata']['version'])

setuptools.setup(setup_requires=['pbr>=7.0.0'], pbr=True)
