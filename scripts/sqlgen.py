"""Write store/postgres/statements.py: PostgreSQL's text for each statement of the memory.

SQLite's text, beside the method that runs it, is the source. It is parsed (by sqlglot), translated,
given the key of the thread, (bucket, thread_id) = ($1, $2), at every stored table, written, parsed
again and proved: a table without the key would show another thread's rows, and no server objects.
What both engines do not take with one meaning is refused, with what to write in its place;
functions stand on a list of those that are known. What can be said in no other way stands in
`OVERRIDES`.

Run it by `make generate`. Another version of sqlglot may write other text.
"""

from __future__ import annotations

import ast
import importlib
import json
import re
import sys
from collections.abc import Iterator
from itertools import count
from operator import itemgetter
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import apsw
import sqlglot
from sqlglot import exp

from eventq.store.postgres.overrides import OVERRIDES
from eventq.store.postgres.translated import key_of
from eventq.store.sqlite import migrate

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "eventq" / "store" / "postgres" / "statements.py"
AREAS = (
    "blobs", "turns", "contexts", "runs", "streams", "outputs", "scopes", "sessions", "erasures",
    "settings", "overview", "reach", "collect", "copies", "causes",
    "usage",
)  # fmt: skip
# Tables of the log that statements of the memory name, and that have the same columns there.
_OF_THE_LOG = {"event_blob_refs", "open_questions"}
_LATER = {
    "event_causes",
    "turn_causes",
    "usage",
    "usage_read",
}  # of migrations after the first one of the memory
_RENAMED = {"counters": "scope_counters"}
_TYPES = {"INT": "BIGINT", "INTEGER": "BIGINT", "BLOB": "BYTEA", "VARBINARY": "BYTEA"}
_KEY = ("bucket", "thread_id")
# Functions of one meaning in both, by the names of sqlglot's classes or, where it has none, theirs.
_KNOWN = {
    "And", "Or", "Case", "If", "Cast", "Coalesce", "Count", "Exists", "Sum", "Max", "Min", "Hex",
    "LowerHex", "Unhex", "Length", "Substring", "Lower", "Upper", "Greatest", "Least", "RowNumber",
    "char", "Chr", "Abs",
}  # fmt: skip
_ADVICE = {
    "rowid": "name a key: give the table an id, or use its primary key",
    "sqlite_sequence": "use last_id or new_ids of the engine",
    "total": "write coalesce(sum(x), 0)",
    "iif": "write CASE WHEN x <> 0 THEN … ELSE … END",
    "ifnull": "write coalesce",
    "changes": "use changed of the engine",
    "last_insert_rowid": "use insert of the engine",
    "strftime": "pass the value as a parameter",
    "date": "pass the value as a parameter",
    "group_concat": "put it together in Python",
    "printf": "put it together in Python",
    "glob": "filter in Python",
    "like": "filter in Python: PostgreSQL's LIKE looks at case",
}
_SQL = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH|CREATE|DROP)\s")
_WORD = re.compile(r"(?:'(?:[^']|'')*'|[^\s'])+")
_PARAMETER = re.compile(r"'(?:[^']|'')*'|\?(\d*)")


class UntranslatableError(Exception):
    """A statement that only SQLite takes; says what to write in its place."""


class Table(NamedTuple):
    """What the migrations of SQLite say of a table."""

    columns: dict[str, str]  # with the type that PostgreSQL has for its own
    keys: tuple[tuple[str, ...], ...]  # the primary key first
    identity: str | None  # the id that a row gets if none is given
    counted: bool  # whether that is given once only


