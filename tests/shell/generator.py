"""Launch scripts drawn from a seed: what the evaluator reads, in combinations that nobody writes by hand."""

import random

NAMES = ["TP", "PP", "NNODES", "GPUS", "MODEL", "ARGS", "EXTRA", "X", "LR", "MODE"]
ARRAYS = ["OPTS", "LIST", "MORE"]
TEXTS = ["1", "2", "4", "8", "gpt", "a.b.c", "x/y/z.json", "--tp 4", "a  b", "", "flash", "0.1", "Llama-3", "A,B", "*.txt", "'q'", "é"]
PATTERNS = ["*", "?", "[0-9]", "g*", "*.c", "*b*", "[!a]*", "a.b.c", "[[:digit:]]", "x/*"]


class Script:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.lines = []
        self.functions = []
        self.depth = 0

    def pick(self, *items):
        return self.random.choice(items)

    def text(self):
        return self.random.choice(TEXTS)

    def name(self):
        return self.random.choice(NAMES)

    def quoted(self, text):
        kind = self.pick("single", "double", "plain")
        if kind == "plain" and text and not set(text) & set(" '\"*?[]&;|<>(){}$`\\#!~"):
            return text
        if kind == "single" and "'" not in text:
            return f"'{text}'"
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$").replace("`", "\\`") + '"'

    def number(self):
        form = self.random.randrange(8)
        if form < 3:
            return str(self.random.randrange(1, 17))
        if form == 3:
            return f"${{#{self.name()}}}"
        if form == 4:
            return f"${{#{self.pick(*ARRAYS)}[@]}}"
        operator = self.pick("+", "-", "*", "/", "%", "<<", "==", "<", "&&", "||", "&", "|", "^", "**")
        left, right = self.number(), str(self.random.randrange(1, 5))
        if form == 5:
            return f"$(( ({left} {operator} {right}) ? {self.random.randrange(9)} : {right} ))"
        return f"$(({left} {operator} {right}))"

    def parameter(self):
        name, array = self.name(), self.pick(*ARRAYS)
        forms = [f"${name}", f"${{{name}}}", f"${{{name}:-{self.text_in()}}}", f"${{{name}-{self.text_in()}}}",
                 f"${{{name}:+{self.text_in()}}}", f"${{{name}:={self.word()}}}", f"${{{name}%{self.pick(*PATTERNS)}}}",
                 f"${{{name}%%{self.pick(*PATTERNS)}}}", f"${{{name}#{self.pick(*PATTERNS)}}}", f"${{{name}##{self.pick(*PATTERNS)}}}",
                 f"${{{name}/{self.pick('a', 'b', '.', '?')}/{self.pick('Z', '', 'long')}}}", f"${{{name}//{self.pick('.', 'a', '[a-c]')}/-}}",
                 f"${{{name}^^}}", f"${{{name},,}}", f"${{{name}^}}", f"${{{name}:{self.random.randrange(3)}}}",
                 f"${{{name}:{self.random.randrange(2)}:{self.random.randrange(1, 4)}}}", f"${{#{name}}}", f"${{{array}[@]}}",
                 f"${{{array}[0]}}", f"${{{array}[{self.random.randrange(3)}]}}", f"${{#{array}[@]}}", f"${{{array}[*]}}",
                 f"${{{array}[@]:1}}", f"${{{array}[@]:0:2}}", "$1", "${2:-two}", "$#", "$@", "$?",
                 f"${{{array}[@]/a/b}}", f"${{{name}: -2}}", f"${{!{array}[@]}}"]
        return self.random.choice(forms)

    def text_in(self):
        return self.pick("d", "1", "$TP", "${PP}", "a b", '"c d"', "", "$((1+2))")

    def substitution(self):
        self.depth += 1
        forms = [f"$(echo {self.word()})", f"$(printf '%s-%02d' {self.quoted(self.pick('a', 'b'))} 7)", f"$(basename {self.pick('a/b.json', 'x', '/q/r.sh')} .json)",
                 f"$(dirname {self.pick('a/b/c', 'x', '/q')})", "`echo back`", f"$(echo -n {self.quoted(self.text())})", "$(true)",
                 f"$(IFS={self.pick(',', '-:', '')}; echo \"${{{self.pick(*ARRAYS)}[*]}}\")",
                 f"$(if {self.condition()}; then echo yes; else echo no; fi)", f"$(cat <<EOF\n{self.word_in_document()}\nEOF\n)"]
        self.depth -= 1
        return self.random.choice(forms)

    def word_in_document(self):
        return self.pick("plain text", "value $TP and ${PP:-3}", "a \\$ b", "'x' \"y\"", "$((2 * 3))", "--a 1 \\\n --b 2")

    def piece(self):
        form = self.random.randrange(10)
        if form < 3:
            return self.quoted(self.text())
        if form < 5:
            return self.parameter()
        if form < 7:
            return f'"{self.pick("", "pre-", "a ")}{self.parameter()}{self.pick("", "-post", " z")}"'
        if form == 7:
            return self.number()
        if form == 8 and self.depth < 2:
            return self.substitution()
        return self.pick("a{b,c}", "{1..3}", "$'t\\tn'", "a\\ b", '""', "x=y", "{x}", "w", "w", "-v")
        return self.pick("a{b,c}", "{1..3}", "$'t\\tn'", "a\\ b", '""', "x=y", "{x}", "~+")[:6] if self.random.randrange(3) == 0 else "w"

    def word(self):
        return "".join(self.piece() for _ in range(self.pick(1, 1, 1, 2))) or '""'

    def words(self, most):
        return " ".join(self.word() for _ in range(self.random.randrange(most + 1)))

    # ---- commands ----

    def condition(self):
        name = self.name()
        forms = [f'[ "${name}" = {self.quoted(self.text())} ]', f'[ -z "${name}" ]', f'[ -n "${{{name}}}" ]', f"[ {self.number()} -gt {self.random.randrange(9)} ]",
                 f'[[ ${name} == {self.pick(*PATTERNS)} ]]', f"[[ -n ${name} && ${self.name()} != x ]]", f"[[ ! -z ${name} || 1 -lt 2 ]]", f"(( {self.number()} > 2 ))",
                 "true", "false", f"[[ ${name} =~ ^[a-z]+$ ]]", f'[ "${{{name}}}" != "" -a 1 -eq 1 ]', f"[[ -v {name} ]]", '[ "$#" -lt 2 ]', f"[[ ${name} < m ]]",
                 f'! [ "${name}" == gpt ]', f'test "${name}" = 4', f'[ ! "${name}" ]', f'[[ "${name}" == "g"* ]]']
        return self.random.choice(forms)

    def assignment(self):
        name, array = self.name(), self.pick(*ARRAYS)
        forms = [f"{name}={self.word()}", f"{name}={self.quoted(self.text())}", f"export {name}={self.word()}", f"{name}+={self.word()}", f"{array}=({self.words(4)})",
                 f"{array}+=({self.words(3)})", f"{array}[{self.random.randrange(4)}]={self.word()}", f"readonly R{self.random.randrange(9999)}={self.word()}",
                 f"declare -a {array}=({self.words(2)})", f"(({name} = {self.number()}))", f"let {name}=3+4", f"unset {name}", f": ${{{name}:={self.quoted(self.text())}}}",
                 f"printf -v {name} '%s' {self.quoted(self.text())}", f'{name}="{self.parameter()} --flag {self.number()}"', f"{array}=(\"${{{array}[@]}}\" {self.word()} # note\n)"]
        return self.random.choice(forms)

    def command(self):
        launcher = self.pick("python train.py", "torchrun --nproc_per_node 8 train.py", "python3 -m pkg.train", "srun -N 2 python -u a/train.py", "deepspeed train.py")
        arguments = " ".join(f"--{self.pick('a', 'b', 'c', 'tp-size')}{self.pick(' ', '=')}{self.word()}" for _ in range(self.random.randrange(4)))
        prefix = self.pick("", "", "", "A=1 ", "nohup ", "env B=2 ")
        suffix = self.pick("", "", " 2>&1 | tee log.txt", " > out.log", " || exit 1")
        rest = self.pick("", '"${OPTS[@]}"', "$ARGS", '"$@"', "${LIST[*]}")
        return f"{prefix}{launcher} {arguments} {rest}{suffix}"

    def block(self, most):
        return "\n".join(self.statement() for _ in range(1 + self.random.randrange(most)))

    def statement(self):
        self.depth += 1
        try:
            form = self.random.randrange(22)
            if self.depth > 3 or form < 9:
                return self.assignment()
            if form < 12:
                return self.command()
            if form == 12:
                other = self.pick("", f"elif {self.condition()}; then\n{self.block(2)}\n", f"else\n{self.block(2)}\n")
                return f"if {self.condition()}; then\n{self.block(2)}\n{other}fi"
            if form == 13:
                return f"case {self.pick('$' + self.name(), self.word())} in\n  {self.pick(*PATTERNS)}|q) {self.assignment()} ;;\n  gpt) {self.block(1)}\n  ;;\n  *) {self.assignment()};;\nesac"
            if form == 14:
                name = self.pick("i", "X", "MODE")
                return f"for {name} in {self.words(4)}; do\n{self.block(2)}\n{self.pick('', 'continue', 'break', f'[ ${name} = 1 ] && continue')}\ndone"
            if form == 15:
                return f"for ((k = 0; k < {self.random.randrange(4)}; k++)); do\n{self.assignment()}\n{self.assignment()}\ndone"
            if form == 16:
                return f"{self.condition()} {self.pick('&&', '||')} {self.assignment()}"
            if form == 17:
                return f"n=0; while [ $n -lt {self.random.randrange(4)} ]; do n=$((n + 1))\n{self.assignment()}\ndone"
            if form == 18:
                return self.pick(f"{{ {self.assignment()}; {self.assignment()}; }}", f"( {self.assignment()}; {self.command()} )")
            if form == 19:
                name = f"fn{self.random.randrange(3)}"
                self.functions.append(name)
                return f"{name}() {{\n  local {self.name()}={self.word()}\n{self.block(2)}\n  {self.pick('', 'return 1', 'return')}\n}}\n{name} {self.words(2)}"
            if form == 20:
                return self.pick(f"set -- {self.words(3)}", "shift", f'eval "{self.name()}=5"', "set -e; true", "set +e", 'eval "X=\\$TP"')
            return "while [ $# -gt 0 ]; do case $1 in --*) MORE+=(\"$1\"); shift ;; *) LIST+=(\"$1\"); shift ;; esac; done"
        finally:
            self.depth -= 1

    def source(self):
        body = "\n".join(self.statement() for _ in range(4 + self.random.randrange(10)))
        return f"#!/bin/bash\n{body}\n{self.command()}\n"


def script(seed):
    """(text, arguments, environment)"""
    drawn = Script(seed)
    text = drawn.source()
    arguments = [drawn.pick("--tp", "4", "a b", "x") for _ in range(drawn.random.randrange(4))]
    environment = {drawn.pick("TP", "MODE", "EXTRA"): drawn.pick("2", "gpt", "a b", "") for _ in range(drawn.random.randrange(3))}
    return text, arguments, environment
