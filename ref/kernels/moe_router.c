/*
 * The router by one kernel (Transformer Engine's fused one), and the scores of the balancing loss.
 * Sums go over the chosen experts, the largest score first; in backward by ascending number of the
 * expert.
 *
 * router_forward: reads logits; writes probabilities [tokens, experts] (0 where not chosen), map,
 * scores. router_backward: reads the gradient of the probabilities, map, scores.
 * router_aux_forward: reads logits; writes scores that sum to 1, map, scores before that.
 * router_aux_backward: reads the gradient of the former, the latter. router_aux_count: reads the
 * kept scores; writes for each sequence how often an expert is among a token's k largest
 * [sequences, experts]. Token t belongs to sequence t modulo the number of sequences.
 * router_aux_gradient: reads the kept scores [and such counts, of several ranks]; writes the same
 * number for all tokens of a sequence: the count times the factor.
 */
#include <assert.h>
#include <stdlib.h>

#include "ref/kernels/functions.h"
#include "ref/kernels/moe_choice.h"
#include "ref/kernels/moe_rows.h"
#include "ref/kernels/storage.h"

enum { TOKENS, EXPERTS, TOPK };             /* dims */
enum { SCORE, GROUPS, GROUP_TOPK, FORCED }; /* scalars */
enum { AUX_FACTOR, AUX_SEQUENCES };         /* ... of router_aux_gradient */
enum { COUNT_SEQUENCES };                   /* ... of router_aux_count */

static const real epsilon = (real)1e-20;

static bool is_softmax(router_score s)
{
  return s == ROUTER_SOFTMAX || s == ROUTER_PRE_SOFTMAX;
}

static router_score score_of(const exec_call *c)
{
  return (router_score)c->call->scalars[SCORE];
}

static real sum_of(const real *x, int64_t count)
{
  real sum = 0;
  for (int64_t i = 0; i < count; i++)
    sum += x[i];
  return sum;
}

/* The token that is being processed. */
typedef struct token_row {
  real *scores, *probs, *chosen_scores; /* [experts], [experts], [k] */
  int64_t *chosen;                      /* [k] */
} token_row;

static token_row token_row_new(int64_t experts, int64_t k)
{
  return (token_row){ ref_reals(experts), ref_reals(experts), ref_reals(k), moe_numbers(k) };
}

static void token_row_release(token_row *r)
{
  free(r->scores);
  free(r->probs);
  free(r->chosen_scores);
  free(r->chosen);
}

/* Turns logits in `scores` into scores and probabilities. */
static void route(router_score s, const moe_limits *l, int64_t token, token_row *r)
{
  real *top = r->chosen_scores;
  if (s == ROUTER_PRE_SOFTMAX) moe_softmax(r->scores, l->experts);
  for (int64_t e = 0; e < l->experts; e++) {
    if (!is_softmax(s)) r->scores[e] = moe_score(s, r->scores[e]);
    r->probs[e] = 0;
  }
  moe_choose(l, token, r->scores, r->chosen);
  for (int64_t j = 0; j < l->k; j++)
    top[j] = r->scores[r->chosen[j]];
  if (s == ROUTER_SOFTMAX) moe_softmax(top, l->k);
  real sum = is_softmax(s) || l->k == 1 ? 1 : sum_of(top, l->k) + epsilon;
  for (int64_t j = 0; j < l->k; j++)
    r->probs[r->chosen[j]] = top[j] / sum;
  for (int64_t e = 0; s == ROUTER_SOFTMAX && e < l->experts; e++)
    r->scores[e] = r->probs[e];
}

static void write_map(const exec_tensor *map, int64_t token, int64_t experts, const int64_t *chosen,
                      int64_t k)
{
  for (int64_t e = 0; e < experts; e++)
    ref_store_int(map, token * experts + e, 0);
  for (int64_t j = 0; j < k; j++)
    ref_store_int(map, token * experts + chosen[j], 1);
}

