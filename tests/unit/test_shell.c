/*
 * The evaluator of launch scripts: which commands it finds, what they depend on, where their words
 * come from.
 */
#include "sim/shell/shell.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

typedef struct fixture {
  arena a;
  diag d;
  shell_script s;
} fixture;

static bool evaluate(fixture *f, const char *text, const char *env, const char *arg)
{
  const shell_presets presets = { .environment = &env,
                                  .environment_count = env != NULL,
                                  .arguments = &arg,
                                  .argument_count = arg != NULL };
  *f = (fixture){ .d = { .quiet = true } };
  return shell_evaluate(&f->a, "run.sh", text, strlen(text), &presets, &f->s, &f->d);
}

/* The arguments of every command after its script, "<word>" each; an unknown word as <?what>,
 * commands separated by |. */
static void show(const fixture *f, char *buffer, size_t size)
{
  FILE *out = fmemopen(buffer, size, "w");
  for (uint32_t i = 0; i < f->s.count; i++) {
    const shell_command *c = &f->s.commands[i];
    if (i > 0) fputc('|', out);
    for (uint32_t j = c->entry < c->count ? c->entry + 1 : 0; j < c->count; j++) {
      fprintf(out, "<%s%s>", c->words[j].unknown != NULL ? "?" : "", c->words[j].text);
    }
  }
  fclose(out);
}

typedef struct example {
  const char *text, *shown;
} example;

static void check(const example *examples, size_t count)
{
  for (size_t i = 0; i < count; i++) {
    fixture f;
    char shown[1024] = "";
    if (!evaluate(&f, examples[i].text, "GIVEN=env", "first"))
      fail_msg("%s: %s", examples[i].text, f.d.message);
    show(&f, shown, sizeof shown);
    assert_string_equal(shown, examples[i].shown);
    arena_release(&f.a);
  }
}

#define CHECK(examples) check(examples, sizeof examples / sizeof *examples)

static void words_and_quotes(void **state)
{
  (void)state;
  static const example examples[] = {
    { "", "" },
    { "python x.py --a 1\t--b # c\n", "<--a><1><--b>" },
    { "python x.py --a 1 \\\n  --b 2", "<--a><1><--b><2>" },
    { "python x.py --a 1 \\\r\n  --b 2\r\n", "<--a><1><--b><2>" },
    { "python x.py 'x y'\"z $GIVEN\"w a\\ b $'t\\tu' \"\" ''", "<x yz envw><a b><t\tu><><>" },
    { "python x.py \"a\\\"b\\n\\\\\"", "<a\"b\\n\\>" },
    { "python x.py a{b,c}d {1..3} {01..02} {x} \"{1,2}\" a{b,{c,d}}",
      "<abd><acd><1><2><3><01><02><{x}><{1,2}><ab><ac><ad>" },
    { "python x.py *.json [0]*3+[1]*58 > log 2>&1", "<*.json><[0]*3+[1]*58>" },
    { "A=1 python x.py A=1 2>&1 | tee log", "<A=1>" },
    { "--a 1 # --b\n--l Et*2|(tt|)*3m|L --f ([0]*3+[1]*58) \\\n  'x y'",
      "<--a><1>|<--l><Et*2|(tt|)*3m|L><--f><([0]*3+[1]*58)><x y>" },
  };
  CHECK(examples);
}

