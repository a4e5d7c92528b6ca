// The loader of a model that weft exported to WebAssembly.
//
//   import { load } from "./model.js";
//   const model = await load(new URL("./model.wasm", import.meta.url));
//   const { output } = model.run({ image: new Float32Array(784) });
//
// Inputs are typed arrays, row by row; sizes are numbers. Outputs are new typed arrays. A module
// that was exported for threads is shared by workers: load(url, { threads: 4 }), and close() at the end.

const ARRAYS = {
  bool: Uint8Array, int8: Int8Array, uint8: Uint8Array, int16: Int16Array, uint16: Uint16Array,
  int32: Int32Array, uint32: Uint32Array, int64: BigInt64Array, uint64: BigUint64Array,
  float16: globalThis.Float16Array ?? Uint16Array, float32: Float32Array, float64: Float64Array,
};

const ERRORS = { 2: "a size is outside of its bounds" };

function evaluate(size, sizes) {
  if (typeof size === "number") return size;
  if (typeof size === "string") return sizes[size];
  const [op, ...parts] = size;
  const [x, y] = parts.map((part) => evaluate(part, sizes));
  switch (op) {
    case "+": return x + y;
    case "*": return x * y;
    case "-": return -x;
    case "max": return Math.max(x, y);
    case "/": return y === 0 ? 0 : Math.floor(x / y);
    case "%": return y === 0 ? 0 : x - y * Math.floor(x / y);
    default: throw new Error(`a size is an expression with ${op}, which this loader does not know`);
  }
}

// The sizes of a call; an error that names what is wrong.
function checkSizes(model, given) {
  const known = new Set([...model.inputs, ...model.sizes].map((value) => value.name));
  for (const name of Object.keys(given)) {
    if (!known.has(name)) throw new Error(`${model.name} takes ${[...known].join(", ")}, not ${name}`);
  }
  const sizes = {};
  for (const { name, low, high } of model.sizes) {
    const value = given[name];
    if (!Number.isInteger(value) || value < low || value > high) {
      throw new RangeError(`${name} is a whole number from ${low} to ${high}, found ${value}`);
    }
    sizes[name] = value;
  }
  return sizes;
}

// An input of a call: a typed array of its kind, with as many elements as its shape says.
function checkInput(model, value, given, sizes) {
  const Kind = ARRAYS[value.dtype];
  const data = given[value.name];
  const count = model.shapeOf(value, sizes).reduce((x, y) => x * y, 1);
  if (!(data instanceof Kind) || data.length !== count) {
    const found = data?.constructor?.name ?? data;
    throw new TypeError(
      `${value.name} is a ${Kind.name} of ${count} elements, found ${found} of ${data?.length}`);
  }
  return data;
}

async function compile(source) {
  if (source instanceof WebAssembly.Module) return source;
  if (source instanceof ArrayBuffer || ArrayBuffer.isView(source)) return WebAssembly.compile(source);
  if (typeof Response !== "undefined" && source instanceof Response) {
    return WebAssembly.compile(await source.arrayBuffer());
  }
  const place = source instanceof URL ? source : String(source);
  const isFile = place instanceof URL ? place.protocol === "file:" : !/^[a-z]+:/i.test(place);
  if (isFile && typeof process !== "undefined" && process.versions?.node) {
    const { readFile } = await import("node:fs/promises");
    return WebAssembly.compile(await readFile(place));
  }
  const response = await fetch(place);
  if (!response.ok) throw new Error(`${place} cannot be loaded: ${response.status}`);
  return WebAssembly.compile(await response.arrayBuffer());
}

// ------------------------------------------------------------ threads
// A worker is another instance over the same memory, with a stack of its own; it stays in work().
const WORKER = `
const serve = ({ module, memory, stack }, tell) => {
  const { exports } = new WebAssembly.Instance(module, { env: { memory } });
  exports.__stack_pointer.value += stack;
  tell("ready");
  exports.work();
};`;

