/* liboffsim in WebAssembly. It has no files, no clock and one thread: settings go in, texts come out. */
const NO_SUCH_FILE = 8; /* EBADF of WASI: nothing is open */

class Ended extends Error {} /* by itself: a resource was refused; standard error says which */

/* `bytes`: of the module. An instance that ended or trapped is of no more use, so the next call gets a new one. */
function loadOffsim(bytes) {
  const module = new WebAssembly.Module(bytes), decoder = new TextDecoder(), encoder = new TextEncoder();
  let c = null, notes = "";
  const memory = () => new Uint8Array(c.memory.buffer);
  const textAt = (at) => decoder.decode(memory().subarray(at, memory().indexOf(0, at)));
  const wasi = {
    fd_write(file, parts, count, written) {
      const view = new DataView(c.memory.buffer);
      let all = 0;
      for (let i = 0; i < count; i++) {
        const at = view.getUint32(parts + 8 * i, true), length = view.getUint32(parts + 8 * i + 4, true);
        notes += decoder.decode(memory().subarray(at, at + length));
        all += length;
      }
      view.setUint32(written, all, true);
      return 0;
    },
    /* The environment is empty: `count` variables of `bytes`. */
    environ_sizes_get(count, bytes) {
      const view = new DataView(c.memory.buffer);
      view.setUint32(count, 0, true);
      view.setUint32(bytes, 0, true);
      return 0;
    },
    proc_exit() { throw new Ended(); },
  };
  const imports = { wasi_snapshot_preview1: Object.fromEntries(WebAssembly.Module.imports(module)
    .map(({ name }) => [name, wasi[name] || (() => NO_SUCH_FILE)])) };
  function start() {
    c = new WebAssembly.Instance(module, imports).exports;
    c._initialize();
  }
  function give(run, text) {
    const bytes = encoder.encode(`${text}\0`), at = c.malloc(bytes.length);
    memory().set(bytes, at);
    return at;
  }
  /* `name`: a function of sim/api/offsim.h that returns a text; `options`: pairs of an option and its value. The text
   * is null after an error. */
  return function call(name, options, ...rest) {
    if (c === null) start();
    notes = "";
    try {
      const run = c.offsim_run_new();
      for (const pair of options) {
        const [option, value] = pair.map((text) => give(run, text));
        c.offsim_run_give(run, option, value);
        c.free(option);
        c.free(value);
      }
      const at = c[name](run, ...rest);
      const answer = { text: at === 0 ? null : textAt(at), errors: textAt(c.offsim_errors(run)), notes };
      c.offsim_run_delete(run);
      return answer;
    } catch (e) {
      c = null;
      return { text: null, errors: e instanceof Ended ? notes : `offsim: error: ${e}\n${notes}`, notes: "" };
    }
  };
}