static void parameters(void **state)
{
  (void)state;
  static const example examples[] = {
    { "X=a.b.c; python x.py ${X%.*} ${X%%.*} ${X#*.} ${X##*.} ${X/b/d} ${X//./-} ${#X} ${X:2:1} "
      "${X: -1}",
      "<a.b><a><b.c><c><a.d.c><a-b-c><5><b><c>" },
    { "X=; python x.py ${X:-d} \"${X-d}\" ${U-d} ${X:+a} ${GIVEN:+a} ${Y:=4} $Y",
      "<d><><d><a><4><4>" },
    { "X=Ab; python x.py ${X^^} ${X,,} ${X,} $1 ${1:-d} ${2:-d} $#",
      "<AB><ab><ab><first><first><d><1>" },
    { "X='a  b'; python x.py $X \"$X\" ${U:-'c d'} \"$@\"", "<a><b><a  b><c d><first>" },
    { "N=X; X=5; python x.py ${!N} $((X * 2 + 1)) $((X > 4 ? 7 : 8)) $((1 << 4)) $((2 ** 10)) $((7 "
      "/ 2 % 2))",
      "<5><11><7><16><1024><1>" },
    { "I=1; ((I += 4)); let I*=2; python x.py $I $((I++)) $I $((0x10 + 010))", "<10><10><11><24>" },
    { "A=(1 '2 3'); A+=(4); A[5]=6; python x.py \"${A[@]}\" ${A[1]} ${#A[@]} ${A[-1]} "
      "\"${A[@]:1:2}\" \"${!A[@]}\" \"${A[*]}\"",
      "<1><2 3><4><6><2><3><4><6><2 3><4><0><1><2><5><1 2 3 4 6>" },
    { "declare -A M=([a]=1 [b]=2); M[c]=3; python x.py ${M[b]} ${M[c]} ${#M[@]}", "<2><3><3>" },
    { "A=(); python x.py \"${A[@]}\" \"$U\" $U end", "<><end>" },
    { "IFS=,; X=a,b; python x.py $X; unset IFS; python x.py $X", "<a><b>|<a,b>" },
    { "A=(1 2 3); X=$(IFS=', '; echo \"${A[*]}\"); IFS=; Y=\"${A[*]}\"; Z=\"${A[@]}\"; IFS=é; "
      "python x.py $X $Y \"$Z\" \"${A[*]}\" \"${A[*]:1}\"",
      "<1,2,3><123><1 2 3><1é2é3><2é3>" },
    { "A=1; for v in $(env); do unset \"$v\"; done; python x.py $A", "<1>" },
    { "python x.py $(echo a b) \"$(printf '%s-%02d' x 7)\" $(basename /a/b.sh .sh) $(dirname "
      "a/b/c) `echo q`",
      "<a><b><x-07><b><a/b><q>" },
    { "X=$(cat <<EOF\n  --a $GIVEN\nEOF\n)\npython x.py $X", "<--a><env>" },
  };
  CHECK(examples);
}

static void flow_of_control(void **state)
{
  (void)state;
  static const example examples[] = {
    { "if [ $GIVEN = env ]; then A=1; else A=2; fi; python x.py $A", "<1>" },
    { "if [[ $1 == f* && -n $GIVEN ]]; then A=1; elif true; then A=3; fi; python x.py $A", "<1>" },
    { "case $1 in a|b) A=1;; f*t) A=2;; *) A=3;; esac; python x.py $A", "<2>" },
    { "for i in 1 2 3; do [ $i -eq 2 ] && continue; A+=$i; done; python x.py $A", "<13>" },
    { "for ((i = 0; i < 3; i++)); do A+=($i); done; python x.py ${A[@]}", "<0><1><2>" },
    { "set -- --tp 4 --x; while [[ $# -gt 0 ]]; do case $1 in --tp) TP=$2; shift 2;; *) "
      "R+=(\"$1\"); shift;; esac; done\npython x.py $TP \"${R[@]}\"",
      "<4><--x>" },
    { "f() { local A=2; B=$A$1; return 1; }; A=1; f 7 || C=3; python x.py $A $B $C", "<1><27><3>" },
    { "(A=1; python x.py $A); python x.py ${A:-none}", "<1>|<none>" },
    { "true && A=1 || A=2; ! false && B=3; python x.py $A $B", "<1><3>" },
    { "set -e; false || true; A=1; false; python x.py $A", "" },
    { "eval \"python x.py --a '1 2'\"; bash -c 'python x.py $0 $1' p q; srun -N 2 sh -c \"python "
      "x.py $1\"",
      "<--a><1 2>|<p><q>|<first>" },
    { "export E=1; F=2; bash -c 'python x.py ${E:-no} ${F:-no}'", "<1><no>" },
    { "nohup env A=1 torchrun --nproc_per_node 8 x.py --b &\nwait", "<--b>" },
    { "[ -z \"$U\" ] && U=4; python -m torch.distributed.run -m a.b --n $U", "<--n><4>" },
    { "i=0; until [ $i -ge 3 ]; do i=$((i+1)); done; python x.py $i", "<3>" },
    { "while true; do if [ -f done ]; then break; fi; sleep 1; done; python x.py a", "<a>" },
  };
  CHECK(examples);
}

