/*
 * Muon's step of one matrix: its momentum, made orthogonal by Newton-Schulz iterations, is taken
 * from it. With X the normalised momentum, short side first, an iteration is
 *
 *     A = X X'      B = b A + c A A      X = a X + B X
 *
 * of which PyTorch makes a product and twice a copy with a product that adds to it. The products run
 * in bf16 by default. The plan's products carry no coefficients, as no executor runs Muon.
 *
 * A fused query, key and value is cut into its parts, each of which is made orthogonal by itself. A
 * matrix that tensor parallel ranks share is made orthogonal as muon_tp_mode says: blockwise, each
 * rank its part; duplicated, every rank all of it, from an all-gather; distributed, with A summed over
 * the ranks.
 *
 * Sources: Megatron-LM d98e8a64, core/optimizer/emerging_optimizers.py (TensorParallelMuon) and
 * optimizer.py (_copy_main_params_to_model_params); Emerging-Optimizers fd77292,
 * orthogonalized_optimizers/orthogonalized_optimizer.py (step) and muon_utils.py (newton_schulz).
 */
#ifndef OFFSIM_SIM_COMPILE_MUON_H
#define OFFSIM_SIM_COMPILE_MUON_H

#include "sim/compile/optimizer.h"

/* All of a matrix, or all of a tensor parallel rank's part of it. */
typedef struct muon_matrix {
  const parameter *parameter;
  optimizer_operands operands; /* weight: the one that is stepped; states: the momentum */
  uint32_t copy;               /* the weight that a main parameter is copied to, NO_BUFFER: none */
  plan_view copy_view;
} muon_matrix;

void muon_step(walk *w, const muon_matrix *m);

#endif
