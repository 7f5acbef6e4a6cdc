/*
 * What offsim takes of <sys/ioctl.h>, for wasm32-wasi, which has no terminal.
 */
#ifndef OFFSIM_BUILD_WASM_SYS_IOCTL_H
#define OFFSIM_BUILD_WASM_SYS_IOCTL_H

enum { TIOCGWINSZ = 0x5413 };

struct winsize {
  unsigned short ws_row, ws_col;
};

static inline int ioctl(int file, int request, struct winsize *size)
{
  (void)file, (void)request;
  *size = (struct winsize){ 0 };
  return -1;
}

#endif