async function startWorker(given) {
  if (typeof Worker === "undefined" && typeof process !== "undefined" && process.versions?.node) {
    const { Worker: NodeWorker } = await import("node:worker_threads");
    const text = `${WORKER}
      const { parentPort, workerData } = require("node:worker_threads");
      serve(workerData, (word) => parentPort.postMessage(word));`;
    const worker = new NodeWorker(text, { eval: true, workerData: given });
    await new Promise((done, failed) => { worker.once("message", done); worker.once("error", failed); });
    // a program may end without close()
    worker.unref();
    return worker;
  }
  const text = `${WORKER} onmessage = ({ data }) => serve(data, postMessage);`;
  const url = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
  const worker = new Worker(url);
  try {
    await new Promise((done, failed) => {
      worker.onmessage = done;
      worker.onerror = (event) => failed(new Error(`a worker cannot start: ${event.message}`));
      worker.postMessage(given);
    });
  } catch (error) {
    worker.terminate();
    throw error;
  } finally {
    URL.revokeObjectURL(url);
  }
  return worker;
}

// How many threads a call has: what is asked for, else what the machine and the page allow.
function threadsOf(about, asked) {
  const most = about.threads ?? 1;
  if (asked !== undefined && (!Number.isInteger(asked) || asked < 1 || asked > most)) {
    throw new RangeError(`${about.name} was exported for 1 to ${most} threads, found ${asked}`);
  }
  const mayShare = globalThis.crossOriginIsolated ?? true;
  if (asked > 1 && !mayShare) {
    throw new Error(`${asked} threads need a page that is cross-origin isolated: serve it with the headers ` +
      "Cross-Origin-Opener-Policy: same-origin and Cross-Origin-Embedder-Policy: require-corp");
  }
  const cores = globalThis.navigator?.hardwareConcurrency ?? most;
  return asked ?? (mayShare ? Math.min(most, cores) : 1);
}

async function instantiateShared(module, about, threads) {
  const memory = new WebAssembly.Memory({ initial: about.pages, maximum: about.pages, shared: true });
  const instance = await WebAssembly.instantiate(module, { env: { memory } });
  instance.exports.init();
  const stacks = Array.from({ length: threads - 1 }, (_, i) => (i + 1) * about.stack);
  const started = await Promise.allSettled(stacks.map((stack) => startWorker({ module, memory, stack })));
  const workers = started.filter(({ value }) => value).map(({ value }) => value);
  const wrong = started.find(({ status }) => status === "rejected");
  if (wrong) {
    workers.forEach((worker) => worker.terminate());
    throw wrong.reason;
  }
  return { instance, workers };
}

export class Model {
  constructor(instance, about, workers = []) {
    this.instance = instance;
    this.workers = workers;
    this.about = about;
    this.name = about.name;
    this.inputs = about.inputs;
    this.outputs = about.outputs;
    this.sizes = about.sizes;
  }

  // The shape of an input or output, given the sizes of a call.
  shapeOf(value, sizes = {}) {
    return value.shape.map((size) => evaluate(size, sizes));
  }

  run(given = {}) {
    const sizes = checkSizes(this, given);
    const memory = this.instance.exports.memory.buffer;
    for (const value of this.inputs) {
      const data = checkInput(this, value, given, sizes);
      new ARRAYS[value.dtype](memory, value.offset, value.count).set(data);
    }
    const code = this.instance.exports.run(...this.sizes.map(({ name }) => sizes[name]));
    if (code !== 0) throw new Error(`${this.name}: ${ERRORS[code] ?? `error ${code}`}`);
    const found = {};
    for (const value of this.outputs) {
      const Kind = ARRAYS[value.dtype];
      const count = value.shape.includes(null)
        ? value.count : this.shapeOf(value, sizes).reduce((x, y) => x * y, 1);
      found[value.name] = new Kind(memory, value.offset, count).slice();
    }
    return found;
  }

  // The state as it was in the beginning.
  reset() { this.instance.exports.reset(); }

  // How many threads share its kernels.
  get threads() { return 1 + this.workers.length; }

  // Ends its workers; calls go on alone.
  close() {
    this.workers.forEach((worker) => worker.terminate());
    this.workers = [];
  }

  // Random numbers begin anew, with those of Tensor.manual_seed(seed).
  seed(seed) {
    if (!this.instance.exports.seed) throw new Error(`${this.name} draws no random numbers`);
    this.instance.exports.seed(BigInt(seed));
  }
}

export async function load(source, { threads } = {}) {
  const module = await compile(source);
  const [section] = WebAssembly.Module.customSections(module, "weft");
  if (!section) throw new Error("this module was not exported by weft: it has no section weft");
  const about = JSON.parse(new TextDecoder().decode(section));
  const count = threadsOf(about, threads);
  if (!about.threads) return new Model(await WebAssembly.instantiate(module, {}), about);
  const { instance, workers } = await instantiateShared(module, about, count);
  return new Model(instance, about, workers);
}
