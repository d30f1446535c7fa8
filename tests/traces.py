"""Which claims of a chapter rest on stored runs, read off its code by the names that hand their values on."""

import ast
import symtable
from fnmatch import fnmatchcase

# methods that put what they are given into what they belong to
FILLED = {
    "append",
    "extend",
    "update",
    "add",
}
NO_CLAIMS = {"glue", "figure_data", "expect", "not_run"}


def names(node):
    """The names of the notebook that a statement reads, and those that it binds, not those inside a function."""
    tables = [symtable.symtable(ast.unparse(node), "", "exec")]
    for table in tables:
        tables += table.get_children()
    read = {
        symbol.get_name()
        for table in tables
        for symbol in table.get_symbols()
        if symbol.is_referenced() and (table is tables[0] or symbol.is_global())
    }
    return read, {symbol.get_name() for symbol in tables[0].get_symbols() if symbol.is_assigned()}


def wild(node):
    """A string of the code, with * for what stands in braces; "" for anything else."""
    if isinstance(node, ast.JoinedStr):
        return "".join(wild(part) or "*" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def calls(node):
    """The calls in a statement that are given anything: (last word of the name, call)."""
    found = [part for part in ast.walk(node) if isinstance(part, ast.Call) and part.args]
    return [(ast.unparse(call.func).split(".")[-1], call) for call in found]


def base(node):
    """The name whose item, attribute or method this is; "" where there is none."""
    while isinstance(node, (ast.Subscript, ast.Attribute)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


class Trace:
    """Runs through a chapter in order; `claims` is then {id: the files of report.stored(...) behind its value}."""

    def __init__(self, code, ids):
        self.ids, self.behind, self.claims = ids, {}, {}
        for node in ast.parse(code).body:
            self.follow(node, {wild(part) for part in ast.walk(node)} - {""})

    def files(self, *nodes):
        """The stored files behind what pieces of code read."""
        found = [
            call
            for node in nodes
            for _, call in calls(node)
            if ast.unparse(call.func) == "report.stored"
        ]
        return {wild(call.args[0]) for call in found}.union(
            *(self.behind.get(name, ()) for node in nodes for name in names(node)[0])
        )

    def follow(self, node, said):
        """Hand on what stands behind the names that a statement binds or fills. said: the strings around it."""
        if isinstance(node, ast.For):
            self.bind(
                names(ast.Assign([node.target], ast.Constant(0), lineno=0))[1],
                self.files(node.iter),
            )
        if isinstance(node, (ast.For, ast.If, ast.With, ast.While)):
            before = dict(self.behind)
            # a loop hands on what its end has bound
            for each in 2 * [
                *node.body,
                *getattr(node, "orelse", []),
            ]:
                self.follow(each, said)
            for name, files in before.items():  # which it may have passed by
                self.behind[name] = self.behind[name] | files
            return
        found = self.files(node)
        filled = [call.func for name, call in calls(node) if name in FILLED]
        filled += [
            part for part in ast.walk(node) if isinstance(getattr(part, "ctx", None), ast.Store)
        ]
        for name in map(base, filled):  # those with an item or a member
            self.bind({name}, found | self.behind.get(name, set()))
        self.bind(names(node)[1], found)
        for name, call in [] if isinstance(node, ast.FunctionDef) else calls(node):
            # an id from a loop's list
            own = {wild(call.args[0])} - {""} or (said if name == "claim" else set())
            for id in [
                id
                for id in self.ids
                if name not in NO_CLAIMS and any(fnmatchcase(id, one) for one in own)
            ]:
                given = self.files(
                    call.func, *call.args[1:], *(word.value for word in call.keywords)
                )
                self.claims[id] = self.claims.get(id, set()) | given

    def bind(self, bound, files):
        self.behind |= dict.fromkeys(bound, files)
