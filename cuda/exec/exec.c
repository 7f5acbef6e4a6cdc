#include "cuda/exec/exec.h"
