/*
 * The software of a run: the versions in a PyTorch image of NVIDIA's registry.
 */
#ifndef OFFSIM_SIM_CONFIG_SOFTWARE_H
#define OFFSIM_SIM_CONFIG_SOFTWARE_H

#include <stdbool.h>

/* Versions are numbers that compare: 100 major + minor, so 2.10 is 210 and comes after 2.9. */
#define SOFTWARE_VERSION(major, minor) (100 * (major) + (minor))

typedef struct software_release {
  int year, month; /* of the image: 2025, 9 */
  int pytorch;
  int transformer_engine;
} software_release;

/*
 * The software of image `name`: "pytorch:25.09-py3", with or without a registry and path before it.
 * False: the name has another form. An image of a month that is not in the table has the software of
 * the last one before it; after the table's end, Transformer Engine gains one minor version a month.
 */
bool software_release_of(const char *name, software_release *release);

/* "2026-05-30" as the number 20260530. False: the text has another form. */
bool software_day_of(const char *text, int *day);

/* Gives the image the Transformer Engine that Megatron-LM's main pinned on `day` (20260530; 0: none) for
 * images of its age. */
void software_take_engine_of_megatron(software_release *image, int day);

#endif
