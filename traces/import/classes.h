/*
 * What a kernel is for, by its name: as libraries name them, and as plans do. One table.
 */
#ifndef OFFSIM_TRACES_IMPORT_CLASSES_H
#define OFFSIM_TRACES_IMPORT_CLASSES_H

/*  class               in reports  */
#define KERNEL_CLASSES(X)                                                                          \
  X(CLASS_GEMM, "gemm")                                                                            \
  X(CLASS_ATTENTION, "attention")                                                                  \
  X(CLASS_COMMUNICATION, "communication")                                                          \
  X(CLASS_OTHER, "other")

typedef enum kernel_class {
#define X(id, name) id,
  KERNEL_CLASSES(X)
#undef X
      KERNEL_CLASS_COUNT
} kernel_class;

kernel_class kernel_class_of(const char *name);
const char *kernel_class_name(kernel_class c);

#endif
