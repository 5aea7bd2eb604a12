"""Every condition that the SQL of a store is made of, weakened in every way that this knows: generated from its
`queries.sql` as it stands, so that a fence which is written tomorrow is mutated tomorrow.

What is a condition: each operand of AND and OR in a WHERE, an ON, a WHEN or the first argument of `iif`. It is mutated
- as a whole: always true (an operand of OR: always false, so that what it allowed is allowed no longer),
- by its comparison: `=` becomes `>=` and `<=`, `<` becomes `<=`, `IS NULL` becomes `IS NOT NULL` and so on,
- by its list: each member of `IN ('a', 'b')` left out, each other status let in.
And each column that an UPDATE of `runs` sets for the sake of a fence (epoch, generation, next_seq, status, owner) keeps
its value instead.

Operands stay in the text, so that the parameters fit: `key = ?` becomes `(key = ? OR 1)`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from perdure.store.model import Status
from perdure.store.sqlite.queries import SQL


class Mutant(NamedTuple):
    """A statement with one condition changed. `id` is stable: statement, clause, and what became of it."""

    statement: str
    change: str
    text: str

    @property
    def id(self) -> str:
        return f"{self.statement}: {self.change}"


class Dialect(NamedTuple):
    """What is said differently in SQLite and in PostgreSQL."""

    true: str
    false: str
    #: Keeps the value of a column, and has the new one as an operand.
    keep: str


SQLITE = Dialect("1", "0", "iif(1, {column}, {value})")
POSTGRES = Dialect("true", "false", "CASE WHEN true THEN {column} ELSE {value} END")


class Token(NamedTuple):
    text: str
    start: int
    end: int
    depth: int


_TOKEN = re.compile(
    r"(?P<space>\s+|--[^\n]*)|'(?:[^']|'')*'|\"[^\"]*\"|\?\d*|\$\d+|->>|<>|<=|>=|\|\||::|[A-Za-z_][\w.]*|\d+"
    r"|[-+*/=<>(),;&\[\]]"
)

#: What ends a WHERE or an ON at its own depth.
_ENDS = frozenset({
    "ORDER", "GROUP", "LIMIT", "OFFSET", "RETURNING", "UNION", "WHERE", "THEN", ";", "DO", "FROM", "FOR", "JOIN",
    "CROSS", "LEFT",
})  # fmt: skip
_COMPARISONS: Mapping[str, Sequence[str]] = {
    "=": (">=", "<="), "<": ("<=",), ">": (">=",), "<=": ("<",), ">=": (">",), "<>": ("<", ">"),
}  # fmt: skip
#: Columns that fences look at.
_FENCED = frozenset({"epoch", "generation", "next_seq", "status", "owner", "watched", "last_item", "finished_at"})
#: Without those of runs that move, which no worker has: a turn has no epoch that would fit.
STATUSES = [status for status in Status if status not in (Status.MOVED, Status.ARRIVING)]


def mutants(statements: Mapping[str, str] = SQL, dialect: Dialect = SQLITE) -> Iterator[Mutant]:
    """All of them, in the order of the file."""
    for name, text in statements.items():
        if name in _OF_MOVES:
            continue
        seen: dict[str, int] = {}
        for change, mutated in _Statement(text, dialect).mutations():
            seen[change] = seen.get(change, 0) + 1
            yield Mutant(name, change if seen[change] == 1 else f"{change} (no. {seen[change]})", mutated)


def fences(statements: Mapping[str, str] = SQL, dialect: Dialect = SQLITE) -> list[Mutant]:
    """The mutants of all statements that are, or have, a fence: those that change a run or its journal, and those that
    look at what fences look at. What is left are queries about events and lists, which other tests are for."""
    found = list(mutants(statements, dialect))
    guards = {one.statement for one in found if _GUARD.search(one.change)}
    guards |= {name for name, text in statements.items() if _CHANGES_RUNS.search(text)}
    return [one for one in found if one.statement in guards]


#: Triggers that close a store which moves: tests/moving is for them.
_OF_MOVES = frozenset({"refuse_changes", "allow_changes"})
_GUARD = re.compile(r"\b(epoch|generation|next_seq|owner|watched|last_item)\b")
_CHANGES_RUNS = re.compile(r"UPDATE runs|DELETE FROM (runs|journal)")


class _Statement:
    def __init__(self, text: str, dialect: Dialect) -> None:
        self._text = text
        self._dialect = dialect
        self._tokens = _tokens(text)

    def mutations(self) -> Iterator[tuple[str, str]]:
        tokens = self._tokens
        for place, token in enumerate(tokens):
            match token.text.upper():
                case "WHERE" | "ON" if _follows_condition(tokens, place):
                    aborts = _is_abort(tokens, place)
                    yield from self._condition(place + 1, self._end(place + 1, token.depth), aborts=aborts)
                case "WHEN" if self._is_searched(place):
                    yield from self._condition(place + 1, self._end(place + 1, token.depth))
                case "THEN" if not self._is_searched(place):
                    yield from self._condition(place + 1, self._end(place + 1, token.depth, "WHEN", "ELSE"))
                case "IIF":
                    yield from self._condition(place + 2, self._end(place + 2, tokens[place + 1].depth + 1, ","))
                case "SET":
                    yield from self._assignments(place + 1, token.depth)
                case _:
                    pass

    def _is_searched(self, place: int) -> bool:
        """Whether the CASE around this place has conditions (`CASE WHEN a = b`) rather than values (`CASE a WHEN b`),
        of which the conditions follow THEN."""
        tokens = self._tokens
        while tokens[place].text.upper() != "CASE" or tokens[place].depth != tokens[place + 1].depth - 1:
            place -= 1
        return tokens[place + 1].text.upper() == "WHEN"

    def _end(self, place: int, depth: int, *more: str) -> int:
        """The first token after the expression that begins here."""
        tokens = self._tokens
        while place < len(tokens):
            token = tokens[place]
            if token.depth < depth or (token.depth == depth and (token.text.upper() in _ENDS or token.text in more)):
                return place
            place += 1
        return place

    def _condition(self, begin: int, end: int, *, aborts: bool = False) -> Iterator[tuple[str, str]]:
        """The operands of a condition, one by one. `aborts`: it says when to refuse, so that weaker means never."""
        if begin >= end:
            return
        alternatives = self._split(begin, end, "OR")
        operands = alternatives if len(alternatives) > 1 else self._split(begin, end, "AND")
        always = not aborts and len(alternatives) == 1
        for first, last in operands:
            yield from self._operand(first, last, always)

    def _operand(self, begin: int, end: int, always: bool) -> Iterator[tuple[str, str]]:
        tokens = self._tokens
        start, stop = tokens[begin].start, tokens[end - 1].end
        said = _shown(self._text[start:stop])
        word, more = ("always", f"OR {self._dialect.true}") if always else ("never", f"AND {self._dialect.false}")
        yield f"{word} {said}", self._replaced(start, stop, f"(({self._text[start:stop]}) {more})")
        if tokens[begin].text == "(" and tokens[end - 1].text == ")" and self._closes(begin) == end - 1:
            yield from self._condition(begin + 1, end - 1)
            return
        depth = tokens[begin].depth
        for place in range(begin, end):
            token = tokens[place]
            if token.depth != depth:
                continue
            for other in _COMPARISONS.get(token.text, ()):
                yield f"{other} in {said}", self._replaced(token.start, token.end, other)
            if token.text.upper() == "NULL" and tokens[place - 1].text.upper() in ("IS", "NOT"):
                yield from self._null(place, said)
            if token.text.upper() == "IN" and place + 2 < end and tokens[place + 2].text.startswith("'"):
                yield from self._members(place + 1, said)

    def _null(self, place: int, said: str) -> Iterator[tuple[str, str]]:
        before = self._tokens[place - 1]
        if before.text.upper() == "NOT":
            yield f"IS NULL in {said}", self._replaced(before.start, before.end, "")
        else:
            yield f"IS NOT NULL in {said}", self._replaced(before.end, before.end, " NOT")

    def _members(self, opening: int, said: str) -> Iterator[tuple[str, str]]:
        closing = self._closes(opening)
        tokens = self._tokens
        members = [token.text for token in tokens[opening + 1 : closing] if token.text != ","]
        others = [f"'{status}'" for status in STATUSES if f"'{status}'" not in members]
        for member in members:
            left = ", ".join(one for one in members if one != member)
            yield f"not {member} in {said}", self._replaced(tokens[opening].start, tokens[closing].end, f"({left})")
        for other in others:
            more = ", ".join([*members, other])
            yield f"also {other} in {said}", self._replaced(tokens[opening].start, tokens[closing].end, f"({more})")

    def _assignments(self, place: int, depth: int) -> Iterator[tuple[str, str]]:
        """Columns that the statement sets for a fence to be seen by: each keeps its value."""
        tokens = self._tokens
        updated = re.search(r"UPDATE\s+runs\s+(?:(\w+)\s+)?SET\s*$", self._text[: tokens[place].start])
        if updated is None:
            return
        end = self._end(place, depth)
        for first, last in self._split(place, end, ","):
            column = tokens[first].text
            if column in _FENCED:
                start, stop = tokens[first + 2].start, tokens[last - 1].end
                value = self._text[start:stop]
                kept = self._dialect.keep.format(column=f"{updated[1] or 'runs'}.{column}", value=value)
                yield f"keeps {column} = {_shown(value)}", self._replaced(start, stop, kept)

    def _split(self, begin: int, end: int, separator: str) -> list[tuple[int, int]]:
        tokens = self._tokens
        depth, parts, first = tokens[begin].depth, [], begin
        for place in range(begin, end):
            if tokens[place].depth == depth and tokens[place].text.upper() == separator:
                parts.append((first, place))
                first = place + 1
        return [*parts, (first, end)]

    def _closes(self, opening: int) -> int:
        depth = self._tokens[opening].depth
        for place in range(opening + 1, len(self._tokens)):
            if self._tokens[place].text == ")" and self._tokens[place].depth == depth:
                return place
        raise AssertionError("a parenthesis is not closed")

    def _replaced(self, start: int, stop: int, text: str) -> str:
        return self._text[:start] + text + self._text[stop:]


def _tokens(text: str) -> list[Token]:
    """With a depth each: how many parentheses, CASEs and bodies of triggers they are in."""
    tokens: list[Token] = []
    depth = place = 0
    while place < len(text):
        found = _TOKEN.match(text, place)
        if found is None:
            raise AssertionError(f"{text[place : place + 20]!r} is SQL that this does not know; teach it")
        place = found.end()
        if found.group("space"):
            continue
        depth -= found[0] == ")" or found[0].upper() == "END"
        tokens.append(Token(found[0], found.start(), found.end(), depth))
        depth += found[0] == "(" or found[0].upper() in ("CASE", "BEGIN")
    return tokens


def _follows_condition(tokens: Sequence[Token], place: int) -> bool:
    """`ON` also stands before CONFLICT, and before the view of a trigger."""
    following = tokens[place + 1].text.upper()
    return tokens[place].text.upper() == "WHERE" or (following != "CONFLICT" and tokens[place - 1].text != "INSERT")


def _is_abort(tokens: Sequence[Token], place: int) -> bool:
    """`SELECT RAISE(ABORT, ...) WHERE` refuses where other conditions allow."""
    return any(tokens[back].text.upper() == "RAISE" for back in range(max(0, place - 7), place))


def _shown(text: str) -> str:
    return " ".join(text.split())