def tables() -> dict[str, Table]:
    """Return the tables of the memory, by name, as SQLite's migrations make them."""
    connection = apsw.Connection(":memory:")
    migrate.apply(connection, "1970-01-01T00:00:00.000Z")

    def rows(sql: str, name: str) -> list[Any]:
        return connection.execute(sql, (name,)).fetchall()

    found = {}
    for name in sorted(_wanted()):
        text = rows("SELECT sql FROM sqlite_schema WHERE name = ?", name)[0][0]
        info = rows("SELECT name, type, pk FROM pragma_table_info(?)", name)
        primary = tuple(row[0] for row in sorted(info, key=itemgetter(2)) if row[2])
        indexes = rows("SELECT name FROM pragma_index_list(?) WHERE [unique] AND NOT partial", name)
        keys = [
            tuple(row[0] for row in rows("SELECT name FROM pragma_index_info(?)", index))
            for (index,) in indexes
        ]
        numbered = re.search(rf"\b{primary[0]}\s+INTEGER PRIMARY KEY(?! REFERENCES)", text)
        identity = primary[0] if numbered and name not in _NAMED_BY_OTHERS else None
        columns = {column: _TYPES.get(kind, kind) for column, kind, _ in info}
        unique = tuple(dict.fromkeys([primary, *keys]))
        found[name] = Table(columns, unique, identity, "AUTOINCREMENT" in text)
    return found


# Their ids are those of something else.
_NAMED_BY_OTHERS = {"scopes", "open_questions"}


def _wanted() -> set[str]:
    """Return the tables that the memory's part of the migration makes, and some of the log's."""
    text = (ROOT / "migrations" / "sqlite" / "0002_eventq.sql").read_text(encoding="utf-8")
    memory = text[text.index("---- Memory:") :]
    return {*re.findall(r"CREATE TABLE (\w+)", memory), *_OF_THE_LOG, *_LATER}


# --- what there is to translate -----------------------------------------------------------------


def statements() -> dict[str, str]:
    """Return the name of each statement, by its text: all of the constants that are SQL.

    What is put together of constants is looked at as a whole. A name is that of the constant or the
    method, with a number where that has several.
    """
    found: dict[str, str] = {}
    for name, module, tree in _modules():
        for text, place in _texts(tree, {**vars(module), "self": _Any()}, name):
            if text not in found:
                others = sum(one.split()[0] == place for one in found.values())
                found[text] = f"{place} {others + 1}" if others else place
    return found


def of_many() -> set[str]:
    """Return the statements, named by constants, that are run for each of many rows."""
    return {
        getattr(module, call.args[0].id)
        for _, module, tree in _modules()
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == "many"
        and isinstance(call.args[0], ast.Name)
        and hasattr(module, call.args[0].id)
    }


def _modules() -> Iterator[tuple[str, ModuleType, ast.Module]]:
    for name in AREAS:
        module = importlib.import_module(f"eventq.store.{name}")
        assert module.__file__ is not None
        yield name, module, ast.parse(Path(module.__file__).read_text(encoding="utf-8"))


class _Any:
    """What stands for `self` in a statement: it has the guard of the schema."""

    schema_guard = migrate.IS_CURRENT

    @property
    def _db(self) -> _Any:
        return self


def _texts(node: ast.AST, names: dict[str, Any], place: str) -> Iterator[tuple[str, str]]:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        place = f"{place}.{node.name}"
    elif isinstance(node, (ast.Assign, ast.AnnAssign)) and "." not in place:
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        place = f"{place}.{ast.unparse(target)}"
    if isinstance(node, (ast.Constant, ast.JoinedStr, ast.BinOp, ast.Call)):
        try:
            text = eval(compile(ast.Expression(node), place, "eval"), names)  # noqa: S307
        except Exception:  # noqa: BLE001 (something else than constants)
            text = None
        if isinstance(text, str):
            if _SQL.match(text):
                yield text, place
            return
    for child in ast.iter_child_nodes(node):
        yield from _texts(child, names, place)


# --- one statement ------------------------------------------------------------------------------


class Made(NamedTuple):
    """A line of the file; see `translated.Translated`."""

    text: str
    table: str = ""
    given: str = ""
    rows: str = ""