static void what_is_not_known(void **state)
{
  (void)state;
  static const example examples[] = {
    { "python x.py run-$(date) $HOME/a ~/b", "<?run-$(date)><?$HOME/a><?~/b>" },
    { "N=$(nvidia-smi | wc -l); python x.py $N $((N * 2)) ${N:-1}",
      "<?$(nvidia-smi | wc -l)><?$(nvidia-smi | wc -l)><?$(nvidia-smi | wc -l)>" },
    { "if [ -f a ]; then A=1; B=2; else A=1; B=3; fi; python x.py $A $B", "<1><?[ -f a ]>" },
    { "if [ -f a ]; then exit 1; fi; A=1; python x.py $A", "<1>" },
    { "A=(x); if grep -q a b; then A+=(y); fi; A+=(z); python x.py \"${A[@]}\"",
      "<x><?grep -q a b><z>" },
    { "if [ -d a ]; then O=\"$O --b\"; fi; python x.py --c $O", "<--c><?[ -d a ]>" },
    { "A=1; while read x; do A=2; done < f; python x.py $A", "<?while>" },
    { "case $(hostname) in a) A=1;; *) A=1;; esac; python x.py $A", "<1>" },
    { "f() { if [ -f a ]; then A=1; return; fi; A=2; }; f; python x.py $A", "<?[ -f a ]>" },
    { "pip show x && A=1; python x.py ${A:-0}", "<?pip show x>" },
    { "P=$((1000 + ($JOB % 50))); Q=$((8 / $JOB)); python x.py $P $Q $((JOB + 1))",
      "<?$JOB><?$JOB><1>" },
    { "set -u; python x.py $LACKS ${LACKS:-2} ${LACKS%x} $((LACKS * 2)) ${#LACKS}",
      "<?$LACKS><2><?$LACKS><?$LACKS><?$LACKS>" },
    { "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=4\n#SBATCH --gres=gpu:a100:8\n"
      "if [ -z $SLURM_JOB_ID ]; then sbatch \"$0\"; exit; fi\n"
      "python x.py $SLURM_NTASKS $SLURM_GPUS_ON_NODE ${SLURM_JOB_ID:-none} $SLURM_CPUS_PER_TASK",
      "<8><8><?$SLURM_JOB_ID><?$SLURM_CPUS_PER_TASK>" },
    { "#SBATCH --gpus-per-node mi250:8 --cpus-per-task=72\n"
      "python x.py $SLURM_GPUS_PER_NODE $SLURM_GPUS_ON_NODE $SLURM_CPUS_PER_TASK",
      "<mi250:8><8><72>" },
    { "#SBATCH -c 16\npython x.py $SLURM_CPUS_PER_TASK", "<16>" },
  };
  for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
    fixture f;
    char shown[1024] = "";
    assert_true(evaluate(&f, examples[i].text, NULL, NULL));
    show(&f, shown, sizeof shown);
    if (strcmp(examples[i].shown, "<?while>") == 0)
      assert_non_null(f.s.commands[0].words[2].unknown);
    else
      assert_string_equal(shown, examples[i].shown);
    arena_release(&f.a);
  }
}

