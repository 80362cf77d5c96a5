# SPDX-License-Identifier: Apache-2.0
"""The rules of the house as functions that read the source.

A check takes a source and yields complaints. ``test_tidy`` runs them all.
"""

import ast
import configparser
import dataclasses
import fnmatch
import functools
from importlib import metadata
import pathlib
import re
import subprocess

from cellsched import exception

ROOT = pathlib.Path(__file__).resolve().parents[2]

#: Directories that tools make, wherever they stand.
MADE = re.compile(r'\.git|\.venv.*|\.stestr|\.tox|\.eggs|\.hypothesis|'
                  r'.*_cache|__pycache__|build|dist|.*\.egg-info|_generated')

BODY_LINES_MAX = 50
PLUGIN_LINES_MAX = 100

#: What packages of ``integrations/`` are, and are there to import.
INTEGRATED = {'cellsched_nova', 'nova', 'placement'}

#: Models, errors, field lists and histories are as long as they are.
LISTS = ('cellsched/db/*/models.py', 'cellsched/exception.py',
         'cellsched/objects/*.py',
         'cellsched/*/migrations/versions/*.py')

VAGUE = {'common', 'helper', 'helpers', 'misc', 'util', 'utils'}

#: Packages of plug-ins, and the entry points that name what is in them.
PLUGINS = {
    'cellsched/claims': 'cellsched.claims',
    'cellsched/filters': 'cellsched.scheduler.filters',
    'cellsched/quota': 'cellsched.quota',
    'cellsched/network': 'cellsched.network',
    'cellsched/scheduler/drivers': 'cellsched.scheduler.drivers',
    'cellsched/virt': 'cellsched.virt',
    'cellsched/weighers': 'cellsched.scheduler.weighers',
}

#: Modules among the plug-ins that are none: contracts, and what some share.
NO_PLUGINS = ('attributes', 'base', 'comparison', 'coordination',
              'copying', 'deallocation', 'extra_specs_ops',
              'image_needs', 'listing', 'moves', 'remote',
              'validation')

#: Plug-ins that read a language of their own, for which they are longer.
PARSERS = ('json_filter',)

#: Who may import it, by the top of the module's name.
RESERVED = {
    'alembic': ('cellsched/db/*', 'cellsched/claims/sql*'),
    'oslo_db': ('cellsched/conf/*', 'cellsched/db/*', 'cellsched/claims/sql*'),
    'sqlalchemy': ('cellsched/db/*', 'cellsched/claims/sql*'),
    'stevedore': ('cellsched/plugins.py',),
    'time': ('cellsched/clock.py',),
}

#: Read the global configuration: oslo.limit and oslo.concurrency cannot be
#: given another one.
GLOBAL_CONFIGURATION = (
    'cellsched/quota/unified.py', 'tests/unit/quota/keystone.py',
    'cellsched/rpc/rabbit_options.py', 'tests/unit/rpc/test_rabbit_options.py')

TIME = re.compile(r'datetime\.(datetime|date)\.(now|utcnow|today)|'
                  r'oslo_utils\.timeutils\.(now|utcnow|utcnow_ts|StopWatch)')

#: Calls that only wiring makes, and a server, which has threads for messages.
#: What is published for tests may make races of its own, and a generator that
#: is given its seed is no source of chance.
MAKERS = re.compile(
    r'random\.\w+|secrets\.\w+|numpy\.random\.\w+|threading\.(Thread|Timer)|'
    r'(concurrent\.)?futur\w+\.\w+Executor|multiprocessing\.\w+')
SEEDED = re.compile(r'random\.Random|numpy\.random\.default_rng')
WIRING = ('cellsched/wiring/*', 'cellsched/cmd/*',
          'cellsched/embedding.py', 'cellsched/simulator/*',
          'cellsched/standalone/*', 'cellsched/testing/*')

#: Who makes clocks. A transport driver is made by oslo.messaging, which knows
#: of none.
CLOCKED = (*WIRING, 'cellsched/cli/app.py', 'cellsched/rpc/local.py')

