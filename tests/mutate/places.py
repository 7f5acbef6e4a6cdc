"""Where a small change to C code may be made: the table of mutation operators, and the places they fit.

It relies on the layout that clang-format gives the sources: binary operators between blanks, a function's braces in
the first column. Comments, strings, preprocessor lines and assertions are no places.
"""

import dataclasses
import hashlib
import math
import re

NAME = r"[A-Za-z_]\w*"
SIMPLE = rf"{NAME}(?:(?:->|\.){NAME})*"  # an argument that may change places with another

# Operator -> patterns with the group that is replaced, and its replacements.
REPLACED = {
    "comparison": {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="},
    "arithmetic": {"+": "-", "-": "+", "*": "/", "/": "*", "%": "*", "+=": "-=", "-=": "+=", "*=": "/=", "/=": "*="},
    "bits": {"&": "|", "|": "&", "<<": ">>", ">>": "<<", "|=": "&=", "&=": "|="},
    "logic": {"&&": "||", "||": "&&"},
}
OPERATORS = (*REPLACED, "constant", "condition", "dropped", "swapped", "min_max", "returned", "early_return")


@dataclasses.dataclass(frozen=True)
class Place:
    path: str
    offset: int
    line: int
    column: int
    operator: str
    before: str
    after: str
    key: str  # the same as long as the line is, wherever it moves

    def __str__(self):
        before, after = (" ".join(text.split()) for text in (self.before, self.after))
        return f"{self.path}:{self.line}:{self.column}: {self.operator}: {before} => {after}"

    def apply(self, text):
        end = self.offset + len(self.before)
        assert text[self.offset:end] == self.before
        return text[:self.offset] + self.after + text[end:]


def blank(text):
    return re.sub(r"[^\n]", " ", text)


def closing(text, opening):
    """Of a bracket: the offset of the one that closes it."""
    depth = 0
    for offset in range(opening, len(text)):
        depth += (text[offset] in "([{") - (text[offset] in ")]}")
        if depth == 0:
            return offset
    raise ValueError("a bracket is not closed")


def code_of(text):
    """The text with everything blanked that is not code."""
    text = re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|^[ \t]*#(?:\\\n|[^\n])*',
                  lambda found: blank(found[0]) if found[0][0] not in "\"'" else
                  found[0][0] + " " * (len(found[0]) - 2) + found[0][0], text, flags=re.S | re.M)
    for found in list(re.finditer(r"\bassert\(", text)):
        end = closing(text, found.end() - 1) + 1
        text = text[:found.start()] + blank(text[found.start():end]) + text[end:]
    return text


def bodies(code):
    """(start, end) of every function's body, without its braces."""
    return [found.span(1) for found in re.finditer(r"(?<=\)\n)\{\n(.*?)^\}$", code, re.S | re.M)]


def changes(code, start, end):
    """(operator, offset, length of what is replaced, replacement; {} is the replaced text)."""
    def find(pattern):
        return re.compile(pattern).finditer(code, start, end)

    for operator, table in REPLACED.items():
        symbols = "|".join(re.escape(symbol) for symbol in sorted(table, key=len, reverse=True))
        for found in find(rf"(?<= )(?:{symbols})(?=[ \n])"):
            yield operator, found.start(), len(found[0]), table[found[0]]
    for found in find(r"(?<![\w.])(\d+)(?=[uUlL]*\b)(?![\w]*\.)(?!\.)"):
        if not re.match(r"\d+[xXeE.]", code[found.start():]):
            number = int(found[1])
            yield "constant", found.start(), len(found[1]), str(number + 1)
            if number > 0:
                yield "constant", found.start(), len(found[1]), str(number - 1)
    for found in find(r"\bif \("):
        opening = found.end() - 1
        yield "condition", opening, closing(code, opening) + 1 - opening, "(!{})"
    for found in find(rf"(?<=\n) +((?:{NAME}\([^;{{}}]*\)|\*?{NAME}[\w.>\[\]-]*(?:\+\+|--| [-+*/|&%]?= [^;{{}}]*));)"):
        yield "dropped", found.start(1), len(found[1]), "{{}}"
    for found in find(rf"(?<=[( ]){SIMPLE}, {SIMPLE}(?=[,)])"):
        first, second = found[0].split(", ")
        if first != second and re.search(rf"{NAME}\([^;{{}}()]*$", code[start:found.start()]):
            yield "swapped", found.start(), len(found[0]), f"{second}, {first}"
    for found in find(r"\b(min|max)(?=_\w+\()"):
        yield "min_max", found.start(), 3, {"min": "max", "max": "min"}[found[0]]
    for found in find(r"\breturn ([^;{}]+);"):
        if found[1] in ("true", "false"):
            yield "returned", found.start(1), len(found[1]), {"true": "false", "false": "true"}[found[1]]
        elif found[1] not in ("0", "NULL"):
            yield "returned", found.start(1), len(found[1]), "0"
    if re.search(rf"(?:^|\n)(?:static |inline )*void {NAME}\([^;{{}}]*\)\n\{{\n$", code[:start]):
        yield "early_return", start, 0, "  return;\n"


def places(path, text):
    """All of a file, in order."""
    code = code_of(text)
    lines = text.splitlines()
    seen, found = {}, []
    for start, end in bodies(code):
        for operator, offset, length, replacement in sorted(changes(code, start, end), key=lambda change: change[1]):
            before = text[offset:offset + length]
            after = replacement.format(before)
            line = text.count("\n", 0, offset) + 1
            column = offset - (text.rfind("\n", 0, offset) + 1) + 1
            same = f"{path}|{lines[line - 1].strip()}|{operator}|{before}|{after}"
            seen[same] = seen.get(same, 0) + 1
            key = hashlib.sha256(f"{same}|{seen[same]}".encode()).hexdigest()[:10]
            found.append(Place(path, offset, line, column, operator, before, after, key))
    return found


def chosen(path, text, one_in, seed):
    """A share of a file's places: by their hashes, so that a change to the file leaves most of the choice as it was, and
    from every operator in turn."""
    def drawn(text):
        return hashlib.sha256(f"{seed} {text}".encode()).digest()

    found = places(path, text)
    by_operator = {operator: sorted((place for place in found if place.operator == operator),
                                    key=lambda place: drawn(place.key)) for operator in OPERATORS}
    order = sorted(OPERATORS, key=lambda operator: drawn(f"{path} {operator}"))
    picked, count = [], math.ceil(len(found) / one_in)
    while len(picked) < count:
        for operator in order:
            if by_operator[operator] and len(picked) < count:
                picked.append(by_operator[operator].pop())
    return sorted(picked, key=lambda place: (place.offset, place.after))
