/* The functions of activation_function (sim/plan/kernels.h) and their derivatives. */
#ifndef OFFSIM_REF_KERNELS_ACTIVATION_H
#define OFFSIM_REF_KERNELS_ACTIVATION_H

#include "ref/kernels/kernel.h"

real ref_activation_of(activation_function f, real x);
real ref_activation_slope(activation_function f, real x);

#endif