#: Functions of columns; of oslo they know options only.
COLUMNAR = ('cellsched/filters/*', 'cellsched/weighers/*',
            'cellsched/hosts/table.py', 'cellsched/listing/merge.py',
            'cellsched/scheduler/decision/pipeline.py')

#: Words that the documentation of a thing can do without.
PRONOUN = re.compile(r'\b(?:who|what|whose|others|nobody|those)\b', re.I)
PRONOUNS_PER_100_WORDS_MAX = 0.5

#: Words that hide the subject of a test or its fact.
RIDDLES = {'anything', 'asked', 'either', 'everything', 'it', 'left', 'mine',
           'neither', 'nobody', 'nothing', 'one', 'ones', 'others', 'said',
           'so', 'something', 'still', 'such', 'that', 'them', 'there', 'they',
           'thing', 'things', 'those', 'told', 'too', 'unasked', 'wanted',
           'what', 'whatever', 'which', 'who', 'whom', 'whose'}

#: Tests of the project, and those that it publishes.
NAMED_BY_FACTS = ('tests/*', 'integrations/*/tests/*',
                  'cellsched/testing/suite/*')

#: Names that say nothing of the value.
COINED = {'doubt', 'left', 'mine', 'nobody', 'others', 'patience', 'said',
          'standing', 'still', 'taste', 'there', 'told', 'wanted'}

#: Nouns among the words that end like participles.
NOUNS = {'batching', 'claiming', 'copying', 'embedding', 'enabled', 'encoding',
         'expected', 'feed', 'finding', 'holding', 'listing', 'mapping',
         'messaging', 'monitoring', 'ordering', 'packing', 'planning',
         'ranking', 'reading', 'recording', 'seed', 'sharing', 'testing',
         'tracing', 'unified', 'wiring'}

IMPORTS_IN_FUNCTIONS_MAX = 42

#: Values that only administrators see, by the names of their variables, and
#: the errors whose texts are for users too.
INTERNALS = {'binary', 'cell', 'cells', 'database_connection', 'dest_compute',
             'host', 'hosts', 'identity', 'name_of', 'node', 'nodename',
             'nodes', 'service_host', 'source_compute', 'transport_url',
             'url', 'urls', 'worker'}
SAFE_ERRORS = frozenset(
    name for name, error in vars(exception).items()
    if isinstance(error, type)
    and issubclass(error, exception.CellschedException) and error.safe)

#: First words that tell a reader nothing of the thing.
QUESTION = re.compile(r'(How|What|When|Where|Whether|Which|Who|Whose|Why)\b')

#: A role in a docstring.
ROLE = re.compile(r':(?:attr|class|data|func|meth|mod):`~?\.?([\w.]+)`')

#: Names of tests in a text.
TEST_NAME = re.compile(r'``(tests(?:\.\w+)+)``')

MACHINE = re.compile(r'(?<![\w.~-])/(?:root|work|home)/')
REGISTRY = re.compile(
    r'(?:pypi|pythonhosted|npmjs|crates|maven|debian|golang)'
    r'\.(?:org|io|com|apache)\b')


@dataclasses.dataclass(frozen=True)
class Source:
    """A Python file: its path from the root, and what is in it."""

    path: str
    text: str

    @functools.cached_property
    def tree(self):
        return ast.parse(self.text, self.path)

    @functools.cached_property
    def nodes(self):
        return tuple(ast.walk(self.tree))

    @functools.cached_property
    def mentions(self):
        """Nodes of imported names outside annotations, with their names."""
        bound, types = imported_names(self), _annotations(self)
        return [(node, name) for node in self.nodes
                if isinstance(node, (ast.Attribute, ast.Name))
                and node not in types and (name := full_name(node, bound))]

    def is_one_of(self, patterns):
        return any(fnmatch.fnmatch(self.path, name) for name in patterns)


def long_functions(source):
    if source.is_one_of(LISTS):
        return
    for node in source.nodes:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            if body and _height(body) > BODY_LINES_MAX:
                yield f'{node.name} has a body of {_height(body)} lines'