void ref_router_forward(const exec_call *c)
{
  moe_limits l = { .experts = exec_dim(c, EXPERTS),
                   .k = exec_dim(c, TOPK),
                   .groups = (int64_t)c->call->scalars[GROUPS],
                   .group_topk = (int64_t)c->call->scalars[GROUP_TOPK],
                   .forced = c->call->scalars[FORCED] != 0 };
  token_row r = token_row_new(l.experts, l.k);
  int64_t cells = exec_dim(c, TOKENS) * l.experts;
  assert(REF_READS(c, cells) && REF_WRITES(c, cells, cells, cells));
  for (int64_t t = 0; t < exec_dim(c, TOKENS); t++) {
    ref_load_row(&c->reads[0], t * l.experts, l.experts, r.scores);
    route(score_of(c), &l, t, &r);
    ref_store_row(&c->writes[0], t * l.experts, l.experts, r.probs);
    write_map(&c->writes[1], t, l.experts, r.chosen, l.k);
    ref_store_row(&c->writes[2], t * l.experts, l.experts, r.scores);
  }
  token_row_release(&r);
}

/* Turns g, the gradient of the probabilities, 0 for experts that were not chosen, into that of the
 * logits. */
static void softmax_gradient(const real *y, real *g, int64_t count)
{
  real dot = 0;
  for (int64_t e = 0; e < count; e++)
    dot += g[e] * y[e];
  for (int64_t e = 0; e < count; e++)
    g[e] = y[e] * (g[e] - dot);
}

/* The gradient of score / (sum of the chosen scores + epsilon). */
static void quotient_gradient(const real *y, const bool *chosen, real *g, int64_t count)
{
  real sum = 0, dot = 0;
  for (int64_t e = 0; e < count; e++) {
    if (!chosen[e]) continue;
    sum += y[e];
    dot += g[e] * y[e];
  }
  sum += epsilon;
  for (int64_t e = 0; e < count; e++)
    g[e] = chosen[e] ? g[e] / sum - dot / (sum * sum) : 0;
}

static void token_gradient(router_score s, const real *y, const bool *chosen, real *g,
                           int64_t experts, int64_t k)
{
  for (int64_t e = 0; e < experts; e++)
    if (!chosen[e]) g[e] = 0;
  if (is_softmax(s)) {
    softmax_gradient(y, g, experts);
    return;
  }
  if (k > 1) quotient_gradient(y, chosen, g, experts);
  for (int64_t e = 0; e < experts; e++)
    g[e] = chosen[e] ? g[e] * moe_score_slope(s, y[e]) : 0;
}

void ref_router_backward(const exec_call *c)
{
  int64_t experts = exec_dim(c, EXPERTS);
  real *g = ref_reals(experts), *y = ref_reals(experts);
  bool *chosen = (bool *)moe_numbers(experts);
  int64_t cells = exec_dim(c, TOKENS) * experts;
  assert(REF_READS(c, cells, cells, cells) && REF_WRITES(c, cells));
  for (int64_t t = 0; t < exec_dim(c, TOKENS); t++) {
    ref_load_row(&c->reads[0], t * experts, experts, g);
    ref_load_row(&c->reads[2], t * experts, experts, y);
    for (int64_t e = 0; e < experts; e++)
      chosen[e] = ref_load_int(&c->reads[1], t * experts + e) != 0;
    token_gradient(score_of(c), y, chosen, g, experts, exec_dim(c, TOPK));
    ref_store_row(&c->writes[0], t * experts, experts, g);
  }
  free(g);
  free(y);
  free(chosen);
}

/* ---- the balancing loss ---------------------------------------------------------------------- */

