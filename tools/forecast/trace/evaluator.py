"""A small evaluator of Python syntax trees over abstract values. It never runs the file: every operation is ours.

Anything it does not know becomes :data:`UNKNOWN`; steps and seconds are limited, and large integers are cut off, so that
a hostile text costs no more than a slow one.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any

from tilecast.tools.forecast.trace.expressions import Expressions
from tilecast.tools.forecast.trace.language import (
    HOST_LOOP,
    MAX_DEPTH,
    FunctionReturn,
    Limit,
    LoopBreak,
    LoopContinue,
    Scope,
)
from tilecast.tools.forecast.trace.values import (
    UNKNOWN,
    Class,
    Function,
    Ref,
    Tile,
    Unknown,
)


class Evaluator(Expressions):
    """Walks statements and expressions; subclasses say what libraries, tensors and tiles do."""

    def iterate(self, node: ast.For, scope: Scope) -> None:
        """A ``for`` statement."""
        values = self.eval(node.iter, scope)
        if isinstance(values, dict):
            values = list(values)
        if not isinstance(values, list | tuple | range):
            self.assign(node.target, UNKNOWN, scope)
            values = [UNKNOWN]
        for item in list(values[:HOST_LOOP]):
            if not self.pass_of(node, item, scope):
                break

    def pass_of(self, node: ast.For, item: Any, scope: Scope) -> bool:
        """The body of a loop for one item; False if the loop is left."""
        self.assign(node.target, item, scope)
        try:
            self.run(node.body, scope)
        except LoopContinue:
            return True
        except LoopBreak:
            return False
        return True

    def run(self, body: Iterable[ast.stmt], scope: Scope) -> None:
        """Execute statements in order."""
        for node in body:
            self.tick()
            handler = getattr(self, "do_" + type(node).__name__, None)
            if handler is not None:
                handler(node, scope)

    def do_Expr(self, node: ast.Expr, scope: Scope) -> None:
        self.eval(node.value, scope)

    def do_Assign(self, node: ast.Assign, scope: Scope) -> None:
        value = self.eval(node.value, scope)
        for target in node.targets:
            self.assign(target, value, scope)

    def do_AnnAssign(self, node: ast.AnnAssign, scope: Scope) -> None:
        if node.value is not None:
            self.assign(node.target, self.eval(node.value, scope), scope)

    def do_AugAssign(self, node: ast.AugAssign, scope: Scope) -> None:
        self.assign(
            node.target, self.binary(type(node.op), self.eval(node.target, scope), self.eval(node.value, scope)), scope
        )

    def do_Return(self, node: ast.Return, scope: Scope) -> None:
        raise FunctionReturn(None if node.value is None else self.eval(node.value, scope))

    def do_Break(self, node: ast.Break, scope: Scope) -> None:
        raise LoopBreak

    def do_Continue(self, node: ast.Continue, scope: Scope) -> None:
        raise LoopContinue

    def do_If(self, node: ast.If, scope: Scope) -> None:
        self.run(node.body if self.truth(self.eval(node.test, scope)) else node.orelse, scope)

    def do_For(self, node: ast.For, scope: Scope) -> None:
        self.iterate(node, scope)

    def do_While(self, node: ast.While, scope: Scope) -> None:
        for _ in range(HOST_LOOP):
            test = self.eval(node.test, scope)
            if not self.truth(test):
                return
            try:
                self.run(node.body, scope)
            except LoopBreak:
                return
            except LoopContinue:
                continue
            if isinstance(test, Unknown | Tile):
                return

    def do_With(self, node: ast.With, scope: Scope) -> None:
        for item in node.items:
            value = self.eval(item.context_expr, scope)
            if item.optional_vars is not None:
                self.assign(item.optional_vars, value, scope)
        self.run(node.body, scope)

    def do_Try(self, node: ast.Try, scope: Scope) -> None:
        self.run(node.body, scope)
        self.run(node.finalbody, scope)

    def do_FunctionDef(self, node: ast.FunctionDef, scope: Scope) -> None:
        names, hints = [], {}
        for item in node.decorator_list:
            call = item.func if isinstance(item, ast.Call) else item
            value = self.eval(call, scope)
            if isinstance(value, Ref):
                names.append(value.path)
            if isinstance(item, ast.Call):
                hints.update({k.arg: self.eval(k.value, scope) for k in item.keywords if k.arg})
        scope[node.name] = Function(node, scope, tuple(names), hints)

    def do_ClassDef(self, node: ast.ClassDef, scope: Scope) -> None:
        scope[node.name] = Class(node, scope)

    def do_Import(self, node: ast.Import, scope: Scope) -> None:
        for alias in node.names:
            name = alias.asname or alias.name.split(".")[0]
            scope[name] = Ref(alias.name if alias.asname else name)

    def do_ImportFrom(self, node: ast.ImportFrom, scope: Scope) -> None:
        for alias in node.names:
            scope[alias.asname or alias.name] = Ref(f"{node.module}.{alias.name}")

    def invoke(self, function: Function, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Run the body of a function of the file with arguments bound as Python does (defaults included).

        Raises:
            Limit: if calls nest too deeply.
        """
        if self.depth >= MAX_DEPTH:
            raise Limit("calls nest too deeply")
        scope = self.bind(function, args, kwargs)
        if isinstance(function.node, ast.Lambda):
            return self.eval(function.node.body, scope)
        self.depth += 1
        try:
            self.run(function.node.body, scope)
        except FunctionReturn as signal:
            return signal.value
        finally:
            self.depth -= 1
        return None

    def bind(self, function: Function, args: list[Any], kwargs: dict[str, Any]) -> Scope:
        """The function's new scope: closure, then parameters."""
        spec, scope = function.node.args, dict(function.scope)
        scope.setdefault("__globals__", function.scope)
        names = [a.arg for a in [*spec.posonlyargs, *spec.args]]
        defaults = dict(zip(names[len(names) - len(spec.defaults) :], spec.defaults, strict=True))
        defaults |= {a.arg: d for a, d in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if d is not None}
        given = dict(zip(names, args, strict=False)) | kwargs
        for name in [*names, *(a.arg for a in spec.kwonlyargs)]:
            if name in given:
                scope[name] = given.pop(name)
            else:
                scope[name] = self.eval(defaults[name], function.scope) if name in defaults else UNKNOWN
        if spec.vararg is not None:
            scope[spec.vararg.arg] = tuple(args[len(names) :])
        if spec.kwarg is not None:
            scope[spec.kwarg.arg] = given
        return scope
