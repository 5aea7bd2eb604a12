"""Rewrites the tree of a workflow: each call that may need recording becomes a question to the runtime.

    config = load(path)                 config = await auto.value(load, path)
    if check(config): ...               if await auto.value(check, config): ...
    rows = [get(u) for u in urls]       rows = await auto.block(<the comprehension>, <what it calls>, ...)
    for tag in tags: ...                for tag in auto.order(tags): ...
    item = waiting.pop()                item = auto.popped(waiting)
    act = order.ship; act()             act = order.ship; await auto.value(auto.held(act))
    items.append(rows)                  as it is: a method of a local value is executed again
    total = price * 3                   as it is: nothing is called

What is called is only known when it runs, so that is when the runtime decides. New nodes take the place of the call
they stand for, so lines, columns, tracebacks and breakpoints stay where they were.

The rewriter has more than 25 methods: one for each kind of node that it treats, as visitors of trees have.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from typing import Any, TypeVar

from perdure.authoring.auto.checks import refuse
from perdure.authoring.auto.names import CALLERS, LAZY, READERS, Names, inner_names
from perdure.authoring.auto.source import Source

#: The runtime, as a name of the closure. No Python source can spell it.
RUNTIME = "auto.runtime"

N = TypeVar("N", bound=ast.AST)


def _question(kind: str, place: ast.AST) -> ast.Attribute:
    runtime = ast.copy_location(ast.Name(RUNTIME, ast.Load()), place)
    return ast.copy_location(ast.Attribute(runtime, kind, ast.Load()), place)


def _about(kind: str, value: ast.expr) -> ast.Call:
    """A question that is answered at once."""
    return ast.copy_location(ast.Call(_question(kind, value), [value], []), value)


def _in_order(node: ast.expr) -> ast.expr:
    """Something that is read from first to last, in an order that every process shares."""
    match node:
        case ast.List() | ast.Tuple() | ast.Constant() | ast.ListComp() | ast.Dict() | ast.JoinedStr():
            return node
        case ast.Starred():  # is in order already
            return node
        case _:
            return _about("order", node)


def _ordered(node: N) -> N:
    """An expression, with the order in which its comprehensions go through sets recorded."""
    for found in ast.walk(node):
        if isinstance(found, ast.comprehension) and not found.is_async:
            found.iter = _in_order(found.iter)
    return node


def _has_key(node: ast.Call) -> bool:
    return any(keyword.arg == "key" for keyword in node.keywords)


def _thunk(body: ast.expr, place: ast.AST, *names: str) -> ast.Lambda:
    parameters = [ast.copy_location(ast.arg(name), place) for name in names]
    arguments = ast.arguments(posonlyargs=[], args=parameters, kwonlyargs=[], kw_defaults=[], defaults=[])
    return ast.copy_location(ast.Lambda(arguments, body), place)


class Rewriter(ast.NodeTransformer):
    """Rewrites one function. `plain`: it was a `def`, so whatever can be awaited is awaited for it."""

    def __init__(self, source: Source, names: Names, *, plain: bool) -> None:
        self._source = source
        self._names = names
        self._plain = plain
        #: Names that the comprehension being rewritten binds.
        self._inner: frozenset[str] = frozenset()
        #: Whether it is a decorator of a nested function or class, or a base of a class, that is being rewritten.
        self._defines = False

    def rewrite(self) -> ast.AsyncFunctionDef:
        node = self._source.node
        body = [self.visit(statement) for statement in node.body]
        values: dict[str, Any] = {field: getattr(node, field) for field in node._fields}
        made: Any = ast.AsyncFunctionDef.__new__(ast.AsyncFunctionDef)
        for field, value in (values | {"body": body, "decorator_list": []}).items():
            setattr(made, field, value)
        rewritten: ast.AsyncFunctionDef = ast.copy_location(made, node)
        return rewritten

    # -- calls -------------------------------------------------------------------------------------------------

    def visit_Call(self, node: ast.Call) -> Any:
        if self._repeats_a_function(node):
            return self._block(node)
        if self._is_left_alone(node):
            match node:
                case ast.Call(func=ast.Attribute(attr="join"), args=[ast.GeneratorExp() as lazy]):
                    if not _awaits_while_read(lazy):  # `join` itself makes a list
                        node.args = [ast.copy_location(ast.ListComp(lazy.elt, lazy.generators), lazy)]
                case _:
                    pass
            return self._in_order(self._with_visited_parts(node))
        return self._asked(node, "settled" if self._plain else "value")

    def visit_Expr(self, node: ast.Expr) -> Any:
        """A call whose result nobody takes is carried out, also if it makes a coroutine."""
        call = node.value
        if isinstance(call, ast.Call) and not self._repeats_a_function(call) and not self._is_left_alone(call):
            node.value = self._asked(call, "settled")
            return node
        return self._with_visited_parts(node)

    def _is_left_alone(self, node: ast.Call) -> bool:
        return self._names.is_pure(node.func) or self._names.is_value_method(node.func, self._inner)

    def _asked(self, node: ast.Call, kind: str) -> ast.expr:
        held = self._names.is_value(node.func, self._inner)
        node.func = self.visit(node.func)
        if held:
            node.func = _about("held", node.func)
        node.args = [self._argument(argument) for argument in node.args]
        for keyword in node.keywords:
            keyword.value = self._argument(keyword.value)
        if any(isinstance(argument, ast.Starred) for argument in node.args) or any(not k.arg for k in node.keywords):
            # Python itself may refuse what is unpacked, and then names what it is about to call.
            what = ast.copy_location(ast.Constant(kind), node)
            node.func = ast.copy_location(ast.Call(_question("named", node.func), [what, node.func], []), node.func)
        else:
            node.args.insert(0, node.func)
            node.func = _question(kind, node.func)
        return ast.copy_location(ast.Await(node), node)

    def _argument(self, node: Any) -> Any:
        """In a plain function a call that is an argument is handed on unawaited: `gather(fetch(1), fetch(2))`."""
        if (
            self._plain
            and isinstance(node, ast.Call)
            and not self._repeats_a_function(node)
            and not self._is_left_alone(node)
        ):
            return self._asked(node, "value")
        return self.visit(node)

    # -- expressions that repeat a function: one record ------------------------------------------------------------

    def visit_comprehension_expression(self, node: Any) -> Any:
        if _awaits_while_read(node):
            around, self._inner = self._inner, self._inner | inner_names(node)
            try:
                return _ordered(self._with_visited_parts(node))  # what it awaits is durable one by one
            finally:
                self._inner = around
        return self._block(node) if any(self._called(node)) else _ordered(node)

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_comprehension_expression

    def _repeats_a_function(self, node: ast.expr) -> bool:
        """Whether a built-in reads something that calls functions while it is read: `any(check(x) for x in xs)`."""
        if not isinstance(node, ast.Call) or not self._names.is_pure(node.func):
            return False
        if any(self._given_functions(node)):
            return True
        for argument in node.args:
            inner = argument.value if isinstance(argument, ast.Starred) else argument
            if isinstance(inner, ast.GeneratorExp) and not _awaits_while_read(inner) and any(self._called(inner)):
                return True
            if self._repeats_a_function(inner):
                return True
        return False

    def _given_functions(self, node: ast.Call) -> Iterator[ast.expr]:
        """Functions that a built-in gets to call, as far as they may need recording."""
        where = CALLERS.get(node.func.id) if isinstance(node.func, ast.Name) else None
        if isinstance(where, int):
            given = node.args[where : where + 1]
        else:
            given = [keyword.value for keyword in node.keywords if keyword.arg == where and where is not None]
        for function in given:
            if isinstance(function, ast.Lambda):
                yield from self._called(function)
            elif (
                isinstance(function, ast.Name | ast.Attribute)
                and not self._names.is_pure(function)
                and not self._names.is_value_method(function)
            ):
                yield function

    def _called(self, node: ast.AST) -> Iterator[ast.expr]:
        """What an expression calls that may need recording."""
        inner = inner_names(node) | self._inner
        for found in ast.walk(node):
            if isinstance(found, ast.Call):
                if self._names.is_pure(found.func):
                    yield from self._given_functions(found)
                elif not self._names.is_value_method(found.func, inner):
                    yield found.func

    def _block(self, node: Any) -> ast.expr:
        """One record for all of it. What Python evaluates before the repeating begins is evaluated before it, and so
        recorded by itself, if it awaits, if it assigns, or if what is repeated makes coroutines."""
        before = list(self._evaluated_before(node))
        if any(isinstance(found, ast.Await | ast.NamedExpr) for part in before for found in ast.walk(part)):
            return self._block_after(node, before)
        if not any(called for part in before for called in self._called(part)):
            return self._block_after(node, [])
        repeated = copy.deepcopy(node)
        repeated = _Named(dict.fromkeys(self._evaluated_before(repeated), "")).visit(repeated)
        if self._defines and not any(self._called(repeated)):
            return self._block_after(node, before)  # it may make a list of classes, which cannot be stored
        functions = ast.copy_location(ast.Tuple(self._functions(repeated), ast.Load()), node)
        duplicate = copy.deepcopy(node)
        after = self._block_after(duplicate, list(self._evaluated_before(duplicate)))
        test = ast.Call(_question("makes_coroutines", node), [_thunk(functions, node)], [])
        chosen = ast.IfExp(ast.copy_location(test, node), after, self._block_after(node, []))
        return ast.copy_location(chosen, node)

    def _evaluated_before(self, node: Any) -> Iterator[ast.expr]:
        """What a repeating expression is about: the first iterable, the arguments of a built-in."""
        match node:
            case ast.Starred(value=value):
                yield from self._evaluated_before(value)
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                if not _awaits_while_read(node):
                    yield node.generators[0].iter
                else:
                    yield node
            case ast.Call() if self._repeats_a_function(node):
                given = set(self._given_functions(node))
                for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
                    if argument not in given and not isinstance(argument, ast.Lambda):
                        yield from self._evaluated_before(argument)
            case _:
                yield node

    def _functions(self, node: Any) -> list[ast.expr]:
        """What a repeating expression calls, as far as that is known without calling anything."""
        inner = inner_names(node)
        return [
            copy.deepcopy(function)
            for function in self._called(node)
            if not any(
                isinstance(part, ast.Call) or (isinstance(part, ast.Name) and part.id in inner)
                for part in ast.walk(function)
            )
        ]

    def _block_after(self, node: Any, before: list[ast.expr]) -> ast.expr:
        """`before` is evaluated first, in the workflow itself, and given to the expression."""
        names = {part: f"auto.before{number}" for number, part in enumerate(before)}
        given = [self.visit(copy.deepcopy(part)) for part in before]
        node = _Named(names).visit(node)
        for found in ast.walk(node):
            if isinstance(found, ast.NamedExpr):
                refuse(
                    self._source, found, "assigns with := inside an expression that is recorded whole",
                    "Write a `for` loop, in which each call is recorded by itself.",
                )  # fmt: skip
        called = self._functions(node)
        unknown = len(called) < len(list(self._called(node)))
        later = _Later(self._names, inner_names(node) | self._inner).visit(copy.deepcopy(node))
        element = node.elt if isinstance(node, ast.ListComp | ast.SetComp) else None
        typed = isinstance(element, ast.Call) and bool(called) and ast.dump(element.func) == ast.dump(called[0])
        kind = ("set" if isinstance(node, ast.SetComp) else "list") if typed else ""
        lazy = isinstance(node, ast.GeneratorExp) or (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in LAZY
        )
        functions = ast.copy_location(ast.Tuple(called, ast.Load()), node)
        flags = [ast.copy_location(ast.Constant(flag), node) for flag in (unknown, lazy, kind)]
        whole, others = _ordered(node), _ordered(later)
        thunks = [_thunk(whole, node, *names.values()), _thunk(functions, node), _thunk(others, node, *names.values())]
        asked = ast.Call(_question("block", node), [*thunks, *flags, *given], [])
        return ast.copy_location(ast.Await(ast.copy_location(asked, node)), node)

    # -- the order of sets: another one in each process --------------------------------------------------------------

    def _in_order(self, node: ast.Call) -> ast.Call:
        """A call that is left in place, with the order in which it reads a set recorded."""
        match node.func:
            case ast.Name(id="locals" | "vars" | "dir") if not node.args:
                return _about("visible", node)
            case ast.Name(id=name) if name in READERS or (name in CALLERS and _has_key(node)):
                first = READERS.get(name, 0)
                node.args[first:] = [_in_order(argument) for argument in node.args[first:]]
            case ast.Attribute(attr="join" | "extend") if len(node.args) == 1:
                node.args = [_in_order(argument) for argument in node.args]
            case ast.Attribute(attr="pop", value=value) if not node.args and not node.keywords:
                return ast.copy_location(ast.Call(_question("popped", node.func), [value], []), node)
            case _:
                pass
        return node

    def visit_Starred(self, node: ast.Starred) -> ast.Starred:
        node.value = self.visit(node.value)
        if isinstance(node.ctx, ast.Load):
            node.value = _in_order(node.value)
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.Assign:
        unpacked = all(isinstance(target, ast.Tuple | ast.List) for target in node.targets)
        self._with_visited_parts(node)
        if unpacked:
            node.value = _in_order(node.value)
        return node

    def visit_For(self, node: ast.For) -> ast.For:
        self._with_visited_parts(node)
        node.iter = _in_order(node.iter)
        return node

    # -- statements that need more than their expressions ------------------------------------------------------------

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AnnAssign:
        node.target = self.visit(node.target)
        if node.value is not None:
            node.value = self.visit(node.value)
        return node

    def visit_match_case(self, node: ast.match_case) -> ast.match_case:
        if node.guard is not None:
            node.guard = self.visit(node.guard)
        node.body = [self.visit(statement) for statement in node.body]
        return node

    def visit_nested_function(self, node: Any) -> Any:
        """Its decorators and defaults are evaluated here and now, once in plain Python; its code is left alone."""
        self._visit_decorators(node)
        arguments = node.args
        arguments.defaults = [self.visit(default) for default in arguments.defaults]
        arguments.kw_defaults = [default and self.visit(default) for default in arguments.kw_defaults]
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = visit_nested_function

    def visit_ClassDef(self, node: Any) -> Any:
        """The same for the decorators, bases and keywords of a class; its code cannot await."""
        self._visit_decorators(node)
        if getattr(node, "type_params", ()):
            self._refuse_calls(node)  # what comes after them cannot await either
            return node
        node.bases = [self._part_of_definition(base) for base in node.bases]
        for keyword in node.keywords:
            is_class = keyword.arg in ("metaclass", None)
            keyword.value = self._part_of_definition(keyword.value) if is_class else self.visit(keyword.value)
        return node

    def _visit_decorators(self, node: Any) -> None:
        if not isinstance(node, ast.Lambda):
            node.decorator_list = [self._part_of_definition(decorator) for decorator in node.decorator_list]

    def _part_of_definition(self, node: Any) -> Any:
        """A call that gives a decorator or a class cannot be recorded: what it gives cannot be stored."""
        around, self._defines = self._defines, True
        try:
            if not isinstance(node, ast.Call) or self._repeats_a_function(node) or self._is_left_alone(node):
                return self.visit(node)
            return self._asked(node, "defining")
        finally:
            self._defines = around

    def _refuse_calls(self, node: ast.ClassDef) -> None:
        for part in (*node.bases, *(keyword.value for keyword in node.keywords)):
            for called in self._called(part):
                refuse(
                    self._source, called, f"calls a function in the bases of {node.name!r}, which has type parameters",
                    "Call it before, and assign what it returns to a variable.",
                )  # fmt: skip

    def visit_TypeAlias(self, node: N) -> N:
        return node  # it cannot await

    def _with_visited_parts(self, node: Any) -> Any:
        return self.generic_visit(node)


def _awaits_while_read(node: Any) -> bool:
    """Whether a comprehension is an async one. What it goes through first is evaluated outside it."""
    first = {id(inner) for inner in ast.walk(node.generators[0].iter)}
    return any(
        isinstance(inner, ast.Await) or getattr(inner, "is_async", 0)
        for inner in ast.walk(node)
        if id(inner) not in first
    )


class _Named(ast.NodeTransformer):
    """Puts names in the place of expressions."""

    def __init__(self, names: dict[ast.expr, str]) -> None:
        self._names = names

    def visit(self, node: ast.AST) -> Any:
        name = self._names.get(node) if isinstance(node, ast.expr) else None
        return self.generic_visit(node) if name is None else ast.copy_location(ast.Name(name, ast.Load()), node)


class _Later(ast.NodeTransformer):
    """The same expression, making something to be awaited of each call, for when that is what it calls."""

    def __init__(self, names: Names, inner: frozenset[str]) -> None:
        self._names = names
        self._inner = inner

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        where = (
            CALLERS.get(node.func.id) if isinstance(node.func, ast.Name) and self._names.is_pure(node.func) else None
        )
        if where == 0 and node.args and not isinstance(node.args[0], ast.Lambda | ast.Starred):
            node.args[0] = self._later(node.args[0])
        elif not self._names.is_pure(node.func) and not self._names.is_value_method(node.func, self._inner):
            node.func = self._later(node.func)
        return node

    def _later(self, function: ast.expr) -> ast.expr:
        asked = ast.Call(_question("later", function), [function], [])
        return ast.copy_location(asked, function)
