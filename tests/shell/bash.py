"""bash as an oracle: a script runs with stub launchers that print their arguments, and the evaluator must see the same."""

import dataclasses
import os
import resource
import shutil
import subprocess

TIMEOUT_S = 10
LAUNCHERS = ("python", "python3", "torchrun", "deepspeed", "accelerate", "mpirun", "mpiexec", "srun", "ray", "uv", "nsys", "numactl",
             "horovodrun", "ft_launcher", "coverage", "taskset")
SILENT = ("mkdir", "rm", "touch", "chmod", "ln", "cp", "mv", "kill", "pkill", "pip", "pip3", "git", "wget", "curl", "tee",
          "nvidia-smi", "hostname", "grep", "sed", "awk", "date", "sleep", "huggingface-cli", "sbatch", "docker", "free", "which",
          "wc", "cut", "tr", "head", "tail", "sort", "nproc", "ls", "find", "shuf", "chown", "module", "conda", "ssh", "xargs")
PASSING = ("nohup", "timeout", "sudo", "nice", "stdbuf", "env", "bash", "sh", "dirname", "basename", "cat", "realpath", "readlink")
LAUNCHER = '''#!/bin/bash
[ "$*" = "-c import torch_npu" ] && exit 1
for ((i = 1; i <= $#; i++)); do
  case "${!i##*/}" in bash | sh) exec "${@:i}" ;; *.py) break ;; esac
done
{ printf '%s\\0' $(($# + 1)) "${0##*/}" "$@"; } >> "$OFFSIM_WORDS"
'''


def make_stubs(folder, *, real=PASSING):
    """A folder for PATH: launchers that print, programs that do nothing, and the few real ones that evaluate nothing else."""
    folder.mkdir()
    for names, text in ((LAUNCHERS, LAUNCHER), (SILENT, "#!/bin/bash\nexit 0\n")):
        for name in names:
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
    for name in real:
        for place in ("/usr/bin", "/bin"):
            if os.path.exists(f"{place}/{name}"):
                os.symlink(f"{place}/{name}", folder / name)
                break
    return folder


def limits():
    resource.setrlimit(resource.RLIMIT_CPU, (TIMEOUT_S, TIMEOUT_S))
    resource.setrlimit(resource.RLIMIT_FSIZE, (4 << 20, 4 << 20))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def without_network():
    command = [shutil.which("unshare") or "unshare", "-rn"]
    return command if shutil.which("unshare") and subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0 else []


def read_commands(data, signs):
    """[count, word, ...] in NULs -> lists of words; with signs, lists of (sign, word) and whether the branch is certain."""
    parts = data.split(b"\0")[:-1]
    commands = []
    while parts:
        count = int(parts[0])
        words = [part.decode(errors="replace") for part in parts[1:1 + abs(count)]]
        commands.append(([(word[0], word[1:]) for word in words], count > 0) if signs else words)
        parts = parts[1 + abs(count):]
    return commands


@dataclasses.dataclass
class Bash:
    stubs: object
    folder: object  # an empty one, where the script runs
    isolation: list

    def __call__(self, script, arguments=(), environment=None):
        """The commands, or None if it ran too long."""
        words = self.folder.parent / f"{self.folder.name}.words"
        words.write_bytes(b"")
        variables = {"PATH": str(self.stubs), "OFFSIM_WORDS": str(words), **(environment or {})}
        try:
            subprocess.run([*self.isolation, "/bin/bash", str(script), *arguments], cwd=self.folder, env=variables,
                           stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT_S, preexec_fn=limits, check=False)
        except subprocess.TimeoutExpired:
            return None
        return read_commands(words.read_bytes(), signs=False)


def evaluate(program, script, arguments=(), environment=None):
    """(commands, message): what the evaluator found, or its one message."""
    options = [word for value in arguments for word in ("--arg", value)]
    options += [word for name, value in (environment or {}).items() for word in ("--env", f"{name}={value}")]
    done = subprocess.run([str(program), str(script), *options], capture_output=True, timeout=60, check=False)
    if done.returncode not in (0, 2):
        raise AssertionError(f"{script}: exit status {done.returncode}\n{done.stderr.decode(errors='replace')}")
    message = "\n".join(line for line in done.stderr.decode(errors="replace").splitlines() if "error: " in line or "is taken from --env" in line)
    return read_commands(done.stdout, signs=True), message


def same_words(found, expected):
    """An unknown part matches anything: a word that has one matches one word or more, a word that is one any number."""
    reachable = {0}
    for sign, text in found:
        if sign == "*":
            reachable = set(range(min(reachable), len(expected) + 1)) if reachable else set()
        elif sign == "?":
            reachable = set(range(min(reachable) + 1, len(expected) + 1)) if reachable else set()
        else:
            reachable = {i + 1 for i in reachable if i < len(expected) and text == expected[i]}
    return len(expected) in reachable


def launched(words):
    """The words from the launcher on: what bash's stub saw. A path before its name is not compared."""
    for i, (sign, text) in enumerate(words):
        if sign != "*" and text.rsplit("/", 1)[-1] in LAUNCHERS:
            return [("=", text.rsplit("/", 1)[-1]), *words[i + 1:]]
    return None


def compare(found, expected):
    """None: every command that bash ran is one that was found, in this order, and every certain one was run. Else what differs."""
    commands = [(launched(words), certain) for words, certain in found]
    commands = [(words, certain) for words, certain in commands if words is not None]
    next_command = 0
    for words in expected:
        while next_command < len(commands) and not same_words(commands[next_command][0], words) and not commands[next_command][1]:
            next_command += 1
        if next_command == len(commands):
            return f"bash runs {words}, which was not found"
        if not same_words(commands[next_command][0], words):
            return f"bash runs {words}, found {[sign + text for sign, text in commands[next_command][0]]}"
        next_command += 1
    rest = [words for words, certain in commands[next_command:] if certain]
    return f"bash does not run {[sign + text for sign, text in rest[0]]}" if rest else None


def is_recorded(words):
    """What the evaluator keeps: commands with a Python script or module, options, or overrides."""
    return (any(word.endswith(".py") and not word.startswith("-") for word in words) or "-m" in words or "--module" in words
            or sum(word.startswith("--") for word in words) >= 3)