def _height(body):
    return body[-1].end_lineno - body[0].lineno + 1


def long_plugins(source):
    plugin = source.is_one_of(('cellsched/filters/*', 'cellsched/weighers/*'))
    lines = len(source.text.splitlines())
    name = pathlib.PurePath(source.path).stem
    if (plugin and name not in (*NO_PLUGINS, *PARSERS)
            and lines > PLUGIN_LINES_MAX):
        yield f'has {lines} lines, of at most {PLUGIN_LINES_MAX}'


def vague_names(source):
    for part in pathlib.PurePath(source.path).with_suffix('').parts:
        if VAGUE & set(part.split('_')):
            yield f'{part!r} says nothing'


def globals_written(source):
    return (f'line {node.lineno} has a global statement'
            for node in source.nodes if isinstance(node, ast.Global))


def internals_in_texts(source):
    """Complain of names of the deployment in texts that users see."""
    for node in source.nodes:
        if isinstance(node, ast.Call) and (
                ast.unparse(node.func).rpartition('.')[2] in SAFE_ERRORS):
            for keyword in node.keywords:
                words = {word for part in ast.walk(keyword.value)
                         if isinstance(part, ast.FormattedValue)
                         for word in re.findall(r'\w+', ast.unparse(part))}
                if keyword.arg != 'internals' and words & INTERNALS:
                    yield (f'line {node.lineno}: {keyword.arg} of an error '
                           'for users has a name of the deployment')


def headless(source):
    if not source.text.startswith('# SPDX-License-Identifier: Apache-2.0\n'):
        yield 'does not begin with the licence'
    if source.path.startswith(('cellsched/', 'integrations/')):
        if not ast.get_docstring(source.tree):
            yield 'has no docstring'


def docstrings_that_ask(source):
    """Complain of docstrings that do not begin with the thing."""
    for node in source.nodes:
        if isinstance(node, (ast.AsyncFunctionDef, ast.ClassDef,
                             ast.FunctionDef, ast.Module)):
            found = QUESTION.match(ast.get_docstring(node) or '')
            if found:
                yield f'line {node.body[0].lineno} begins with {found[0]!r}'


def pronouns(sources):
    """Return the pronouns in docstrings per 100 words."""
    words = found = 0
    for source in sources:
        for node in source.nodes:
            if isinstance(node, (ast.AsyncFunctionDef, ast.ClassDef,
                                 ast.FunctionDef, ast.Module)):
                text = ast.get_docstring(node) or ''
                words += len(re.findall(r"[a-z][a-z'-]*", text, re.I))
                found += len(PRONOUN.findall(text))
    return 100 * found / max(words, 1)


def riddles(source):
    """Complain of tests whose names do not name their subjects."""
    if not source.is_one_of(NAMED_BY_FACTS):
        return
    for node in source.nodes:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and (
                node.name.lower().startswith('test')):
            words = re.findall('[A-Z]?[a-z]+', node.name)
            found = RIDDLES.intersection(map(str.lower, words))
            if found:
                yield f'line {node.lineno}: {node.name} has {sorted(found)}'


def underscored_aliases(source):
    """Complain of a module that is imported under its name with ``_``."""
    for node in source.nodes:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                if alias.asname == alias.name.rpartition('.')[2] + '_':
                    yield f'line {node.lineno} imports as {alias.asname}'


def coined_names(source):
    """Complain of arguments, variables and functions with such names.

    A field may keep its name: documents and tables may show it.
    """
    fields = {each.target for node in source.nodes
              if isinstance(node, ast.ClassDef) for each in node.body
              if isinstance(each, ast.AnnAssign)}
    for node in source.nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            if node in fields:
                continue
            name = node.id
        elif isinstance(node, ast.arg):
            name = node.arg
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            name = node.name
        else:
            continue
        if name.strip('_') in COINED:
            yield f'line {node.lineno} defines {name}'