/* Words carry what they depend on, and --env gives it. */
static void dependence(void **state)
{
  (void)state;
  fixture f;
  static const char text[] = "N=$(nproc)\npython x.py --n $N --o $UNSET_ONE --k ${WANDB_API_KEY} "
                             "${WANDB_API_KEY[0]}";
  assert_true(evaluate(&f, text, "WANDB_API_KEY=0123456789abcdef", NULL));
  const shell_word *words = f.s.commands[0].words;
  assert_string_equal(words[3].unknown->name, "N");
  assert_string_equal(words[3].unknown->what, "$(nproc)");
  assert_int_equal(words[3].unknown->at.line, 1);
  assert_string_equal(words[4].missing, "UNSET_ONE");
  assert_true(words[6].unknown->secret);
  assert_string_equal(words[6].text, "***");
  assert_string_equal(words[7].text, "***");
  arena_release(&f.a);
  assert_true(evaluate(&f, text, "N=8", NULL));
  assert_string_equal(f.s.commands[0].words[3].text, "8");
  assert_null(f.s.commands[0].words[3].unknown);
  arena_release(&f.a);
}

static void assert_place(source_pos at, int line, int column)
{
  assert_int_equal(at.line, line);
  assert_int_equal(at.column, column);
}

/* Arguments that the script reads, and what it compares them with. */
static void arguments_that_lack(void **state)
{
  (void)state;
  fixture f;
  static const char text[] = "echo $1\nSIZE=$2\nif [ $SIZE = 7B ]; then N=1; elif [[ $SIZE == 13B "
                             "]]; then N=2; fi\ncase $SIZE in 30B | 70B) N=3 ;; *) ;; esac\n"
                             "f() { X=$4; }; f\nLAST=${5:-1}\npython x.py $N";
  assert_true(evaluate(&f, text, NULL, NULL));
  assert_string_equal(f.s.wanted, "$1, $2 SIZE (7B, 13B, 30B, 70B)");
  assert_true(f.s.chooses);
  assert_place(f.s.wanted_at, 1, 6);
  arena_release(&f.a);
  assert_true(evaluate(&f, "python x.py ${1:-7B}", NULL, NULL));
  assert_null(f.s.wanted);
  arena_release(&f.a);
}

static void places(void **state)
{
  (void)state;
  static const char text[] =
      "A=1 python x.py \\\n  --ü x y\nX=(--b\n 'c')\nL=\"--p\n --q\"\npython x.py \"${X[@]}\" $L";
  fixture f;
  assert_true(evaluate(&f, text, NULL, NULL));
  const shell_word *first = f.s.commands[0].words, *second = f.s.commands[1].words;
  assert_place(f.s.commands[0].at, 1, 5);
  assert_place(first[2].at, 2, 3);
  assert_place(first[3].at, 2, 7);
  assert_place(second[2].at, 3, 4);
  assert_place(second[3].at, 4, 2);
  assert_place(second[4].at, 5, 4);
  assert_place(second[5].at, 6, 2);
  arena_release(&f.a);
}

