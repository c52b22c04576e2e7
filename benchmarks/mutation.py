"""Change one operator, constant or call of a module at a time; see whether its tests notice.

    python benchmarks/mutation.py [--seconds 600] [--seed 0] [module ...]

The files are not touched: a child process is forked for each mutant, in which the changed source
is imported in place of the module's own. Mutants are tried in random order until the time (of the
processor, children included) is up. Linux and macOS.
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib.abc
import importlib.util
import os
import random
import resource
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TESTS = {
    "edgewise.bilevel.dynamics": ["tests/bilevel/test_dynamics.py"],
    "edgewise.bilevel.lowrank": [
        "tests/bilevel/test_lowrank.py",
        "tests/nn/test_gcn_derivatives.py",
    ],
    "edgewise.bilevel.hypergradient": ["tests/bilevel/test_hypergradient.py"],
    "edgewise.bilevel.losses": ["tests/bilevel/test_hypergradient.py"],
    "edgewise.bilevel.parts": ["tests/test_batches.py"],
    "edgewise.graph.sampling": ["tests/graph/test_sampling.py"],
}
KERNELS = "edgewise.graph.kernels"  # never changed: the tests would take as long as to compile it
LIMIT_SECONDS = 120  # of a child's processor time: an endless loop is noticed as well
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Pow: ast.Mult,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
# Operators by the names that they have in PyTorch and NumPy.
METHODS = {"add": "sub", "sub": "add", "mul": "div", "div": "mul", "sqrt": "square"}
METHODS |= {f"{name}_": f"{other}_" for name, other in METHODS.items()}
METHODS |= {"zeros": "ones", "zeros_like": "ones_like", "minimum": "maximum", "argmax": "argmin"}


def mutants(tree: ast.Module) -> Iterator[tuple[int, str, ast.Module]]:
    """Line, description and tree of each mutant."""
    for number, node in enumerate(ast.walk(tree)):
        for change in changes(node):
            changed = copy.deepcopy(tree)
            twin = list(ast.walk(changed))[number]
            before = ast.unparse(node)
            apply(twin, change)
            after = ast.unparse(twin)
            yield node.lineno, f"{before}  ->  {after}", changed  # type: ignore[attr-defined]


def changes(node: ast.AST) -> list[Any]:
    if isinstance(node, (ast.BinOp, ast.AugAssign, ast.BoolOp)) and type(node.op) in SWAPS:
        return [SWAPS[type(node.op)]]
    if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
        return [SWAPS[type(node.ops[0])]]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
        return ["drop"]
    if isinstance(node, (ast.IfExp, ast.If)):
        return ["negate"]
    if isinstance(node, ast.Attribute) and node.attr in METHODS:
        return [METHODS[node.attr]]
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return ["drop"]
    if isinstance(node, ast.Call):  # without one of its arguments by name
        return [number for number, keyword in enumerate(node.keywords) if keyword.arg]
    if isinstance(node, ast.Constant) and type(node.value) in (int, float, bool):
        return ["flip"] if isinstance(node.value, bool) else [1]
    return []


def apply(node: Any, change: Any) -> None:
    if isinstance(node, ast.Compare):
        node.ops[0] = change()
    elif isinstance(node, ast.UnaryOp):
        node.op = ast.UAdd() if isinstance(node.op, ast.USub) else node.op
        if isinstance(node.op, ast.Not):
            node.operand = ast.UnaryOp(ast.Not(), node.operand)
    elif isinstance(node, (ast.IfExp, ast.If)):
        node.test = ast.UnaryOp(ast.Not(), node.test)
    elif isinstance(node, ast.Attribute):
        node.attr = change
    elif isinstance(node, ast.Expr):
        node.value = ast.Constant(None)
    elif isinstance(node, ast.Call):
        del node.keywords[change]
    elif isinstance(node, ast.Constant):
        node.value = not node.value if isinstance(node.value, bool) else node.value + 1
    else:
        node.op = change()
    ast.fix_missing_locations(node)


class Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports a module from a changed tree."""

    def __init__(self, name: str, path: Path, tree: ast.Module) -> None:
        self.name, self.path = name, path
        self.code = compile(ast.fix_missing_locations(tree), str(path), "exec")

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != self.name:
            return None
        return importlib.util.spec_from_file_location(name, self.path, loader=self)

    def create_module(self, spec: Any) -> None:
        return None

    def exec_module(self, module: Any) -> None:
        exec(self.code, module.__dict__)


def passes(name: str) -> bool:
    """Whether all tests of a module pass in this process."""
    import pytest

    # Plain assertions: to rewrite them would take longer than most tests.
    options = ["-x", "-q", "--assert=plain", "-p", "no:cacheprovider"]
    return int(pytest.main([*options, *TESTS[name]])) == 0


def forget() -> None:
    """Let the next import see other sources; what was compiled for the kernels is kept."""
    for name in list(sys.modules):
        if name.split(".")[0] in ("edgewise", "tests") and name != KERNELS:
            del sys.modules[name]


def survives(name: str, path: Path, tree: ast.Module) -> bool:
    """Whether all tests pass with the changed module."""
    child = os.fork()
    if not child:
        resource.setrlimit(resource.RLIMIT_CPU, (LIMIT_SECONDS, LIMIT_SECONDS))
        _quietly()
        code = 1
        try:
            sys.meta_path.insert(0, Changed(name, path, tree))
            code = int(not passes(name))
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0


def _quietly() -> None:
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, 1)
    os.dup2(devnull, 2)


def processor_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("modules", nargs="*", default=list(TESTS), metavar="module")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    os.chdir(ROOT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    waiting = []
    for name in options.modules:
        path = ROOT / (name.replace(".", "/") + ".py")
        # In this process, so that its children inherit what was imported and compiled for it.
        if not passes(name):
            sys.exit(f"the tests of {name} fail without any change")
        forget()
        tree = ast.parse(path.read_text())
        if not survives(name, path, tree):
            sys.exit(f"the tests of {name} pass, but not in a child")
        waiting += [(name, path, *mutant) for mutant in mutants(tree)]
    random.Random(options.seed).shuffle(waiting)
    tried = noticed = 0
    for name, path, line, description, tree in waiting:
        if processor_seconds() > options.seconds:
            break
        tried += 1
        survived = survives(name, path, tree)
        noticed += not survived
        verdict = "SURVIVED" if survived else "noticed"
        print(f"{verdict}: {path.relative_to(ROOT)}:{line}: {description}", flush=True)
    print(f"{tried} of {len(waiting)} mutants tried, {noticed} noticed, {tried - noticed} survived")


if __name__ == "__main__":
    main()
