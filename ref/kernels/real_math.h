/* The functions of exact_math.h for `real`, which may be float or double. */
#ifndef OFFSIM_REF_KERNELS_REAL_MATH_H
#define OFFSIM_REF_KERNELS_REAL_MATH_H

#include "ref/kernels/exact_math.h"
#include "ref/kernels/kernel.h"

#define REF_FOR_REAL(name, x) _Generic((real)0, float : name##f, double : name)(x)

#define real_exp(x)     REF_FOR_REAL(exact_exp, x)
#define real_expm1(x)   REF_FOR_REAL(exact_expm1, x)
#define real_log(x)     REF_FOR_REAL(exact_log, x)
#define real_sin(x)     REF_FOR_REAL(exact_sin, x)
#define real_cos(x)     REF_FOR_REAL(exact_cos, x)
#define real_tanh(x)    REF_FOR_REAL(exact_tanh, x)
#define real_erf(x)     REF_FOR_REAL(exact_erf, x)
#define real_sigmoid(x) REF_FOR_REAL(exact_sigmoid, x)
#define real_rsqrt(x)   REF_FOR_REAL(exact_rsqrt, x)
#define real_sqrt(x)    _Generic((real)0, float : exact_sqrtf, double : sqrt)(x)
#define real_pow(b, y)  _Generic((real)0, float : exact_powf, double : exact_pow)(b, y)
#define real_infinity() ((real)exact_infinity())

#endif
