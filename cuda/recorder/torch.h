/*
 * PyTorch's blocks, of a process that runs Python: its allocator's callbacks for what is handed out
 * and given back, in the order in which that happens, and its memory snapshot with sizes and stacks
 * at the end.
 */
#ifndef OFFSIM_CUDA_RECORDER_TORCH_H
#define OFFSIM_CUDA_RECORDER_TORCH_H

/* Asks the interpreter, if there is one, to watch PyTorch's allocator once it is initialised. Call
 * it until PyTorch is there; any thread may call, with any lock held. */
void torch_watch(void);

#endif
