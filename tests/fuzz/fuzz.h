/*
 * A fuzz target is one function: read these bytes as one kind of input, survive.
 *
 * It returns 0. With is_fuzz=true libFuzzer calls it; else replay.c does, for each file named as
 * argument.
 */
#ifndef OFFSIM_TESTS_FUZZ_FUZZ_H
#define OFFSIM_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