def translate(sql: str, schema: dict[str, Table], *, of_many: bool = False) -> Made:
    """Return PostgreSQL's text, also that `of_many` rows. Raises UntranslatableError."""
    tree = _parsed(sql)
    refused(tree, schema)
    table, given = _counted(tree, schema)
    first = 3 + bool(table)
    _replace_conflicts(tree, schema)
    _number_rows(tree, schema)
    tree = _spelled(tree, first)
    together = _together(tree.copy(), schema) if of_many else None
    rows = "" if together is None else _written(together, schema)
    return Made(_written(tree, schema), table, given, rows)


def _written(tree: exp.Expr, schema: dict[str, Table]) -> str:
    _tie(tree, schema)
    text = re.sub(r" NULLS (FIRST|LAST)", "", tree.sql("postgres"))
    prove(text, schema)
    return text


def _parsed(sql: str) -> exp.Expr:
    number = count(1)

    def name(found: re.Match[str]) -> str:
        if found[0][0] == "'":
            return found[0]
        return f":p{found[1] or next(number)}"

    sql = re.sub(r"\s+(NOT INDEXED|INDEXED BY \w+)", "", sql)
    sql = sql.replace(f" AND {migrate.IS_CURRENT}", "")  # the row that it locks has it
    try:
        found = sqlglot.parse(_PARAMETER.sub(name, sql), read="sqlite")
    except sqlglot.errors.SqlglotError as error:
        raise UntranslatableError(f"it cannot be parsed: {str(error).splitlines()[0]}") from error
    if len(found) != 1 or found[0] is None:
        raise UntranslatableError("it is more than one statement")
    return found[0]


def refused(tree: exp.Expr, schema: dict[str, Table]) -> None:
    """Raise UntranslatableError for what PostgreSQL lacks, or takes with another meaning."""
    if not isinstance(tree, (exp.Select, exp.SetOperation, exp.Insert, exp.Update, exp.Delete)):
        raise UntranslatableError(f"{type(tree).__name__} is for tables, which migrations make")
    for node in tree.walk():
        name = node.name.lower() if isinstance(node, (exp.Column, exp.Table)) else ""
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Anonymous):
            name = node.this.name.lower()
            if name != "json_each":
                raise UntranslatableError(f"{name}(): {_ADVICE.get(name, 'is not in PostgreSQL')}")
        elif name in ("rowid", "oid", "_rowid_", "sqlite_sequence"):
            raise UntranslatableError(f"{name}: {_ADVICE.get(name, _ADVICE['rowid'])}")
        elif isinstance(node, (exp.Like, exp.ILike, exp.Glob, exp.RegexpLike)):
            raise UntranslatableError(f"{node.sql()}: {_ADVICE['like']}")
        elif isinstance(node, exp.Div):
            if not node.expression.is_int:
                raise UntranslatableError(f"{node.sql('sqlite')}: divide by a number, or in Python")
        elif isinstance(node, exp.In) and node.args.get("field") is not None:
            field = node.args["field"]
            raise UntranslatableError(f"IN {field}: put SELECT … FROM {field} behind IN")  # noqa: S608 (no statement)
        elif isinstance(node, exp.Anonymous) and not isinstance(node.parent, exp.Table):
            name = node.name.lower()
            if name not in _KNOWN:
                raise UntranslatableError(f"{name}(): {_ADVICE.get(name, 'is not known')}")
        elif isinstance(node, exp.Func) and type(node).__name__ not in _KNOWN:
            name = node.sql("sqlite").partition("(")[0].lower()
            if not isinstance(node, exp.Anonymous):
                raise UntranslatableError(f"{name}(): {_ADVICE.get(name, 'is not known')}")
        elif isinstance(node, (exp.Add, exp.Sub)):
            sides = (node.this, node.expression)
            kinds = {*map(type, sides)}
            if {exp.Placeholder, exp.Literal} <= kinds:
                what = f"{node.sql('sqlite')} would be 32 bits wide"
                raise UntranslatableError(f"{what}: write CAST(? AS INTEGER)")
        elif isinstance(node, exp.Join) and not (node.side or node.kind):
            what = f"JOIN {node.this.name}: write CROSS JOIN, in the order in which it is looked up"
            raise UntranslatableError(what)
        if isinstance(node, exp.Is) and isinstance(node.this, exp.Placeholder):
            raise UntranslatableError(f"{node.sql('sqlite')}: write CAST(? AS …) IS NULL")
        for truth in _truths(node):
            if isinstance(truth, (exp.BitwiseAnd, exp.BitwiseOr, exp.Placeholder)):
                raise UntranslatableError(f"{truth.sql('sqlite')} is no truth: write … <> 0")
        if isinstance(node, exp.Table) and not isinstance(node.this, exp.Anonymous):
            known = node.name in schema or node.name in {c.alias for c in tree.find_all(exp.CTE)}
            if not known:
                raise UntranslatableError(f"{node.name} is no table of the memory")


