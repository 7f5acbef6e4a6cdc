#include "sim/config/software.h"

#include <string.h>

#include "sim/base/text.h"

#define V SOFTWARE_VERSION

/*
 * The versions in NVIDIA's release notes of its PyTorch containers
 * (docs.nvidia.com/deeplearning/frameworks/pytorch-release-notes). Only the PyTorch of 25.12 was
 * compared with the notes themselves; the other rows are assumed.
 */
static const software_release releases[] = {
  { 2023, 1, V(1, 14), V(0, 4) },  { 2023, 4, V(2, 1), V(0, 7) },
  { 2023, 7, V(2, 1), V(0, 10) },  { 2023, 10, V(2, 1), V(0, 12) },
  { 2023, 11, V(2, 2), V(1, 0) },  { 2023, 12, V(2, 2), V(1, 1) },
  { 2024, 1, V(2, 2), V(1, 2) },   { 2024, 2, V(2, 3), V(1, 3) },
  { 2024, 3, V(2, 3), V(1, 4) },   { 2024, 4, V(2, 3), V(1, 5) },
  { 2024, 5, V(2, 4), V(1, 6) },   { 2024, 6, V(2, 4), V(1, 7) },
  { 2024, 7, V(2, 4), V(1, 8) },   { 2024, 8, V(2, 5), V(1, 9) },
  { 2024, 9, V(2, 5), V(1, 10) },  { 2024, 10, V(2, 5), V(1, 11) },
  { 2024, 11, V(2, 6), V(1, 12) }, { 2024, 12, V(2, 6), V(1, 13) },
  { 2025, 1, V(2, 6), V(1, 14) },  { 2025, 2, V(2, 7), V(2, 0) },
  { 2025, 3, V(2, 7), V(2, 1) },   { 2025, 4, V(2, 7), V(2, 2) },
  { 2025, 5, V(2, 8), V(2, 3) },   { 2025, 6, V(2, 8), V(2, 4) },
  { 2025, 7, V(2, 8), V(2, 5) },   { 2025, 8, V(2, 8), V(2, 6) },
  { 2025, 9, V(2, 9), V(2, 7) },   { 2025, 10, V(2, 9), V(2, 8) },
  { 2025, 11, V(2, 10), V(2, 9) }, { 2025, 12, V(2, 10), V(2, 10) },
};

enum { RELEASE_COUNT = sizeof releases / sizeof releases[0] };

/*
 * Megatron-LM's images have a Transformer Engine of their own, by the day from which main pins it
 * (docker/Dockerfile.ci.dev, then pyproject.toml), and the PyTorch image from which main builds them
 * since. Before the first, and with an older PyTorch image, that image's counts: the images with
 * long-time support had their own until November 2025.
 */
static const struct pin {
  int day, image; /* 20251014; 2509: 25.09 */
  int transformer_engine;
} pins[] = {
  { 20250705, 2505, V(2, 5) },  { 20250805, 2506, V(2, 6) },  { 20250828, 2506, V(2, 7) },
  { 20251014, 2509, V(2, 8) },  { 20251021, 2509, V(2, 9) },  { 20251205, 2509, V(2, 10) },
  { 20260114, 2509, V(2, 11) }, { 20260127, 2509, V(2, 12) }, { 20260311, 2509, V(2, 13) },
  { 20260327, 2509, V(2, 14) }, { 20260512, 2509, V(2, 15) }, { 20260530, 2509, V(2, 16) },
  { 20260714, 2509, V(2, 17) },
};

enum { PIN_COUNT = sizeof pins / sizeof pins[0] };

static int months(const software_release *r)
{
  return 12 * r->year + r->month;
}

static bool two_digits(const char *text, int *number)
{
  if (text[0] < '0' || text[0] > '9' || text[1] < '0' || text[1] > '9') {
    return false;
  }
  *number = 10 * (text[0] - '0') + (text[1] - '0');
  return true;
}

/* "pytorch:YY.MM" and then nothing, or '-' and anything. */
static bool read_date(const char *name, int *year, int *month)
{
  const char *image = strrchr(name, '/');
  const char *tag = "pytorch:";

  image = image == NULL ? name : image + 1;
  if (!begins_with(image, tag)) {
    return false;
  }
  image += strlen(tag);
  if (!two_digits(image, year) || image[2] != '.' || !two_digits(image + 3, month) ||
      (image[5] != '\0' && image[5] != '-')) {
    return false;
  }
  *year += 2000;
  return *month >= 1 && *month <= 12;
}

bool software_day_of(const char *text, int *day)
{
  int century, year, month, date;

  if (!two_digits(text, &century) || !two_digits(text + 2, &year) || text[4] != '-' ||
      !two_digits(text + 5, &month) || text[7] != '-' || !two_digits(text + 8, &date) ||
      text[10] != '\0') {
    return false;
  }
  *day = (100 * century + year) * 10000 + 100 * month + date;
  return month >= 1 && month <= 12 && date >= 1 && date <= 31;
}

void software_take_engine_of_megatron(software_release *image, int day)
{
  int age = 100 * (image->year - 2000) + image->month;

  for (int i = 0; i < PIN_COUNT && pins[i].day <= day; i++) {
    if (pins[i].image <= age) image->transformer_engine = pins[i].transformer_engine;
  }
}

bool software_release_of(const char *name, software_release *release)
{
  software_release wanted = { 0 };

  if (!read_date(name, &wanted.year, &wanted.month)) {
    return false;
  }
  const software_release *found = &releases[0];
  for (int i = 1; i < RELEASE_COUNT && months(&releases[i]) <= months(&wanted); i++) {
    found = &releases[i];
  }
  *release = *found;
  release->year = wanted.year;
  release->month = wanted.month;
  if (found == &releases[RELEASE_COUNT - 1]) {
    release->transformer_engine += months(&wanted) - months(found);
  }
  return true;
}