void ref_router_aux_forward(const exec_call *c)
{
  int64_t experts = exec_dim(c, EXPERTS), k = exec_dim(c, TOPK);
  token_row r = token_row_new(experts, k);
  router_score s = score_of(c);
  int64_t cells = exec_dim(c, TOKENS) * experts;
  assert(REF_READS(c, cells) && REF_WRITES(c, cells, cells, cells));
  for (int64_t t = 0; t < exec_dim(c, TOKENS); t++) {
    ref_load_row(&c->reads[0], t * experts, experts, r.scores);
    if (is_softmax(s)) moe_softmax(r.scores, experts);
    for (int64_t e = 0; e < experts && !is_softmax(s); e++)
      r.scores[e] = moe_score(s, r.scores[e]);
    real sum = is_softmax(s) ? 1 : sum_of(r.scores, experts) + epsilon;
    for (int64_t e = 0; e < experts; e++)
      r.probs[e] = r.scores[e] / sum;
    moe_largest(r.scores, experts, k, r.chosen);
    ref_store_row(&c->writes[0], t * experts, experts, r.probs);
    write_map(&c->writes[1], t, experts, r.chosen, k);
    ref_store_row(&c->writes[2], t * experts, experts, r.scores);
  }
  token_row_release(&r);
}

void ref_router_aux_backward(const exec_call *c)
{
  int64_t experts = exec_dim(c, EXPERTS);
  real *g = ref_reals(experts), *y = ref_reals(experts);
  bool *all = (bool *)moe_numbers(experts);
  int64_t cells = exec_dim(c, TOKENS) * experts;
  assert(REF_READS(c, cells, cells) && REF_WRITES(c, cells));
  for (int64_t e = 0; e < experts; e++)
    all[e] = true;
  for (int64_t t = 0; t < exec_dim(c, TOKENS); t++) {
    ref_load_row(&c->reads[0], t * experts, experts, g);
    ref_load_row(&c->reads[1], t * experts, experts, y);
    token_gradient(score_of(c), y, all, g, experts, experts);
    ref_store_row(&c->writes[0], t * experts, experts, g);
  }
  free(g);
  free(y);
  free(all);
}

/* [sequences, experts] */
static int64_t *count_choices(const exec_call *c, int64_t sequences)
{
  int64_t experts = exec_dim(c, EXPERTS), k = exec_dim(c, TOPK);
  int64_t *counts = moe_numbers(sequences * experts), *chosen = moe_numbers(k);
  real *y = ref_reals(experts);
  assert(sequences > 0 && exec_elements(&c->reads[0]) == exec_dim(c, TOKENS) * experts);
  for (int64_t t = 0; t < exec_dim(c, TOKENS); t++) {
    ref_load_row(&c->reads[0], t * experts, experts, y);
    moe_largest(y, experts, k, chosen);
    for (int64_t j = 0; j < k; j++)
      counts[t % sequences * experts + chosen[j]]++;
  }
  free(chosen);
  free(y);
  return counts;
}

static int64_t *load_counts(const exec_tensor *t)
{
  int64_t *counts = moe_numbers(exec_elements(t));
  for (int64_t i = 0; i < exec_elements(t); i++)
    counts[i] = ref_load_int(t, i);
  return counts;
}

void ref_router_aux_count(const exec_call *c)
{
  int64_t *counts = count_choices(c, (int64_t)c->call->scalars[COUNT_SEQUENCES]);
  assert(exec_elements(&c->writes[0]) ==
         (int64_t)c->call->scalars[COUNT_SEQUENCES] * exec_dim(c, EXPERTS));
  for (int64_t i = 0; i < exec_elements(&c->writes[0]); i++)
    ref_store_int(&c->writes[0], i, counts[i]);
  free(counts);
}

void ref_router_aux_gradient(const exec_call *c)
{
  int64_t experts = exec_dim(c, EXPERTS), sequences = (int64_t)c->call->scalars[AUX_SEQUENCES];
  int64_t *counts = c->read_count > 1 ? load_counts(&c->reads[1]) : count_choices(c, sequences);
  assert(c->read_count == 1 || exec_elements(&c->reads[1]) == sequences * experts);
  assert(REF_WRITES(c, exec_dim(c, TOKENS) * experts));
  for (int64_t i = 0; i < exec_dim(c, TOKENS) * experts; i++) {
    int64_t sequence = i / experts % sequences;
    ref_store(&c->writes[0], i,
              (real)counts[sequence * experts + i % experts] * ref_scalar(c, AUX_FACTOR));
  }
  free(counts);
}