def participles(source):
    """Complain of modules and classes that are not named by a noun.

    An error may say what happened: ``BuildAborted``.
    """
    module = pathlib.PurePath(source.path).stem
    if _is_participle(module.rpartition('_')[2]):
        yield f'{module} is no noun'
    for node in source.nodes:
        if isinstance(node, ast.ClassDef):
            words = re.findall(r'[A-Z][a-z]*', node.name)
            is_error = any(re.search(r'Error|Exception|exception\.',
                                     ast.unparse(base))
                           for base in node.bases)
            if words and not is_error and _is_participle(words[-1]) and (
                    len(words) == 1 or words[-1].endswith('ing')):
                yield f'line {node.lineno}: {node.name} is no noun'


def _is_participle(word):
    return (word.endswith(('ing', 'ed'))
            and word.lower() not in NOUNS)


def imports_in_functions(source):
    """Yield the line of each import in a function, and whether it says why.

    The reason is a comment on the line or above the block of imports.
    """
    lines = source.text.splitlines()
    for function in source.nodes:
        if not isinstance(function, (ast.AsyncFunctionDef, ast.FunctionDef)):
            continue
        for node in ast.walk(function):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                line = node.lineno
                while re.match(r'\s*(from|import) ', lines[line - 2]):
                    line -= 1
                yield node.lineno, '#' in lines[node.lineno - 1] or (
                    lines[line - 2].lstrip().startswith('#'))


def signed_comments(source):
    for number, line in enumerate(source.text.splitlines(), 1):
        if re.search(r'\bNOTE\(', line):
            yield f'line {number} has a signed comment'


def global_configuration(source):
    # The commands of oslo.policy read files into it, and ask that module.
    if (source.path == 'cellsched/policies/enforcer.py'
            or 'CONF' not in source.text
            or source.is_one_of(GLOBAL_CONFIGURATION)):
        return
    for line, name in _mentions(source):
        if name == 'oslo_config.cfg.CONF':
            yield f'line {line} uses the global configuration'


def reserved_imports(source):
    for line, name in imports(source):
        allowed = RESERVED.get(name.partition('.')[0])
        if allowed is not None and not source.is_one_of(allowed):
            yield f'line {line} imports {name}'


def time_read(source):
    if source.path != 'cellsched/clock.py':
        for line, name in _mentions(source):
            if TIME.fullmatch(name):
                yield f'line {line} reads time: {name}'


def made_outside_of_wiring(source):
    """Complain of what makes threads or chance, called or handed over."""
    if not source.is_one_of((*WIRING, 'cellsched/rpc/server.py')):
        for line, name in _mentions(source, _seeded(source)):
            if MAKERS.fullmatch(name):
                yield f'line {line} makes a {name}, or has it made'


def clocks_made(source):
    """Complain of a clock that is made where it should be handed in."""
    if not source.is_one_of(CLOCKED):
        bases = {node for each in source.nodes
                 if isinstance(each, ast.ClassDef) for node in each.bases}
        for line, name in _mentions(source, bases):
            if name == 'cellsched.clock.Clock':
                yield f'line {line} makes a clock'


def mocks(source):
    for line, name in imports(source):
        if name.startswith(('unittest.mock', 'mock.')):
            yield f'line {line} imports {name}'


def integrations_imported(source):
    """Complain of what only packages beside the product may import."""
    for line, name in imports(source):
        if name.partition('.')[0] in INTEGRATED:
            yield f'line {line} imports {name}'


def oslo_in_columns(source):
    if source.is_one_of(COLUMNAR):
        for line, name in imports(source):
            if name.startswith('oslo') and name != 'oslo_config.cfg':
                yield f'line {line} imports {name}'


def imports(source):
    """Yield line and dotted name of what is imported, names included."""
    for node in source.nodes:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            module = f'{node.module}.' if hasattr(node, 'module') else ''
            for alias in node.names:
                yield node.lineno, module + alias.name


def imported_names(source):
    """Return the full name of each name that imports bind."""
    bound = {}
    for node in source.nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition('.')[0]
                bound[alias.asname or top] = alias.asname and alias.name or top
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                bound[alias.asname or alias.name] = (
                    f'{node.module}.{alias.name}')
    return bound


