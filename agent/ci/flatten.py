"""A candidate of several files as one text, which is what the sandbox takes: imported modules are written in, names kept apart.

The text has the same definitions in the same order of execution; a name that two modules define gets its module's name before it.
What cannot be written so without changing its meaning is refused with the reason, never guessed.
"""

from __future__ import annotations

import ast
from pathlib import PurePosixPath

from tilecast.agent.ci.imports import Reach, SourceFile, top_level_names
from tilecast.agent.ci.native import put_in
from tilecast.agent.ci.normal import is_script_block
from tilecast.agent.ci.renaming import NotOneText, Renamer


def one_text(reach: Reach) -> str:
    """The candidate's text with what it reaches in the repository written in; as it stands where it reaches nothing.

    Raises:
        NotOneText: naming file and construct.
    """
    text = reach.tree.read(reach.entry)
    if text is None:
        raise NotOneText(f"{reach.entry} is missing, too large, or no text")
    file = reach.files.get(reach.entry)
    if file is None or not (file.local_imports or reach.natives):
        return text
    try:
        made = _Assembly(reach).text()
        ast.parse(made)
    except RecursionError:
        raise NotOneText(f"{reach.entry} is nested too deeply") from None
    except SyntaxError as error:
        raise NotOneText(f"{reach.entry}: its parts do not make one text: {error.msg}") from error
    return made


class _Assembly:
    def __init__(self, reach: Reach) -> None:
        self.reach = reach
        self.order = _order(reach)
        self.final: dict[tuple[str, str], str] = {}
        """Name in the one text of each name of each module."""
        self._taken: dict[str, str] = {}
        entry = reach.files[reach.entry]
        # The entry's own names stay: ModelNew and CONFIG are found by them.
        for path in [reach.entry, *self.order]:
            self._name(reach.files[path], keep=path == entry.path)

    def _name(self, file: SourceFile, keep: bool) -> None:
        own = {name: f"{file.path}:{name}" for name in top_level_names(file.tree)} | _outside(file)
        for name, identity in sorted(own.items()):
            wanted, number = name, 1
            while not keep and self._taken.get(wanted, identity) != identity:
                stem = PurePosixPath(file.path).stem
                wanted = f"_{stem}_{name}" if number == 1 else f"_{stem}{number}_{name}"
                number += 1
            self._taken[wanted] = identity
            self.final[file.path, name] = wanted

    def lookup(self, module: str, name: str, depth: int = 0) -> str:
        """The name in the one text of ``module.name``, through re-exports.

        Raises:
            NotOneText: if the module has no such name, or it is a module.
        """
        if (module, name) in self.final:
            return self.final[module, name]
        file = self.reach.files.get(module)
        for binding in file.bindings if file is not None and depth < 32 else []:
            if binding.chain == (name,) and binding.attribute is not None:
                return self.lookup(binding.module, binding.attribute, depth + 1)
        for star in file.stars if file is not None and depth < 32 else []:
            try:
                return self.lookup(star, name, depth + 1)
            except NotOneText:
                continue
        raise NotOneText(f"{module} defines no name {name!r} at its top level")

    def text(self) -> str:
        """The whole."""
        future: dict[str, None] = {}
        lines: list[str] = []
        seen: set[str] = set()
        for path in [*self.order, self.reach.entry]:
            for node in self._body(self.reach.files[path]):
                if isinstance(node, ast.Pass):
                    continue
                line = ast.unparse(ast.fix_missing_locations(node))
                if isinstance(node, ast.ImportFrom) and node.module == "__future__":
                    future[line] = None
                elif not isinstance(node, ast.Import | ast.ImportFrom) or line not in seen:
                    lines.append(line)
                    seen.add(line)
        return "\n".join([*future, *lines]) + "\n"

    def _body(self, file: SourceFile) -> list[ast.stmt]:
        module = put_in(file.tree, file.path, self.reach.tree)
        entry = file.path == self.reach.entry
        body = [node for node in module.body if entry or not (is_script_block(node) or _assigns_all(node))]
        module.body = body
        done: ast.Module = Renamer(file, self._names_in(file), self.lookup).visit(module)
        if any(isinstance(node, ast.Name) and node.id == "__file__" for node in ast.walk(done)):
            raise NotOneText(f"{file.path} uses __file__ for more than reading a source beside it")
        return done.body

    def _names_in(self, file: SourceFile) -> dict[str, str]:
        names = {name: new for (path, name), new in self.final.items() if path == file.path}
        bound: dict[tuple[str, ...], tuple[str, str | None]] = {(name,): (file.path, name) for name in names}
        for binding in file.bindings:
            target = (binding.module, binding.attribute)
            if bound.setdefault(binding.chain, target) != target:
                raise NotOneText(f"{file.path} binds {'.'.join(binding.chain)} to two things")
            if binding.attribute is not None:
                names[binding.chain[0]] = self.lookup(binding.module, binding.attribute)
        for star in file.stars:
            for name in _public(self.reach.files[star]):
                names.setdefault(name, self.lookup(star, name))
        return names


def _order(reach: Reach) -> list[str]:
    """Imported modules, each after those that it imports.

    Raises:
        NotOneText: for modules that import each other, or one that cannot be read.
    """
    done: dict[str, None] = {}

    def visit(path: str, above: tuple[str, ...]) -> None:
        if path in above:
            raise NotOneText(f"{path} and {above[-1]} import each other")
        if path in done:
            return
        file = reach.files.get(path)
        if file is None:
            raise NotOneText(f"{path} cannot be read as Python")
        for module in dict.fromkeys(file.modules):
            visit(module, (*above, path))
        done[path] = None

    visit(reach.entry, ())
    return [path for path in done if path != reach.entry]


def _outside(file: SourceFile) -> dict[str, str]:
    """Names that imports from the environment bind at the top level, with what they are."""
    found = {}
    for node in file.tree.body:
        if isinstance(node, ast.Import) and id(node) not in file.local_imports:
            for alias in node.names:
                name = alias.asname or alias.name.split(".")[0]
                found[name] = f"import {alias.name if alias.asname else name}"
        elif isinstance(node, ast.ImportFrom) and id(node) not in file.local_imports:
            for alias in node.names:
                found[alias.asname or alias.name] = f"from {'.' * node.level}{node.module} import {alias.name}"
    return found


def _assigns_all(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets)


def _public(file: SourceFile) -> list[str]:
    names = top_level_names(file.tree) | _outside(file).keys()
    for node in file.tree.body:
        if isinstance(node, ast.Assign) and _assigns_all(node):
            try:
                return [str(name) for name in ast.literal_eval(node.value)]
            except ValueError:
                break
    more = {binding.chain[0] for binding in file.bindings if binding.attribute is not None}
    return sorted(name for name in names | more if not name.startswith("_"))
