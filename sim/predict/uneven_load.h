/*
 * Figures are of evenly loaded experts, or of model.moe_imbalance. How much more memory an uneven load takes:
 * the setting is predicted once more, with more rows for the experts of every rank.
 */
#ifndef OFFSIM_SIM_PREDICT_UNEVEN_LOAD_H
#define OFFSIM_SIM_PREDICT_UNEVEN_LOAD_H

#include "sim/predict/prediction.h"

enum { UNEVEN_PERCENT = 10 };

/* Whether the routing decides how many rows the experts of a rank get. */
bool load_is_uneven(const settings *s);

/* [p->rank_count]: by how much the allocated peak grows with UNEVEN_PERCENT more rows; NULL: the routing
 * decides nothing, the plans were given, or the settings refuse that many rows. */
const int64_t *uneven_load_growth(const prediction *p, arena *a);

#endif
