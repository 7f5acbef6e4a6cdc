/* ref/kernels/torch_elementwise.c for GPUs. */
#include "cuda/kernels/operands.cuh"

template <class F> static void map_one(cuda_call *c, tensor x, tensor y, F function)
{
  assert(elements_of(x) == elements_of(y));
  for_each(
      c, elements_of(y), KERNEL_LAMBDA(int64_t i) { store(y, i, function(load(x, i))); });
}

template <class F> static void map(cuda_call *c, F function)
{
  assert(c->of->read_count == 1 && c->of->write_count == 1);
  map_one(c, read_of(c->of, 0), write_of(c->of, 0), function);
}

template <class F> static void map_two(cuda_call *c, F function)
{
  tensor a = read_of(c->of, 0), b = read_of(c->of, 1), y = write_of(c->of, 0);
  assert(c->of->read_count == 2 && elements_of(a) == elements_of(y) &&
         elements_of(b) == elements_of(y));
  for_each(
      c, elements_of(y),
      KERNEL_LAMBDA(int64_t i) { store(y, i, function(load(a, i), load(b, i))); });
}

struct product {
  DEVICE float operator()(float a, float b) const
  {
    return a * b;
  }
};

extern "C" void EXACT(multiply)(cuda_call *c)
{
  map_two(c, product());
}

struct scaled {
  float number;
  DEVICE float operator()(float x) const
  {
    return x * number;
  }
};

/* Also several tensors, each into its own result. */
extern "C" void EXACT(scale)(cuda_call *c)
{
  scaled by = { scalar_of(c->of, 0) };
  assert(c->of->read_count == c->of->write_count);
  for (uint32_t i = 0; i < c->of->read_count; i++)
    map_one(c, read_of(c->of, i), write_of(c->of, i), by);
}

struct divided {
  float number;
  DEVICE float operator()(float x) const
  {
    return x / number;
  }
};

extern "C" void EXACT(divide)(cuda_call *c)
{
  divided by = { scalar_of(c->of, 0) };
  map(c, by);
}

struct increased {
  float number;
  DEVICE float operator()(float x) const
  {
    return x + number;
  }
};

extern "C" void EXACT(add_number)(cuda_call *c)
{
  increased by = { scalar_of(c->of, 0) };
  map(c, by);
}

struct squared {
  DEVICE float operator()(float x) const
  {
    return x * x;
  }
};

extern "C" void EXACT(square)(cuda_call *c)
{
  map(c, squared());
}

/* (x x) x */
struct cubed {
  DEVICE float operator()(float x) const
  {
    return x * x * x;
  }
};

extern "C" void EXACT(cube)(cuda_call *c)
{
  map(c, cubed());
}

struct inverse_root {
  DEVICE float operator()(float x) const
  {
    return exact_rsqrtf(x);
  }
};

extern "C" void EXACT(rsqrt)(cuda_call *c)
{
  map(c, inverse_root());
}

struct tangent {
  DEVICE float operator()(float x) const
  {
    return exact_tanhf(x);
  }
};

extern "C" void EXACT(tanh_forward)(cuda_call *c)
{
  map(c, tangent());
}

/* gy (1 - y y) */
struct tangent_gradient {
  DEVICE float operator()(float gy, float y) const
  {
    return gy * (1 - y * y);
  }
};

extern "C" void EXACT(tanh_backward)(cuda_call *c)
{
  map_two(c, tangent_gradient());
}

struct negated {
  DEVICE float operator()(float x) const
  {
    return -x;
  }
};

extern "C" void EXACT(negate)(cuda_call *c)
{
  map(c, negated());
}

struct cosine_of {
  DEVICE float operator()(float x) const
  {
    return exact_cosf(x);
  }
};

extern "C" void EXACT(cosine)(cuda_call *c)
{
  map(c, cosine_of());
}

struct sine_of {
  DEVICE float operator()(float x) const
  {
    return exact_sinf(x);
  }
};

extern "C" void EXACT(sine)(cuda_call *c)
{
  map(c, sine_of());
}

/* x / (1 + exp(-x)) */
struct silu {
  DEVICE float operator()(float x) const
  {
    return x / (1 + exact_expf(-x));
  }
};

extern "C" void EXACT(silu_forward)(cuda_call *c)
{
  map(c, silu());
}

/* (gy s) (1 + x (1 - s)) with s = 1 / (1 + exp(-x)) */
struct silu_gradient {
  DEVICE float operator()(float gy, float x) const
  {
    float s = 1 / (1 + exact_expf(-x));
    return gy * s * (1 + x * (1 - s));
  }
};

/* reads gy, x */
extern "C" void EXACT(silu_backward)(cuda_call *c)
{
  map_two(c, silu_gradient());
}

/* 1 / (1 + exp(-x)) */
struct sigmoid {
  DEVICE float operator()(float x) const
  {
    return 1 / (1 + exact_expf(-x));
  }
};

extern "C" void EXACT(sigmoid_forward)(cuda_call *c)
{
  map(c, sigmoid());
}

/* gy ((1 - y) y) */
struct sigmoid_gradient {
  DEVICE float operator()(float gy, float y) const
  {
    return gy * ((1 - y) * y);
  }
};

/* reads gy, y */
extern "C" void EXACT(sigmoid_backward)(cuda_call *c)
{
  map_two(c, sigmoid_gradient());
}

enum { SOFTPLUS_THRESHOLD = 20 };

/* log(1 + exp(x)) */
struct softplus {
  DEVICE float operator()(float x) const
  {
    return x > SOFTPLUS_THRESHOLD ? x : exact_logf(1 + exact_expf(x));
  }
};

extern "C" void EXACT(softplus_forward)(cuda_call *c)
{
  map(c, softplus());
}

/* gy (z / (z + 1)) with z = exp(x) */
struct softplus_gradient {
  DEVICE float operator()(float gy, float x) const
  {
    if (x > SOFTPLUS_THRESHOLD) return gy;
    float z = exact_expf(x);
    return gy * (z / (z + 1));
  }
};

/* reads gy, x */
extern "C" void EXACT(softplus_backward)(cuda_call *c)
{
  map_two(c, softplus_gradient());
}

struct exponential {
  DEVICE float operator()(float x) const
  {
    return exact_expf(x);
  }
};

extern "C" void EXACT(exponential)(cuda_call *c)
{
  map(c, exponential());
}