static void launchers(void **state)
{
  (void)state;
  static const struct {
    const char *text, *entry, *nodes, *per_node, *processes;
  } cases[] = {
    { "torchrun --nnodes 2 --nproc-per-node=8 a.py --b", "a.py", "2", "8", "" },
    { "python3 -m torch.distributed.launch --nproc_per_node 4 a/b.py", "a/b.py", "", "4", "" },
    { "torchrun --nproc_per_node=8 -m verl.trainer.sft a.b=1", "verl.trainer.sft", "", "8", "" },
    { "srun -N4 --ntasks-per-node=8 python -u a.py --x", "a.py", "4", "8", "" },
    { "mpirun -np 16 -x A=1 python a.py --x", "a.py", "", "", "16" },
    { "sbatch -N 4 --ntasks-per-node=8 --wrap='srun python a.py --x'", "a.py", "4", "8", "" },
    { "msrun --worker_num 16 --local_worker_num=8 a.py --x", "a.py", "", "8", "16" },
    { "deepspeed --num_nodes 2 --num_gpus 8 a.py --deepspeed", "a.py", "2", "8", "" },
    { "accelerate launch --num_processes 8 a.py", "a.py", "", "", "8" },
    { "ray job submit --address x -- python3 -m verl.trainer.main_ppo a.b=c",
      "verl.trainer.main_ppo", "", "", "" },
    { "#!/bin/bash\n#SBATCH --nodes=3\n#SBATCH --ntasks-per-node 8\nsrun python a.py", "a.py", "3",
      "8", "" },
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    fixture f;
    assert_true(evaluate(&f, cases[i].text, NULL, NULL));
    assert_int_equal(f.s.count, 1);
    const shell_command *c = &f.s.commands[0];
    const char *const found[] = { c->launch.nodes.text, c->launch.per_node.text,
                                  c->launch.processes.text };
    assert_string_equal(c->words[c->entry].text, cases[i].entry);
    assert_string_equal(found[0] != NULL ? found[0] : "", cases[i].nodes);
    assert_string_equal(found[1] != NULL ? found[1] : "", cases[i].per_node);
    assert_string_equal(found[2] != NULL ? found[2] : "", cases[i].processes);
    arena_release(&f.a);
  }
}

static void ends(void **state)
{
  (void)state;
  static const example cases[] = {
    { "python x.py ${1:?how many}",
      "argument $1 is not given; --arg VALUE gives the script's arguments (how many)" },
    { "if [ $# -lt 2 ]; then exit 1; fi; python x.py", "exit 1" },
    { "set -e; [ a = b ]; python x.py", "[ a = b ] fails under set -e" },
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    fixture f;
    assert_true(evaluate(&f, cases[i].text, NULL, NULL));
    assert_int_equal(f.s.count, 0);
    assert_string_equal(f.s.ended, cases[i].shown);
    arena_release(&f.a);
  }
}

static void messages(void **state)
{
  (void)state;
  static const struct {
    const char *text, *message;
  } cases[] = {
    { "run --a\n 'b", "run.sh:2:2: error: this ' does not end; expected another '" },
    { "run --a \"b\\\"", "run.sh:1:9: error: this \" does not end; expected another \"" },
    { "X=( --a\n", "run.sh:1:3: error: this array does not end; expected a )" },
    { "a\xC0", "run.sh:1:2: error: byte 0xC0 is not UTF-8; expected text in UTF-8" },
    { "if true; then\n a\n", "run.sh:1:1: error: this if has no fi" },
    { "X=([0]*1 ([1]*7))",
      "run.sh:1:10: error: unexpected \"(\" in an array; quote it if a word has it" },
    { "python a.py --l (tt|)*3",
      "run.sh:1:17: error: unexpected \"(\"; quote it if a word has it" },
    { "echo $((1 / 0))", "run.sh:1:6: error: arithmetic: division by 0 at \"\"" },
    { "f() { f; }; f", "run.sh:1:5: error: commands and calls are nested deeper than 200 levels, "
                       "which offsim does not follow" },
    { "cat <<EOF\nx", "run.sh:1:7: error: this here-document does not end; expected a line EOF" },
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    fixture f;
    assert_false(evaluate(&f, cases[i].text, NULL, NULL));
    assert_string_equal(f.d.message, cases[i].message);
    arena_release(&f.a);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(words_and_quotes),
    cmocka_unit_test(parameters),
    cmocka_unit_test(flow_of_control),
    cmocka_unit_test(what_is_not_known),
    cmocka_unit_test(dependence),
    cmocka_unit_test(arguments_that_lack),
    cmocka_unit_test(places),
    cmocka_unit_test(launchers),
    cmocka_unit_test(ends),
    cmocka_unit_test(messages),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