def _truths(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield what stands where a truth belongs."""
    if isinstance(node, (exp.Where, exp.Having, exp.Not)):
        yield node.this.unnest()
    elif isinstance(node, exp.Connector):
        yield from (node.left.unnest(), node.right.unnest())
    elif isinstance(node, exp.Join) and node.args.get("on") is not None:
        yield node.args["on"].unnest()


def _target(tree: exp.Expr) -> tuple[exp.Table, list[str]] | None:
    """Return the table of an INSERT and its columns; None for another statement."""
    if not isinstance(tree, exp.Insert):
        return None
    if not isinstance(tree.this, exp.Schema):
        raise UntranslatableError(f"INSERT INTO {tree.this.name} without columns: name them")
    return tree.this.this, [one.name for one in tree.this.expressions]


def _counted(tree: exp.Expr, schema: dict[str, Table]) -> tuple[str, str]:
    """Return the table of an INSERT whose ids are given once only, as `Made` has it."""
    found = _target(tree)
    if found is None or not schema[found[0].name].counted:
        return "", ""
    table = schema[found[0].name]
    returning = tree.args.get("returning")
    if returning is not None and returning.expressions[0].name != table.identity:
        raise UntranslatableError(f"RETURNING: let {table.identity} be the first")
    name = found[0].name
    return ("", name) if table.identity in found[1] else (name, "")


def _replace_conflicts(tree: exp.Expr, schema: dict[str, Table]) -> None:
    """Turn INSERT OR IGNORE and OR REPLACE into ON CONFLICT; a replaced row forgets the rest."""
    found = _target(tree)
    other = tree.args.get("alternative") if found else None
    if found is None or not other:
        return
    tree.set("alternative", None)
    if other == "IGNORE":
        tree.set("conflict", exp.OnConflict(action=exp.var("DO NOTHING")))
        return
    table, columns = schema[found[0].name], found[1]
    key = next((key for key in table.keys if {*key} <= {*columns}), None)
    if key is None:
        raise UntranslatableError(f"INSERT OR REPLACE INTO {found[0].name}: no key is given")
    rest = [one for one in table.columns if one not in key]
    sets = [exp.EQ(this=exp.column(one), expression=exp.column(one, "excluded")) for one in rest]
    keys = [exp.to_identifier(one) for one in key]
    action = "DO UPDATE" if sets else "DO NOTHING"
    tree.set(
        "conflict", exp.OnConflict(conflict_keys=keys, action=exp.var(action), expressions=sets)
    )


def _number_rows(tree: exp.Expr, schema: dict[str, Table]) -> None:
    """Give the row of an INSERT the next id, if it has none, and let its id be returned."""
    found = _target(tree)
    if found is None or schema[found[0].name].identity is None:
        return
    name, columns = found[0].name, found[1]
    identity = schema[name].identity
    assert identity is not None
    if identity not in columns:
        highest = f"(SELECT coalesce(max({identity}), 0) + 1 FROM {name})"  # noqa: S608
        counted = schema[name].counted
        value = _parameter(3) if counted else sqlglot.parse_one(highest, read="sqlite")
        _prepend(tree, [identity], [value])
    if tree.args.get("returning") is None:
        one = exp.column(identity, _RENAMED.get(name, name))
        tree.set("returning", exp.Returning(expressions=[one]))


def _prepend(tree: exp.Expr, columns: list[str], values: list[exp.Expr]) -> None:
    """Put columns, and their values, before those of an INSERT."""
    tree.this.set("expressions", [*map(exp.to_identifier, columns), *tree.this.expressions])
    source = tree.expression
    if isinstance(source, exp.Values):
        for row in source.expressions:
            row.set("expressions", [*(one.copy() for one in values), *row.expressions])
        return
    for select in _arms(source):
        select.set("expressions", [*(one.copy() for one in values), *select.expressions])


def _arms(source: exp.Expr) -> Iterator[exp.Select]:
    source = source.unnest()
    if isinstance(source, exp.SetOperation):
        yield from _arms(source.left)
        yield from _arms(source.right)
    else:
        assert isinstance(source, exp.Select)
        yield source


def _parameter(number: int) -> exp.Expr:
    return exp.Parameter(this=exp.Literal.number(number))


def _spelled(tree: exp.Expr, first: int) -> exp.Expr:
    """Spell what both have in PostgreSQL's way; a statement's own parameters begin at `first`."""
    numbers = count(1)

    def spell(node: Any) -> Any:
        if isinstance(node, exp.Placeholder):
            return _parameter(int(node.name.removeprefix("p")) + first - 1)
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Anonymous):
            given = exp.cast(node.this.expressions[0], "json")
            alias = exp.TableAlias(
                this=exp.to_identifier(node.alias or f"each{next(numbers)}"),
                columns=[exp.to_identifier("value")],
            )
            call = exp.Anonymous(this="json_array_elements_text", expressions=[given])
            return exp.Table(this=call, alias=alias)
        if isinstance(node, exp.Join) and node.args.get("kind") == "CROSS":
            if node.args.get("on") is not None or node.args.get("using"):
                node.set("kind", None)
        elif isinstance(node, exp.Subquery) and isinstance(node.parent, (exp.From, exp.Join)):
            if not node.alias:
                node.set("alias", exp.TableAlias(this=exp.to_identifier(f"q{next(numbers)}")))
        elif isinstance(node, exp.In) and node.args.get("query") is not None:
            return _within(node, node.args["query"].this)
        elif isinstance(node, exp.Cast):
            kind = node.args["to"].sql().upper()
            node.set("to", exp.DataType.build(_TYPES.get(kind, kind), dialect="postgres"))
            if kind == "TEXT":  # as all columns are
                return exp.Collate(this=node.copy(), expression=exp.to_identifier("C", quoted=True))
        elif isinstance(node, exp.HexString):
            return exp.cast(exp.Literal.string("\\x" + node.name), "bytea", dialect="postgres")
        elif isinstance(node, (exp.Hex, exp.LowerHex)):
            digits = exp.Anonymous(
                this="encode", expressions=[node.this, exp.Literal.string("hex")]
            )
            return digits if isinstance(node, exp.LowerHex) else exp.Upper(this=digits)
        elif isinstance(node, exp.Unhex):
            return exp.Anonymous(this="decode", expressions=[node.this, exp.Literal.string("hex")])
        elif _is_sum(node):
            return exp.cast(node.copy(), "bigint", dialect="postgres")
        elif isinstance(node, exp.Div):
            node.set("safe", False)  # the divisor is a number
        elif isinstance(node, exp.Ordered):
            node.set("nulls_first", bool(node.args.get("desc")))  # no words: an index serves it
        return node

    for node in reversed([*tree.walk()]):  # from the inside
        if (made := spell(node)) is not node:
            node.replace(made)
    return tree


def _within(node: exp.In, select: exp.Select) -> exp.Expr:
    """Return an IN that is no join: few values are looked up, many are hashed."""
    source = select.find(exp.From)
    is_list = source is not None and isinstance(source.this.this, exp.Anonymous)
    if (is_list or select.args.get("limit")) and not select.args.get("joins"):
        array = exp.Anonymous(this="array", expressions=[select])
        call = exp.Anonymous(this="any", expressions=[array])
        return exp.EQ(this=node.this, expression=call)
    if isinstance(node.parent, (exp.Where, exp.And)):
        return exp.Is(this=exp.paren(node.copy()), expression=exp.true())
    return node


def _is_sum(node: exp.Expr) -> bool:
    """Return whether it is a sum, which PostgreSQL makes a decimal number."""
    if isinstance(node, exp.Window):
        return isinstance(node.this, exp.Sum)
    return isinstance(node, exp.Sum) and not isinstance(node.parent, (exp.Cast, exp.Window))


def _is_stored(node: exp.Expr, schema: dict[str, Table], made: set[str]) -> bool:
    return (
        isinstance(node, exp.Table)
        and isinstance(node.this, exp.Identifier)
        and node.name in schema
        and node.name not in made
    )


def _tie(tree: Any, schema: dict[str, Table]) -> None:
    """Tie every use of a stored table to the key of the thread, and name its schema."""
    made = {one.alias for one in tree.find_all(exp.CTE)}

    def stored(node: exp.Expr) -> bool:
        return _is_stored(node, schema, made)

    for select in reversed([*tree.find_all(exp.Select)]):  # from the inside
        source = select.args.get("from_") or select.args.get("from")
        before = [] if source is None else [source.this]
        for join in select.args.get("joins") or []:
            _look_up(select, join, before, schema)
            if stored(table := join.this.this.this.args["from_"].this):
                join.this.this.this.where(_is_mine(table), copy=False)
            before.append(table)
        if source is not None and stored(source.this):
            select.where(_is_mine(source.this), copy=False)
        if isinstance(select.parent, exp.Insert):
            select.where(exp.true(), copy=False)  # else ON CONFLICT looks like that of a join
    for exists in tree.find_all(exp.Exists):
        if isinstance(exists.this, exp.Select):
            exists.this.offset(0, copy=False)
    for change in [*tree.find_all(exp.Update, exp.Delete)]:
        if stored(change.this):
            change.where(_is_mine(change.this), copy=False)
    found = _target(tree)
    if found is not None:
        _prepend(tree, [*_KEY], [_parameter(1), _parameter(2)])
        conflict = tree.args.get("conflict")
        if conflict is not None and (keys := conflict.args.get("conflict_keys")):
            names = [key.this if isinstance(key, exp.Ordered) else key for key in keys]
            conflict.set("conflict_keys", [*map(exp.to_identifier, _KEY), *names])
    for table in [*tree.find_all(exp.Table)]:
        if stored(table):
            if table.name in _RENAMED:
                if not table.alias:
                    table.set("alias", exp.TableAlias(this=exp.to_identifier(table.name)))
                table.set("this", exp.to_identifier(_RENAMED[table.name]))
            table.set("db", exp.to_identifier("eventq"))


def _look_up(
    select: exp.Select, join: exp.Join, before: list[exp.Expr], schema: dict[str, Table]
) -> None:
    """Let a join look up its rows for each row before it, in the order that is written.

    The server would compare costs that it knows too little for: how many rows has this thread? The
    OFFSET keeps it from seeing through. So a statement is as quick on tables that were never
    analysed, or when nearly empty, or among thousands of small threads: nested loops along indexes.
    """
    table, name = join.this, join.this.alias_or_name
    conditions = [join.args["on"]] if join.args.get("on") is not None else []
    shared = [one.name for one in join.args.get("using") or []]
    for column in shared:
        left = next(one for one in before if column in _columns(one, schema))
        other = exp.column(column, left.alias_or_name)
        conditions.append(exp.EQ(this=exp.column(column, name), expression=other))
        if any(one.name == column and one.table == name for one in select.find_all(exp.Column)):
            raise UntranslatableError(f"{name}.{column} of USING: leave {name} out, or write ON")
    if not join.args.get("side"):
        conditions += _moved(select, [*before, table], schema)
    given = [one for one in _columns(table, schema) if one not in shared] if shared else ["*"]
    columns = [exp.column(exp.Star() if one == "*" else one, name) for one in given]
    found = exp.select(*columns).from_(table.copy()).where(*conditions).offset(0)
    alias = exp.TableAlias(this=exp.to_identifier(name))
    join.set("this", exp.Lateral(this=found.subquery(), alias=alias))
    join.set("using", None)
    if join.args.get("side"):
        join.set("on", exp.true())
    else:
        join.set("on", None)
        join.set("kind", "CROSS")


def _moved(
    select: exp.Select, tables: list[exp.Expr], schema: dict[str, Table]
) -> Iterator[exp.Expr]:
    """Take the conditions of a WHERE that are of the last table, and of others before it."""
    where = select.args.pop("where", None)
    columns = {one.alias_or_name: _columns(one, schema) for one in tables}
    name = tables[-1].alias_or_name
    for one in [] if where is None else [*_all_of(where.this)]:
        used = [*one.find_all(exp.Column)]
        owners = {
            column.table or next((n for n, of in columns.items() if column.name in of), "")
            for column in used
        }
        if name in owners and owners <= {*columns} and one.find(exp.Select) is None:
            yield one
        else:
            select.where(one, copy=False)


def _columns(table: exp.Expr, schema: dict[str, Table]) -> tuple[str, ...]:
    """Return the columns of a stored table or of a list."""
    if isinstance(table.this, exp.Anonymous):
        return ("value",)
    return (*schema[table.name].columns,) if table.name in schema else ()


def _together(tree: exp.Expr, schema: dict[str, Table]) -> exp.Expr | None:
    """Return the INSERT of many rows, each parameter of which is a list; None if it cannot be one.

    A row that is given the id after the highest has to see the one before it.
    """
    if (found := _target(tree)) is None or tree.find(exp.Max):
        return None
    source = tree.expression
    row = source.expressions[0] if isinstance(source, exp.Values) else source
    columns = {name: kind for one in schema.values() for name, kind in one.columns.items()}
    columns |= schema[found[0].name].columns
    pairs = [*zip(map(exp.column, found[1]), row.expressions, strict=True)]
    pairs += [(one.this, one.expression) for one in source.find_all(exp.EQ)]
    kinds = {
        int(one.this.name): columns[column.name]
        for column, value in pairs
        for one in value.find_all(exp.Parameter)
    }
    if {int(one.this.name) for one in tree.find_all(exp.Parameter)} != {*kinds}:
        return None
    for one in [*tree.find_all(exp.Parameter)]:
        one.replace(exp.column(f"p{one.this.name}", "r"))
    lists = ", ".join(f"CAST(${number} AS {kinds[number]}[])" for number in sorted(kinds))
    names = ", ".join(f"p{number}" for number in sorted(kinds))
    tree.set("returning", None)
    given = exp.select("*").from_(f"UNNEST({lists}) AS r({names})", dialect="postgres")
    if isinstance(source, exp.Values):
        tree.set("expression", given.select(*row.expressions, append=False))
        return tree
    first = exp.Join(this=source.args["from_"].this, kind="CROSS")
    source.set("joins", [first, *(source.args.get("joins") or [])])
    source.set("from_", given.args["from_"])
    return tree


def _is_mine(table: exp.Expr) -> exp.Expr:
    """Return the condition; of the log, whose indexes lead with it, the bucket is not left out."""
    name = table.alias or table.name
    key = [*enumerate(_KEY, 1)]
    if table.name in _OF_THE_LOG:
        key.reverse()  # see `translated`
    return exp.and_(
        *(
            exp.EQ(this=exp.column(column, name), expression=_parameter(number))
            for number, column in key
        )
    )


# --- the proof ----------------------------------------------------------------------------------


def prove(text: str, schema: dict[str, Table]) -> None:
    """Raise UntranslatableError unless every stored table in PostgreSQL's text has the key."""
    tree = sqlglot.parse_one(text, read="postgres")
    for table in tree.find_all(exp.Table):
        if table.db != "eventq":
            if table.name in schema and table.name not in {c.alias for c in tree.find_all(exp.CTE)}:
                raise UntranslatableError(f"{table.name} has no schema in {text}")
            continue
        place = table.find_ancestor(exp.Select, exp.Update, exp.Delete, exp.Insert)
        if not (_inserts(place, table) or _ties(place, table)):
            raise UntranslatableError(f"{table.name} is not tied to the thread in {text}")


def _inserts(place: exp.Expr | None, table: exp.Table) -> bool:
    """Return whether it is the table of an INSERT whose rows begin with the key."""
    if not isinstance(place, exp.Insert) or place.this.find(exp.Table) is not table:
        return False
    columns = [one.name for one in place.this.expressions[:2]]
    source = place.expression
    rows = source.expressions if isinstance(source, exp.Values) else [*_arms(source)]
    firsts = [[one.sql("postgres") for one in row.expressions[:2]] for row in rows]
    conflict = place.args.get("conflict")
    keys = [key.name for key in (conflict.args.get("conflict_keys") or [])[:2]] if conflict else []
    return (
        columns == [*_KEY] and all(one == ["$1", "$2"] for one in firsts) and keys in ([], [*_KEY])
    )


def _ties(place: exp.Expr | None, table: exp.Table) -> bool:
    """Return whether the conditions of its SELECT, UPDATE or DELETE give a table the key."""
    assert place is not None
    wheres = [place.args["where"].this] if place.args.get("where") else []
    said = {one.sql("postgres") for root in wheres for one in _all_of(root)}
    name = table.alias or table.name
    return {f"{name}.bucket = $1", f"{name}.thread_id = $2"} <= said


def _all_of(root: exp.Expr) -> Iterator[exp.Expr]:
    root = root.unnest()
    if isinstance(root, exp.And):
        yield from _all_of(root.left)
        yield from _all_of(root.right)
    else:
        yield root


# --- the file -----------------------------------------------------------------------------------

_HEAD = '''"""PostgreSQL's text for each statement of the memory.

Generated by scripts/sqlgen.py: do not edit. The key is that of SQLite's text; the value is `table`,
`given`, `text` and `rows` of a `Translated`. $1 and $2 are the key of the thread.
"""

# What stands for it in SQLite's text; here the row of the thread has it, which a write locks.
GUARD = "{guard}"
COUNTED = {counted}  # the tables whose ids are given once only
STATEMENTS = {{
'''


def generated() -> str:
    """Return the text of the module. Raises UntranslatableError for all that cannot be said."""
    schema, found, many = tables(), statements(), of_many()
    made, faults = {}, []
    for sql, place in found.items():
        try:
            written = OVERRIDES.get(place)
            one = Made(written.text) if written else translate(sql, schema, of_many=sql in many)
            made[key_of(sql)] = place, one
        except UntranslatableError as error:
            if not any(sql in other for other in found if other != sql):  # a part of another
                faults.append(f"store/{place}: {error}")
    faults += [f"overrides.py: there is no {one}" for one in OVERRIDES if one not in found.values()]
    if faults:
        raise UntranslatableError("\n".join(faults))
    counted = sorted(name for name, table in schema.items() if table.counted)
    lines = [_HEAD.format(guard=migrate.IS_CURRENT, counted=json.dumps(counted))]
    for key, (place, (text, table, given, rows)) in made.items():
        head = f'    # {place}\n    "{key}": ("{table}", "{given}", """'
        more = f', """\n{_wrapped(rows)}\n    """' if rows else ', ""'
        lines.append(f'{head}\n{_wrapped(text)}\n    """{more}),\n')
    return "".join([*lines, "}\n"])


def _wrapped(text: str) -> str:
    """Return a statement in lines of at most 100 columns, where no string has more."""
    lines = [""]
    for word in _WORD.findall(text):
        if len(lines[-1]) + len(word) > 90 and lines[-1]:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return "\n".join(f"        {line}" for line in lines).replace("\\", "\\\\")


def main() -> None:
    """Write the module, or say what cannot be translated."""
    try:
        text = generated()
    except UntranslatableError as error:
        sys.exit(str(error))
    TARGET.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