def full_name(node, bound):
    """Return the dotted name of what comes from an import, or ''."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name) and node.id in bound:
        return '.'.join((bound[node.id], *reversed(parts)))
    return ''


def _mentions(source, ignored=frozenset()):
    """Yield line and full name of what is used, other than in annotations."""
    return ((node.lineno, name) for node, name in source.mentions
            if node not in ignored)


def _annotations(source):
    """Return the nodes that say types."""
    found = set()
    for node in source.nodes:
        for each in (getattr(node, 'annotation', None),
                     getattr(node, 'returns', None)):
            if each is not None:
                found.update(ast.walk(each))
        if isinstance(node, ast.Subscript):
            # Of a generic type, also where it is a base or a cast.
            found.update(ast.walk(node.slice))
    return found


def _seeded(source):
    """Return the nodes that name generators which are given their seed."""
    bound = imported_names(source)
    return {node.func for node in source.nodes
            if isinstance(node, ast.Call) and node.args
            and SEEDED.fullmatch(full_name(node.func, bound))}


def far_test(source, modules):
    """Complain of a unit test whose module is not where its path says.

    The tests of ``b`` may be split: ``test_b.py``, ``test_b_faults.py``.
    """
    path = pathlib.PurePath(source.path)
    if path.name == 'test_tidy.py' or not path.name.startswith('test_'):
        return
    if tested_module(path, modules) is None:
        package = pathlib.PurePath('cellsched', *path.parts[2:-1])
        yield f'tests no {(package / path.stem[5:]).as_posix()}.py'


def tested_module(path, modules):
    """Return the path of the module that a unit test is of, or None.

    :param modules: the paths of all modules
    """
    package = pathlib.PurePath('cellsched', *path.parts[2:-1])
    words = path.stem.split('_')[1:]
    for count in range(len(words), 0, -1):
        module = (package / '_'.join(words[:count])).as_posix()
        for found in f'{module}.py', f'{module}/__init__.py':
            if found in modules:
                return found
    return None


def plugin_modules(modules, entry_points, present=frozenset()):
    """Complain of plug-in modules without entry point and the reverse.

    :param entry_points: targets such as ``a.b:C``, by namespace
    :param present: other modules that an entry point may name
    """
    others = {module.removesuffix('.py').removesuffix('/__init__')
              for module in present}
    for package, namespace in PLUGINS.items():
        named = {target.partition(':')[0].replace('.', '/')
                 for target in entry_points.get(namespace, ())}
        there = {module.removesuffix('.py').removesuffix('/__init__')
                 for module in modules
                 if re.fullmatch(package + r'/\w+(/__init__)?\.py', module)}
        there -= {f'{package}/{name}' for name in NO_PLUGINS} | {package}
        for module in there - named:
            yield f'{module} is no entry point in {namespace}'
        for module in named - there - others:
            yield f'{namespace} names {module}, which is not there'


def unsound_plugins(source, entry_points, tests):
    """Complain of a plug-in without class, docstring or test."""
    module = source.path.removesuffix('.py').removesuffix('/__init__')
    classes = {node.name: node for node in source.tree.body
               if isinstance(node, ast.ClassDef)}
    for namespace in PLUGINS.values():
        for target in entry_points.get(namespace, ()):
            where, _, name = target.partition(':')
            if where.replace('.', '/') != module:
                continue
            if name not in classes:
                yield f'has no class {name}'
            elif not ast.get_docstring(classes[name]):
                yield f'{name} has no docstring, which is its documentation'
            path = pathlib.PurePath(module)
            test = pathlib.PurePath('tests/unit', *path.parts[1:-1],
                                    f'test_{path.name}.py')
            if str(test) not in tests:
                yield f'has no test in {test}'


def missing_tests(text, root=ROOT):
    """Complain of the tests that a text names and that do not exist."""
    for name in TEST_NAME.findall(text):
        path, parts = root, name.split('.')
        while parts and (path / parts[0]).is_dir():
            path /= parts.pop(0)
        found = not parts
        if parts and (file := path / f'{parts.pop(0)}.py').is_file():
            found, body = True, ast.parse(file.read_text('utf-8')).body
            for part in parts:
                node = next((each for each in body
                             if getattr(each, 'name', None) == part), None)
                found, body = node is not None, getattr(node, 'body', [])
                if not found:
                    break
        if not found:
            yield f'{name} does not exist'


def missing_names(sources):
    """Complain of roles in docstrings with names that no source defines.

    A dotted name whose first part is not in the tree belongs to a library.
    """
    defined, modules = {'cellsched'}, set()
    for source in sources:
        defined.update(pathlib.PurePath(source.path).with_suffix('').parts)
        for node in source.nodes:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                defined.add(node.name)
            elif isinstance(node, ast.Import):
                modules.update(each.name for each in node.names)
            elif isinstance(node, (ast.Attribute, ast.Name)) and isinstance(
                    node.ctx, ast.Store):
                defined.add(getattr(node, 'attr', None) or node.id)
    for source in sources:
        for node in source.nodes:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.Module)):
                for name in ROLE.findall(ast.get_docstring(node) or ''):
                    parts = name.split('.')
                    if not (defined.issuperset(parts) or name in modules
                            or len(parts) > 1 and parts[0] not in defined):
                        yield f'{source.path}: {name} does not exist'


def places(text):
    """Complain of text that names a machine's path or a registry's host."""
    for number, line in enumerate(text.splitlines(), 1):
        for pattern in (MACHINE, REGISTRY):
            for found in pattern.findall(line):
                yield f'line {number} names {found}'


def files(*suffixes, root=ROOT, untracked=False):
    """Return the files that git tracks, or all of an export.

    What a reader tries out in the checkout is no part of it.

    :param untracked: whether to return new files of an author, too, which git
        neither tracks nor ignores
    """
    new = ['--cached', '--others', '--exclude-standard'] if untracked else []
    # In a worktree .git is a file; git refuses a checkout of another user.
    try:
        listed = subprocess.run(
            ['git', '--git-dir', '.git', '--work-tree', '.', 'ls-files', '-z',
             *new], cwd=root, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, check=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        paths = _exported(root)
    else:
        # One that was deleted is listed until that is committed.
        paths = [path for path in map(root.joinpath, listed.split('\0'))
                 if path.is_file()]
    return [path for path in paths
            if not suffixes or path.suffix in suffixes]


def _exported(root):
    """Return the files of the tree, without what tools have made."""
    found, directories = [], [root]
    while directories:
        for path in sorted(path for path in directories.pop().iterdir()
                           if not MADE.fullmatch(path.name)):
            (directories if path.is_dir() else found).append(path)
    return found


def sources(untracked=False):
    """Yield the sources of :func:`files`."""
    for path in files('.py', untracked=untracked):
        yield Source(path.relative_to(ROOT).as_posix(),
                     path.read_text(encoding='utf-8'))


def unimported(requirements, read):
    """Yield the requirements of which no source imports or names a module.

    A text that names a module may be an import by name, or the driver of a
    URL.

    :param requirements: lines, such as ``alembic>=1.13.0``
    """
    modules = {
        name.partition('.')[0] for source in read for node in source.nodes
        for name in (
            [each.name for each in node.names] if isinstance(node, ast.Import)
            else [node.module or ''] if isinstance(node, ast.ImportFrom)
            else [node.value] if isinstance(node, ast.Constant)
            and isinstance(node.value, str) else ())}
    packages = {}
    for module, names in metadata.packages_distributions().items():
        for name in names:
            packages.setdefault(_canonical(name), set()).add(module)
    for line in requirements:
        name = re.split(r'[^\w.-]', line.strip(), maxsplit=1)[0]
        if name and not modules & packages.get(_canonical(name), set()):
            yield name


def _canonical(name):
    return re.sub('[-_.]+', '-', name).lower()


def entry_points(text):
    parser = configparser.ConfigParser()
    parser.optionxform = str
    parser.read_string(text)
    return {
        namespace: [line.partition('=')[2].strip()
                    for line in lines.splitlines() if line.strip()]
        for namespace, lines in parser['entry_points'].items()}
